// Package segno puts an MCP server on the network and makes its streams survive
// a broken connection: after a reconnect the client goes on exactly where it
// stopped. Nothing twice, nothing missing, and where something is gone for
// good, the client is told so.
//
// New gives an http.Handler for an upstream, a server that speaks MCP over
// standard input and output: a Command, or a Func in the same process.
//
//	server, err := segno.New(segno.Command("npx", "-y", "some-server"), segno.Options{})
//	…
//	http.Handle("/mcp", server)
//	http.Handle("/mcp/", server)
//
// A handler around it must let through what http.ResponseController needs (have
// a method Unwrap), and the http.Server should have no WriteTimeout; a stream
// may be open for days. ListenAndServe takes care of both.
//
// Streams are kept in memory unless Options.Log says otherwise: they survive
// any connection, but not the process. Package eventlog/pebblelog keeps them on
// disk.
package segno

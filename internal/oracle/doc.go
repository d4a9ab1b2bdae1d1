// Package oracle runs the whole product with random clients, cuts, crashes and
// servers, and compares what every client saw with a model. It is all tests:
//
//	go test ./internal/oracle                                five hundred seeds, every cut, kills
//	go test ./internal/oracle -run TestSeeds -seed 17 -v     one of them, with its story
//	go test ./internal/oracle -run TestSeeds -for 10m        as many as fit
//
// A seed is a plan of steps, and one run of it takes milliseconds: client,
// network and server are in the same process, in virtual time. What is known to
// be true comes from the two ends. The MCP server's end notes what it heard and
// said (kid), the client's end every byte it got (conn). Between them a wrapper
// around the log notes what was appended (history); it is checked against what
// the server said before anything a client saw is checked against it. A seed
// that fails is run again with ever fewer steps, and what is left of it is
// printed.
//
// Where to look: world (one run), gate (the log, and the crash), kid (the
// server), client and conn (a strict client), plan and steps (what happens),
// finale (how a run ends), seen (the checks of what clients saw), said (the
// checks of what the server said), seeds (the tests). Two more tests stand
// beside them: a stream cut at every byte, and kill -9 of the real command.
package oracle

package segno

import "github.com/segno-mcp/segno/internal/upstream/remote"

// RemoteOptions describe an MCP server behind a URL. Only URL is needed.
type RemoteOptions = remote.Options

// Remote is an MCP server behind a URL, over Streamable HTTP. Each session has
// a session of its own there. Streams that break on that side are resumed if
// the server can, requests outlive its outages, and one of which nobody knows
// what became ends with an error that says so. Nothing of what a client sends
// in its headers is passed on.
func Remote(o RemoteOptions) (Upstream, error) { return remote.New(o) }

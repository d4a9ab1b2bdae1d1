// Package example is an MCP server to try Segno with: its one tool exports rows
// slowly and reports progress whose state is cumulative, so that a client can
// see for itself whether something is missing.
package example

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Version is what the server calls itself.
const Version = "1.0.0"

// Serve speaks MCP over stdio until the input ends or ctx does. Only messages
// are written to out. A call that runs when the input ends is given up.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	t := &mcp.IOTransport{Reader: io.NopCloser(in), Writer: noClose{out}}
	err := NewServer().Run(ctx, t)
	if err == nil || errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serving the example: %w", err)
}

// noClose leaves the writer to whoever gave it.
type noClose struct{ io.Writer }

func (noClose) Close() error { return nil }

// NewServer makes the server for any transport. Exports are shared by all of
// its sessions.
func NewServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "segno-example", Title: "Export example", Version: Version},
		&mcp.ServerOptions{
			Instructions: "Call the tool export; its rows can be read afterwards as the resource that its result names.",
			Capabilities: &mcp.ServerCapabilities{
				Tools:     &mcp.ToolCapabilities{},
				Resources: &mcp.ResourceCapabilities{ListChanged: true},
			},
		})
	d := &desk{server: s, exports: map[string]int{}}
	mcp.AddTool(s, &mcp.Tool{
		Name:        "export",
		Title:       "Export rows",
		Description: "Exports rows one by one and reports each as progress. Takes rows times interval_ms.",
	}, d.export)
	return s
}

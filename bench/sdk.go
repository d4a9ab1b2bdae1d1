package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/segno-mcp/segno/bench/tool"
)

// serveSDK is the role "go-sdk": the official Go SDK's handler with its own
// store for resuming. The tools run in the same process, so no child and no
// pipe stand behind it.
func serveSDK() error {
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	for name, run := range map[string]func(context.Context, *mcp.CallToolRequest, tool.Args) error{
		"echo": sdkEcho, "flood": sdkFlood, "tick": sdkTick,
	} {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}, sdkTool(run))
	}
	store := mcp.NewMemoryEventStore(nil)
	store.SetMaxBytes(4 << 30)
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{EventStore: store})
	return serve(h)
}

func sdkTool(run func(context.Context, *mcp.CallToolRequest, tool.Args) error) mcp.ToolHandler {
	return func(ctx context.Context, q *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var args tool.Args
		if err := json.Unmarshal(q.Params.Arguments, &args); err != nil {
			return nil, err
		}
		if err := run(ctx, q, args); err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: args.Text}}}, nil
	}
}

func sdkEcho(context.Context, *mcp.CallToolRequest, tool.Args) error { return nil }

func sdkFlood(ctx context.Context, q *mcp.CallToolRequest, args tool.Args) error {
	// What is around the message and the serial in the SDK's own spelling.
	const around = 110
	pad := strings.Repeat("x", max(0, args.Bytes-around))
	for i := 1; i <= args.N; i++ {
		if err := sdkProgress(ctx, q, i, pad); err != nil {
			return err
		}
	}
	return nil
}

func sdkTick(ctx context.Context, q *mcp.CallToolRequest, args tool.Args) error {
	t := time.NewTicker(time.Duration(args.Every) * time.Microsecond)
	defer t.Stop()
	for i := 1; i <= args.N; i++ {
		<-t.C
		if err := sdkProgress(ctx, q, i, tool.Stamp(time.Now())); err != nil {
			return err
		}
	}
	return nil
}

func sdkProgress(ctx context.Context, q *mcp.CallToolRequest, i int, message string) error {
	return q.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: q.Params.GetProgressToken(), Progress: float64(i), Message: message,
	})
}

package peers

//lint:file-ignore SA1019 sampling is deprecated for 2026-07-28; the sessions here are older

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// goSDK is a client of modelcontextprotocol/go-sdk.
type goSDK struct {
	session *mcp.ClientSession
	mu      sync.Mutex
	tokens  int
	seen    map[string]*progress
}

// openGoSDK connects. Without a version the client probes for the newest
// revision first, as it does by default.
func openGoSDK(t *testing.T, url, version string) peer {
	t.Helper()
	c := &goSDK{seen: map[string]*progress{}}
	options := c.options()
	var session *mcp.ClientSessionOptions
	if version != "" {
		session = &mcp.ClientSessionOptions{ProtocolVersion: version}
	}
	var err error
	c.session, err = mcp.NewClient(&mcp.Implementation{Name: "peer-go-sdk", Version: "1"}, options).Connect(
		within(t, 20*time.Second), &mcp.StreamableClientTransport{Endpoint: url}, session)
	if err != nil {
		t.Fatalf("go-sdk: connecting: %v", err)
	}
	return c
}

// options let the server ask.
func (c *goSDK) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ProgressNotificationHandler: c.progress,
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "peer", Role: "assistant", Content: &mcp.TextContent{Text: "sampled by the peer"}}, nil
		},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	}
}

func (c *goSDK) progress(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
	c.mu.Lock()
	seen := c.seen[fmt.Sprint(r.Params.ProgressToken)]
	c.mu.Unlock()
	if seen != nil {
		seen.add(int(r.Params.Progress))
	}
}

func (c *goSDK) call(ctx context.Context, tool string, args map[string]any, seen *progress) (string, error) {
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	if seen != nil {
		c.mu.Lock()
		c.tokens++
		token := fmt.Sprintf("token-%d", c.tokens)
		c.seen[token] = seen
		c.mu.Unlock()
		params.SetProgressToken(token)
	}
	result, err := c.session.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	var text []string
	for _, part := range result.Content {
		if p, ok := part.(*mcp.TextContent); ok {
			text = append(text, p.Text)
		}
	}
	return strings.Join(text, "\n"), nil
}

func (c *goSDK) read(ctx context.Context, uri string) (string, error) {
	result, err := c.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		return "", err
	}
	return result.Contents[0].Text, nil
}

func (c *goSDK) tools(ctx context.Context) ([]string, error) {
	result, err := c.session.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, tool := range result.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

func (c *goSDK) close() { c.session.Close() }

package peers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// mcpGo is a client of mark3labs/mcp-go.
type mcpGo struct {
	client *client.Client
	mu     sync.Mutex
	tokens int
	seen   map[string]*progress
}

func openMCPGo(t *testing.T, url string) peer {
	t.Helper()
	carrier, err := transport.NewStreamableHTTP(url)
	if err != nil {
		t.Fatal(err)
	}
	c := &mcpGo{seen: map[string]*progress{}}
	c.client = client.NewClient(carrier, client.WithSamplingHandler(c), client.WithElicitationHandler(c))
	ctx := within(t, 20*time.Second)
	if err := c.client.Start(ctx); err != nil {
		t.Fatalf("mcp-go: starting: %v", err)
	}
	c.client.OnNotification(c.notified)
	var hello mcp.InitializeRequest
	hello.Params.ClientInfo = mcp.Implementation{Name: "peer-mcp-go", Version: "1"}
	if _, err := c.client.Initialize(ctx, hello); err != nil {
		t.Fatalf("mcp-go: initializing: %v", err)
	}
	return c
}

func (c *mcpGo) CreateMessage(context.Context, mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	result := &mcp.CreateMessageResult{Model: "peer"}
	result.Role = mcp.RoleAssistant
	result.Content = mcp.TextContent{Type: "text", Text: "sampled by the peer"}
	return result, nil
}

func (c *mcpGo) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	result := &mcp.ElicitationResult{}
	result.Action = mcp.ElicitationResponseActionDecline
	return result, nil
}

func (c *mcpGo) notified(n mcp.JSONRPCNotification) {
	fields := n.Params.AdditionalFields
	c.mu.Lock()
	seen := c.seen[fmt.Sprint(fields["progressToken"])]
	c.mu.Unlock()
	number, ok := fields["progress"].(float64)
	if seen != nil && ok {
		seen.add(int(number))
	}
}

func (c *mcpGo) call(ctx context.Context, tool string, args map[string]any, seen *progress) (string, error) {
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.Arguments = tool, args
	if seen != nil {
		c.mu.Lock()
		c.tokens++
		token := fmt.Sprintf("token-%d", c.tokens)
		c.seen[token] = seen
		c.mu.Unlock()
		request.Params.Meta = &mcp.Meta{ProgressToken: token}
	}
	result, err := c.client.CallTool(ctx, request)
	if err != nil {
		return "", err
	}
	var text []string
	for _, part := range result.Content {
		if p, ok := part.(mcp.TextContent); ok {
			text = append(text, p.Text)
		}
	}
	return strings.Join(text, "\n"), nil
}

func (c *mcpGo) read(ctx context.Context, uri string) (string, error) {
	var request mcp.ReadResourceRequest
	request.Params.URI = uri
	result, err := c.client.ReadResource(ctx, request)
	if err != nil {
		return "", err
	}
	text, ok := result.Contents[0].(mcp.TextResourceContents)
	if !ok {
		return "", fmt.Errorf("contents are %T", result.Contents[0])
	}
	return text.Text, nil
}

func (c *mcpGo) tools(ctx context.Context) ([]string, error) {
	result, err := c.client.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, tool := range result.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

func (c *mcpGo) close() { c.client.Close() }

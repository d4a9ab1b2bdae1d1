package peers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestControl runs the clients and the cutter against a server that resumes on
// its own, go-sdk's with its event store: what passes there proves the test
// tools good, and what that server is known to get wrong must fail there.
func TestControl(t *testing.T) {
	need(t, "npm")
	for _, k := range kinds(t) {
		t.Run(k.name+"/abort1", func(t *testing.T) { t.Parallel(); controlAbort(t, k) })
		if k.ordered { // the TypeScript ones
			t.Run(k.name+"/quiet3", func(t *testing.T) { t.Parallel(); controlQuiet(t, k) })
		}
	}
}

// controlAbort: one break of a call with progress is survived by every client
// that can.
func controlAbort(t *testing.T, k kind) {
	proxy := cutBefore(t, goSDKServer(t), plan{how: abort, cuts: 1, after: 5})
	client := k.open(t, proxy.url())
	defer client.close()
	seen := &progress{}
	text, err := client.call(within(t, 30*time.Second), "count", map[string]any{"n": steps}, seen)
	switch {
	case k.cleanOnly && err == nil:
		t.Error("the client survived a break")
	case k.cleanOnly:
		onlyOnce(t, seen.numbers())
	case err != nil || text != "done":
		t.Errorf("result %q, error %v; %s", text, err, proxy.story())
	default:
		settled(t, k, seen)
	}
}

// controlQuiet: this server does not prime a resumed stream, so the second break
// of a call that says nothing loses it. (go-sdk's client survives: its server
// does not even send a head before the first event, so it asks again.)
func controlQuiet(t *testing.T, k kind) {
	proxy := cutBefore(t, goSDKServer(t), plan{how: abort, cuts: 3, unprimed: time.Second})
	client := k.open(t, proxy.url()) // not closed: this server's DELETE waits for the tool
	text, err := client.call(within(t, 8*time.Second), "quiet", map[string]any{}, nil)
	// The call's own connection and the two attempts that the client makes.
	if conns, _ := proxy.seen(); err == nil || conns > 3 {
		t.Errorf("result %q after %s: a test that expects a loss here would not see it", text, proxy.story())
	}
}

// goSDKServer is a server of go-sdk with two tools and its event store.
func goSDKServer(t *testing.T) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "control", Version: "1"}, nil)
	type args struct {
		N int `json:"n,omitempty"`
	}
	over := make(chan struct{})
	done := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}
	mcp.AddTool(server, &mcp.Tool{Name: "count"}, func(ctx context.Context, r *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
		pace := time.NewTicker(100 * time.Millisecond)
		defer pace.Stop()
		for i := range a.N {
			<-pace.C
			r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1)})
		}
		return done, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "quiet"}, func(context.Context, *mcp.CallToolRequest, args) (*mcp.CallToolResult, any, error) {
		<-over
		return done, nil, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)})
	s := httptest.NewServer(handler)
	t.Cleanup(func() {
		close(over)
		for session := range server.Sessions() {
			session.Close()
		}
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL + "/mcp"
}

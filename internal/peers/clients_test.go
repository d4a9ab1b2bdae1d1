package peers

import (
	"context"
	"sync"
	"testing"
)

// peer is one real MCP client, connected.
type peer interface {
	// call runs a tool. Progress goes to seen unless it is nil: then the client
	// asks for none.
	call(ctx context.Context, tool string, args map[string]any, seen *progress) (string, error)
	read(ctx context.Context, uri string) (string, error)
	tools(ctx context.Context) ([]string, error)
	close()
}

// kind is a way to make clients.
type kind struct {
	name string
	// cleanOnly says that the client resumes only streams that the server ended
	// cleanly: a call whose connection breaks fails at once.
	cleanOnly bool
	// ordered says that the client hands over progress in the order it came.
	ordered bool
	open    func(t *testing.T, url string) peer
}

// kinds are the clients that every test runs.
func kinds(t *testing.T) []kind {
	v1, v2 := startDriver(t, "v1"), startDriver(t, "v2")
	return []kind{
		{name: "go-sdk", open: func(t *testing.T, url string) peer { return openGoSDK(t, url, "") }},
		{name: "go-sdk-2025-11-25", open: func(t *testing.T, url string) peer { return openGoSDK(t, url, "2025-11-25") }},
		{name: "ts-v1", ordered: true, open: func(t *testing.T, url string) peer { return v1.open(t, url, "") }},
		{name: "ts-v2", ordered: true, open: func(t *testing.T, url string) peer { return v2.open(t, url, "") }},
		{name: "ts-v2-auto", ordered: true, open: func(t *testing.T, url string) peer { return v2.open(t, url, "auto") }},
		{name: "mcp-go", cleanOnly: true, open: openMCPGo},
	}
}

// progress gathers the progress of one call as it comes.
type progress struct {
	mu   sync.Mutex
	seen []int
}

func (p *progress) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, n)
}

func (p *progress) numbers() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]int(nil), p.seen...)
}

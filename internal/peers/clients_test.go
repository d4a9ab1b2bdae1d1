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

// step is one progress event as a client saw it.
type step struct {
	progress int
	message  string
	at       int64 // Unix milliseconds
}

// progress gathers the steps of one call.
type progress struct {
	mu    sync.Mutex
	steps []step
}

func (p *progress) add(s step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = append(p.steps, s)
}

func (p *progress) all() []step {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]step(nil), p.steps...)
}

// numbers are the progress values as they came.
func (p *progress) numbers() []int {
	var n []int
	for _, s := range p.all() {
		n = append(n, s.progress)
	}
	return n
}

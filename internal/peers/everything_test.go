package peers

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestServerEverything puts the best known reference server on stdio behind
// Segno and uses its tools with every client: plain ones, one with progress, a
// resource, and the tools that ask the client for something.
func TestServerEverything(t *testing.T) {
	need(t, "npm")
	index, err := filepath.Abs("testdata/npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, nil, node(t), index, "stdio")
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) { t.Parallel(); everything(t, k, s.url) })
	}
}

func everything(t *testing.T, k kind, url string) {
	ctx := within(t, 60*time.Second)
	client := k.open(t, url)
	defer client.close()
	names, err := client.tools(ctx)
	if err != nil || !slices.Contains(names, "echo") {
		t.Fatalf("tools: %v, %v", names, err)
	}
	for _, c := range []struct {
		tool string
		args map[string]any
		want string
	}{
		{"echo", map[string]any{"message": "héllo \u2028 wörld"}, "Echo: héllo \u2028 wörld"},
		{"get-sum", map[string]any{"a": 2, "b": 40}, "42"},
		{"trigger-sampling-request", map[string]any{"prompt": "say something"}, "sampled by the peer"},
		{"trigger-elicitation-request", map[string]any{}, "declined"},
	} {
		text, err := client.call(ctx, c.tool, c.args, nil)
		if err != nil || !strings.Contains(text, c.want) {
			t.Errorf("%s: %q, %v; want %q in it", c.tool, text, err, c.want)
		}
	}
	seen := &progress{}
	text, err := client.call(ctx, "trigger-long-running-operation", map[string]any{"duration": 1, "steps": 5}, seen)
	if err != nil || !strings.Contains(text, "completed") {
		t.Errorf("long operation: %q, %v", text, err)
	}
	eventually(5*time.Second, func() bool { return len(seen.numbers()) >= 5 })
	got := seen.numbers()
	if !k.ordered {
		slices.Sort(got)
	}
	if !slices.Equal(got, []int{1, 2, 3, 4, 5}) {
		t.Errorf("progress %v, want 1 to 5, each once", got)
	}
	body, err := client.read(ctx, "demo://resource/dynamic/text/1")
	if err != nil || !strings.Contains(body, "Resource 1") {
		t.Errorf("resource: %q, %v", body, err)
	}
}

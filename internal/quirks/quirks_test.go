package quirks

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/segno-mcp/segno/internal/sse"
)

func TestFor(t *testing.T) {
	for _, c := range []struct {
		name, agent string
		want        Set
	}{
		{"Java SDK MCP Client", "", Set(NoRetry)},
		{"my app", "Java-http-client/21.0.4", Set(NoRetry)},
		{"Amazon Bedrock AgentCore Gateway", "", Set(NoRetry)},
		{"", "AgentCore/1.0", Set(NoRetry)},
		{"spring-ai-mcp-client", "ReactorNetty/1.2.3", 0},
		{"claude-code", "node", 0},
		{"", "Mozilla/5.0 (not Java-http-client/21)", 0},
		{"", "", 0},
	} {
		if got := For(c.name, c.agent); got != c.want || got.Has(NoRetry) != (c.want == Set(NoRetry)) {
			t.Errorf("%q %q: %b", c.name, c.agent, got)
		}
	}
}

// strict reads a stream as the Java SDK's line reader does.
func strict(stream []byte) error {
	for line := range strings.Lines(string(stream)) {
		line = strings.TrimSuffix(line, "\n")
		field, _, _ := strings.Cut(line, ":")
		switch field {
		case "", "id", "event", "data":
		default:
			return fmt.Errorf("invalid SSE response: %s", line)
		}
	}
	return nil
}

func TestStrictReaderTakesAStreamWithoutRetry(t *testing.T) {
	stream := func(s Set) []byte {
		retry := 2 * time.Second
		if s.Has(NoRetry) {
			retry = 0
		}
		b := sse.AppendPriming(nil, "s.t.0", retry)
		b = append(b, sse.Heartbeat...)
		return sse.AppendEvent(b, "message", "s.t.1", []byte("{}\n{}"))
	}
	for _, r := range Table {
		if err := strict(stream(For(r.Name, ""))); err != nil {
			t.Errorf("%s: %v", r.Client, err)
		}
	}
	if strict(stream(For("other", ""))) == nil {
		t.Error("the reader takes everything, this test says nothing")
	}
}

// Every row has a reason, a source and a test that exists.
func TestTable(t *testing.T) {
	for _, r := range Table {
		if r.Client == "" || r.Why == "" || r.Exception == 0 || r.Name == "" && r.Agent == "" {
			t.Errorf("%+v is not complete", r)
		}
		if r.Name != strings.ToLower(r.Name) || r.Agent != strings.ToLower(r.Agent) {
			t.Errorf("%s: patterns are in lower case", r.Client)
		}
		if !strings.HasPrefix(r.Source, "https://") {
			t.Errorf("%s: source %q", r.Client, r.Source)
		}
		if dir, name, ok := strings.Cut(r.Test, " "); !ok || !hasTest(t, filepath.Join("..", "..", dir), name) {
			t.Errorf("%s: there is no test %q", r.Client, r.Test)
		}
	}
	if hasTest(t, ".", "TestNone") {
		t.Error("finds a test that is not there")
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == name {
				return true
			}
		}
	}
	return false
}

package example

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// visit is a client with what it was told.
type visit struct {
	*mcp.ClientSession
	progress chan *mcp.ProgressNotificationParams
	changed  chan struct{}
}

func connect(t *testing.T) *visit {
	t.Helper()
	v := &visit{progress: make(chan *mcp.ProgressNotificationParams, 10_000), changed: make(chan struct{}, 100)}
	here, there := mcp.NewInMemoryTransports()
	server, err := NewServer().Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { v.progress <- r.Params },
		ResourceListChangedHandler:  func(context.Context, *mcp.ResourceListChangedRequest) { v.changed <- struct{}{} },
	})
	v.ClientSession, err = client.Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		v.Close()
		server.Wait()
	})
	return v
}

func (v *visit) export(ctx context.Context, args any) (*mcp.CallToolResult, error) {
	p := &mcp.CallToolParams{Name: "export", Arguments: args}
	p.SetProgressToken("p1")
	return v.CallTool(ctx, p)
}

func summary(t *testing.T, r *mcp.CallToolResult) (s Summary) {
	t.Helper()
	if r.IsError {
		t.Fatalf("the tool failed: %+v", r.Content)
	}
	b, _ := json.Marshal(r.StructuredContent)
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestExportReportsEveryRowCumulatively(t *testing.T) {
	v := connect(t)
	r, err := v.export(t.Context(), map[string]any{"rows": 50})
	if err != nil {
		t.Fatal(err)
	}
	s := summary(t, r)
	sum := sha256.New()
	for i := 1; i <= 50; i++ {
		p := <-v.progress
		sum.Write([]byte(Row(i)))
		want := hex.EncodeToString(sum.Sum(nil))
		if p.Progress != float64(i) || p.Total != 50 || p.Meta["checksum"] != want || p.Meta["rows"] != float64(i) {
			t.Fatalf("report %d is %+v", i, p)
		}
		if p.Message != fmt.Sprintf("row %d of 50, checksum %s", i, want[:12]) {
			t.Errorf("report %d says %q", i, p.Message)
		}
	}
	if s.Rows != 50 || s.Checksum != hex.EncodeToString(sum.Sum(nil)) || s.Checksum != Checksum(50) {
		t.Errorf("got %+v", s)
	}
	if text, ok := r.Content[0].(*mcp.TextContent); !ok || !strings.Contains(text.Text, s.Checksum) {
		t.Errorf("the text is %+v", r.Content[0])
	}
}

func TestRowsCanBeReadAfterwards(t *testing.T) {
	v := connect(t)
	r, err := v.export(t.Context(), map[string]any{"rows": 20})
	if err != nil {
		t.Fatal(err)
	}
	s := summary(t, r)
	select {
	case <-v.changed:
	case <-time.After(10 * time.Second):
		t.Error("nobody told that the list has changed")
	}
	list, err := v.ListResources(t.Context(), nil)
	if err != nil || len(list.Resources) != 1 || list.Resources[0].URI != s.URI {
		t.Fatalf("listed: %+v, %v", list, err)
	}
	got, err := v.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: s.URI})
	if err != nil {
		t.Fatal(err)
	}
	text := got.Contents[0].Text
	sum := sha256.Sum256([]byte(text))
	if strings.Count(text, "\n") != 20 || hex.EncodeToString(sum[:]) != s.Checksum {
		t.Errorf("read %d rows", strings.Count(text, "\n"))
	}
	if _, err := v.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "export://none"}); err == nil {
		t.Error("an export that never was can be read")
	}
}

func TestOldExportsGo(t *testing.T) {
	v := connect(t)
	var first, last Summary
	for i := range maxExports + 1 {
		r, err := v.export(t.Context(), map[string]any{"rows": 1})
		if err != nil {
			t.Fatal(err)
		}
		last = summary(t, r)
		if i == 0 {
			first = last
		}
	}
	if _, err := v.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: first.URI}); err == nil {
		t.Error("the oldest can still be read")
	}
	if _, err := v.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: last.URI}); err != nil {
		t.Error(err)
	}
}

func TestBadInputIsTold(t *testing.T) {
	v := connect(t)
	for want, args := range map[string]map[string]any{
		"rows must be 1 to 100000, it is 0":           {"rows": 0},
		"rows must be 1 to 100000, it is 100001":      {"rows": 100001},
		"interval_ms must be 0 to 60000, it is -1":    {"rows": 1, "interval_ms": -1},
		"interval_ms must be 0 to 60000, it is 60001": {"rows": 1, "interval_ms": 60001},
		"fail_at must be 1 to rows (5), it is 6":      {"rows": 5, "fail_at": 6},
		"fail_at must be 1 to rows (5), it is 0":      {"rows": 5, "fail_at": 0},
		"rows":                                        {},
		"more":                                        {"rows": 1, "more": 1},
		"the export failed at row 3 of 5, as asked":   {"rows": 5, "fail_at": 3},
		"integer": {"rows": "ten"},
	} {
		r, err := v.export(t.Context(), args)
		got := fmt.Sprint(err)
		if err == nil {
			if !r.IsError {
				t.Errorf("%v was taken", args)
				continue
			}
			got = r.Content[0].(*mcp.TextContent).Text
		}
		if !strings.Contains(got, want) {
			t.Errorf("%v: told %q, not %q", args, got, want)
		}
	}
}

func TestAFailingExportReportsUpToThere(t *testing.T) {
	v := connect(t)
	if r, err := v.export(t.Context(), map[string]any{"rows": 5, "fail_at": 3}); err != nil || !r.IsError {
		t.Fatalf("got %+v, %v", r, err)
	}
	for i := 1; i <= 2; i++ {
		if p := <-v.progress; p.Progress != float64(i) {
			t.Errorf("report %d is %+v", i, p)
		}
	}
	if list, err := v.ListResources(t.Context(), nil); err != nil || len(list.Resources) != 0 {
		t.Errorf("listed: %+v, %v", list, err)
	}
}

// The next export runs at once, and reports of the cancelled one have stopped.
func TestACancelledExportStops(t *testing.T) {
	v := connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-v.progress
		cancel()
	}()
	if _, err := v.export(ctx, map[string]any{"rows": 10000, "interval_ms": 20}); err == nil {
		t.Fatal("it was not cancelled")
	}
	if _, err := v.export(t.Context(), map[string]any{"rows": 1}); err != nil {
		t.Fatal(err)
	}
	late := 0
	for quiet := time.After(300 * time.Millisecond); ; {
		select {
		case p := <-v.progress:
			if p.Total == 10000 {
				late++
			}
			continue
		case <-quiet:
		}
		break
	}
	if late > 5 {
		t.Errorf("%d reports after the cancel", late)
	}
}

func TestServesOverStdio(t *testing.T) {
	in, feed := io.Pipe()
	results, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Serve(t.Context(), in, out)
		out.Close()
		done <- err
	}()
	lines := bufio.NewScanner(results)
	say := func(s string) { io.WriteString(feed, s+"\n") }
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"protocolVersion":"2025-11-25"`) {
		t.Fatalf("answered %s", lines.Text())
	}
	say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"export","arguments":{"rows":3},"_meta":{"progressToken":9}}}`)
	var got []string
	for len(got) < 4 && lines.Scan() {
		if !strings.Contains(lines.Text(), "list_changed") {
			got = append(got, lines.Text())
		}
	}
	for i, want := range []string{`"progress":1`, `"progress":2`, `"progress":3`, `"id":2`} {
		if i >= len(got) || !strings.Contains(got[i], want) {
			t.Errorf("line %d lacks %s: %v", i, want, got)
		}
	}
	feed.Close()
	go io.Copy(io.Discard, results)
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on after its input has ended")
	}
}

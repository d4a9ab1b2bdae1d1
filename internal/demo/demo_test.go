package demo

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/segno-mcp/segno/internal/example"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keeper is a server that resumes: the official one with a store. Its event
// ids end in _N; shift moves the place that the client asks to resume from.
func keeper(t *testing.T, shift int) string {
	t.Helper()
	server := example.NewServer()
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		EventStore: mcp.NewMemoryEventStore(nil),
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stream, n, ok := strings.Cut(r.Header.Get("Last-Event-ID"), "_"); ok {
			i, _ := strconv.Atoi(n)
			r.Header.Set("Last-Event-ID", fmt.Sprintf("%s_%d", stream, i+shift))
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		for s := range server.Sessions() {
			s.Close()
		}
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

func TestNothingIsLostWithAServerThatResumes(t *testing.T) {
	var out bytes.Buffer
	r, err := Run(t.Context(), Options{
		URL: keeper(t, 0), Out: &out, Rows: 40, Interval: 10 * time.Millisecond, Outage: 20 * time.Millisecond, retry: 100 * time.Millisecond,
	})
	if err != nil || !r.Exact() {
		t.Fatalf("%+v, %v\n%s", r, err, out.String())
	}
	if r.Connections != 2 {
		t.Errorf("%d connections", r.Connections)
	}
	for _, want := range []string{
		"POST tools/call export", "GET, Last-Event-ID: ", "the connection is reset", "broken: ",
		"40/40", "replayed", "the outcome", "✓ missing       0", "✓ twice         0", "have the same checksum",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the timeline lacks %q", want)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("colours without being asked for")
	}
	if t.Failed() {
		t.Log("\n" + out.String())
	}
}

// The two faults of a server that resumes from the wrong place.
func TestFaultsOfAServerAreSeen(t *testing.T) {
	for shift, want := range map[int]func(Report) bool{
		-1: func(r Report) bool { return r.Duplicates == 1 && r.Missing == 0 && r.Backwards == 0 },
		-2: func(r Report) bool { return r.Duplicates == 2 && r.Missing == 0 && r.Backwards == 1 },
		2:  func(r Report) bool { return r.Duplicates == 0 && r.Missing == 2 },
	} {
		var out bytes.Buffer
		r, err := Run(t.Context(), Options{
			URL: keeper(t, shift), Out: &out, Rows: 40, Interval: 10 * time.Millisecond, Outage: 20 * time.Millisecond, retry: 100 * time.Millisecond,
		})
		if err == nil || !want(r) {
			t.Errorf("shifted by %d: %+v, %v\n%s", shift, r, err, out.String())
		}
	}
}

func TestProgressJumpsWithoutSegno(t *testing.T) {
	var out bytes.Buffer
	r, err := Run(t.Context(), Options{
		WithoutSegno: true, Out: &out, Rows: 40, Interval: 20 * time.Millisecond, Outage: 20 * time.Millisecond, retry: 200 * time.Millisecond, Color: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Missing < 5 || r.Duplicates != 0 || !r.Outcome || r.Exact() {
		t.Errorf("%+v\n%s", r, out.String())
	}
	for _, want := range []string{"GET, with no id to resume from", "were never reported", "jumps over", "\x1b[31m✗"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the timeline lacks %q", want)
		}
	}
}

// The tool is done before the client is back.
func TestTheCallIsLostWithoutSegno(t *testing.T) {
	var out bytes.Buffer
	r, err := Run(t.Context(), Options{
		WithoutSegno: true, Out: &out, Rows: 10, Interval: 5 * time.Millisecond, Outage: 20 * time.Millisecond,
		retry: 500 * time.Millisecond, patience: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome || r.Missing == 0 || !strings.Contains(out.String(), "the call is lost: no answer came") {
		t.Errorf("%+v\n%s", r, out.String())
	}
}

func TestAStoryThatCannotBeToldSaysWhy(t *testing.T) {
	for url, want := range map[string]string{
		"":                     "is not an http URL",
		"https://localhost/":   "is not an http URL",
		"http://127.0.0.1:1/x": "connecting to the server",
	} {
		if _, err := Run(t.Context(), Options{URL: url}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", url, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Options{URL: keeper(t, 0)}); err == nil {
		t.Error("told although it was called off")
	}
}

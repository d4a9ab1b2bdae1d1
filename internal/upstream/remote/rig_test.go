package remote

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/segno-mcp/segno/internal/memnet"
	"github.com/segno-mcp/segno/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hit is one HTTP request that reached the scripted server.
type hit struct {
	w       http.ResponseWriter
	r       *http.Request
	at      time.Time
	body    string
	msg     wire.Message
	session string
	cursor  string
}

// write sends text at once.
func (h *hit) write(format string, args ...any) {
	fmt.Fprintf(h.w, format, args...)
	http.NewResponseController(h.w).Flush()
}

// stream begins an event stream.
func (h *hit) stream() {
	h.w.Header().Set("Content-Type", "text/event-stream")
	h.w.WriteHeader(http.StatusOK)
	http.NewResponseController(h.w).Flush()
}

func (h *hit) json(text string) {
	h.w.Header().Set("Content-Type", "application/json")
	io.WriteString(h.w, text)
}

func (h *hit) result(text string) { h.json(result(string(h.msg.IDText()), text)) }

func result(id, text string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":` + text + `}` }

// scripted is an MCP server whose every answer a test decides. What the test
// leaves out is done as a plain server would.
type scripted struct {
	call    func(h *hit)        // tools/call
	get     func(h *hit, n int) // the n-th GET, from 1; nil: 405
	post    func(h *hit) bool   // before all else; true: it was answered
	caps    string
	version string

	mu      sync.Mutex
	hits    []*hit
	gets    int
	opened  int
	session string
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h := &hit{w: w, r: r, at: time.Now(), body: string(body), session: r.Header.Get("Mcp-Session-Id"), cursor: r.Header.Get("Last-Event-ID")}
	h.msg, _ = wire.Parse(bytes.Clone(body))
	s.mu.Lock()
	s.hits = append(s.hits, h)
	if r.Method == http.MethodGet {
		s.gets++
	}
	n := s.gets
	s.mu.Unlock()
	known := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return h.session == s.session
	}
	switch {
	case r.Method == http.MethodPost && s.post != nil && s.post(h):
	case h.msg.Method == wire.Initialize:
		s.initialize(h)
	case !known():
		http.Error(w, "no such session", http.StatusNotFound)
	case r.Method == http.MethodGet && s.get != nil:
		s.get(h, n)
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case h.msg.Kind != wire.Request:
		w.WriteHeader(http.StatusAccepted)
	case h.msg.Method == wire.ToolsCall && s.call != nil:
		s.call(h)
	default:
		h.result(`{}`)
	}
}

func (s *scripted) initialize(h *hit) {
	s.mu.Lock()
	s.opened++
	s.session = fmt.Sprintf("session-%d", s.opened)
	id := s.session
	s.mu.Unlock()
	caps, version := s.caps, s.version
	if caps == "" {
		caps = `{}`
	}
	if version == "" {
		version = wire.Rev2025
	}
	h.w.Header().Set("Mcp-Session-Id", id)
	h.result(`{"protocolVersion":"` + version + `","capabilities":` + caps + `,"serverInfo":{"name":"scripted","version":"1"}}`)
}

// forget makes the server know no session.
func (s *scripted) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = "none"
}

// all are the requests with a JSON-RPC method, or of an HTTP method.
func (s *scripted) all(method string) (list []*hit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hits {
		if h.msg.Method == method || h.r.Method == method {
			list = append(list, h)
		}
	}
	return list
}

// rig is a client before a server on a network in memory.
type rig struct {
	t    *testing.T
	net  *memnet.Net
	conn wire.Conn
	rec  *Record

	mu    sync.Mutex
	log   bytes.Buffer
	got   []string
	wake  chan struct{}
	ended chan struct{}
}

// Write takes what is logged.
func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *rig) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// newRig connects to a handler; see serve for one that is served already.
func newRig(t *testing.T, h http.Handler, o Options) *rig {
	n := memnet.Listen()
	seats, closed := make(chan struct{}, 200), make(chan struct{}) // of the handlers that run
	t.Cleanup(func() {
		close(closed)
		for range cap(seats) {
			seats <- struct{}{}
		}
	})
	memnet.Run(t, n, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-closed:
			return
		case seats <- struct{}{}:
		}
		defer func() { <-seats }()
		h.ServeHTTP(w, r)
	})})
	return newRigOn(t, n, o)
}

func newRigOn(t *testing.T, n *memnet.Net, o Options) *rig {
	t.Helper()
	r := &rig{t: t, net: n, wake: make(chan struct{}, 1), ended: make(chan struct{}), rec: NewRecord()}
	if o.URL == "" {
		o.URL = "http://segno.test/mcp"
	}
	o.Dial, o.Trace, o.Logger = n.Dial, r.rec, slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if r.conn, err = s.Connect(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	go r.receive()
	t.Cleanup(func() {
		r.conn.Close()
		<-r.ended
		if t.Failed() {
			t.Logf("log:\n%s", r.logged())
		}
	})
	return r
}

func (r *rig) receive() {
	defer close(r.ended)
	for {
		msgs, err := r.conn.Recv(context.Background())
		if err != nil {
			return
		}
		r.mu.Lock()
		for i := range msgs {
			r.got = append(r.got, string(msgs[i].Raw))
		}
		r.mu.Unlock()
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

func (r *rig) send(format string, args ...any) {
	r.t.Helper()
	if err := r.conn.Send(r.t.Context(), fmt.Appendf(nil, format, args...)); err != nil {
		r.t.Fatal(err)
	}
}

// answers are all responses so far to an id, as JSON text.
func (r *rig) answers(id string) (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.got {
		m, bad := wire.Parse([]byte(text))
		if bad == nil && m.Kind >= wire.Result && string(m.IDText()) == id {
			list = append(list, text)
		}
	}
	return list
}

// answer waits for the response to an id.
func (r *rig) answer(id string) string {
	r.t.Helper()
	return r.within(time.Hour, id)
}

func (r *rig) within(d time.Duration, id string) string {
	r.t.Helper()
	late := time.After(d)
	for {
		if list := r.answers(id); len(list) > 0 {
			return list[0]
		}
		select {
		case <-r.wake:
		case <-late:
			r.t.Fatalf("no answer to %s within %v; got %s\nlog:\n%s", id, d, r.messages(), r.logged())
		}
	}
}

func (r *rig) messages() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.got...)
}

// count is how many messages of a method came.
func (r *rig) count(method string) int {
	n := 0
	for _, text := range r.messages() {
		if m, bad := wire.Parse([]byte(text)); bad == nil && m.Method == method {
			n++
		}
	}
	return n
}

func (r *rig) init() {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if got := r.answer(`"init"`); !strings.Contains(got, `"result"`) {
		r.t.Fatalf("initialize: %s", got)
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (r *rig) callTool(id string) {
	r.t.Helper()
	r.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"tool","arguments":{},"_meta":{"progressToken":%s}}}`, id, id)
}

func progress(token string, n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, n)
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in %s", p, text)
		}
	}
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, do func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, do)
}

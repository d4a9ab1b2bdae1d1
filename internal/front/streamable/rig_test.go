package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/memnet"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/sse"
	"github.com/segno-mcp/segno/internal/wire"
)

// rig is a front on a network in memory, before a server that the test plays.
type rig struct {
	t      *testing.T
	front  *Front
	man    *session.Manager
	net    *memnet.Net
	client *http.Client
	conns  chan wire.Conn
	logs   *logText
	log    eventlog.Log
	agent  string // User-Agent; empty: Go's
}

// logText is what was logged, as text.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines are those with all the parts.
func (l *logText) lines(parts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
lines:
	for line := range strings.Lines(l.b.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		found = append(found, line)
	}
	return found
}

func (r *rig) Connect(context.Context, string) (wire.Conn, error) {
	ours, theirs := wire.Pair()
	r.conns <- theirs
	return ours, nil
}

func (r *rig) Fingerprint() string { return "test" }

// setup changes what a rig is made of.
type setup struct {
	front  Options
	limits session.Limits
	meter  *counter // of both
	wrap   func(http.Handler) http.Handler
	net    *memnet.Net
	damage *atomic.Bool // while it is set, streams cannot be read
}

func newRig(t *testing.T, with setup) *rig {
	t.Helper()
	r := &rig{t: t, conns: make(chan wire.Conn, 16), logs: &logText{}, net: with.net, log: memlog.New()}
	if with.damage != nil {
		r.log = damaged{r.log, with.damage}
	}
	if with.meter == nil {
		with.meter = &counter{}
	}
	logger := slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	r.man, err = session.New(session.Options{Log: r.log, Upstream: r, Limits: with.limits, Logger: logger, Meter: with.meter, Instance: "test"})
	if err != nil {
		t.Fatal(err)
	}
	o := with.front
	o.Sessions, o.Logger = r.man, logger
	if o.Meter == nil {
		o.Meter = with.meter
	}
	if o.Who == nil {
		o.Who = func(q *http.Request) Who {
			if name := q.Header.Get("X-Principal"); name != "" {
				return Who{Principal: name}
			}
			return Who{Principal: "ann"}
		}
	}
	if r.front, err = New(o); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", r.front)
	mux.HandleFunc("/mcp/ack", r.front.ServeAck)
	var h http.Handler = mux
	if with.wrap != nil {
		h = with.wrap(h)
	}
	if r.net == nil {
		r.net = memnet.Listen()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.man.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := r.log.Close(); err != nil {
			t.Error(err)
		}
	})
	r.client = memnet.Run(t, r.net, &http.Server{Handler: h})
	return r
}

// request makes a POST, GET or DELETE with a client's usual headers.
func (r *rig) request(method, session, body string) *http.Request {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), method, "http://segno/mcp", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body == "" {
		q.Body = nil
	} else {
		q.Header.Set("Content-Type", "application/json")
	}
	q.Header.Set("Accept", "application/json, text/event-stream")
	if r.agent != "" {
		q.Header.Set("User-Agent", r.agent)
	}
	if session != "" {
		q.Header.Set("Mcp-Session-Id", session)
	}
	return q
}

func (r *rig) do(q *http.Request) *http.Response {
	r.t.Helper()
	res, err := r.client.Do(q)
	if err != nil {
		r.t.Fatalf("%s %s: %v", q.Method, q.URL, err)
	}
	r.t.Cleanup(func() { res.Body.Close() })
	return res
}

func (r *rig) post(session, format string, a ...any) *http.Response {
	r.t.Helper()
	return r.do(r.request("POST", session, fmt.Sprintf(format, a...)))
}

// resume is a GET with a cursor, or without one.
func (r *rig) resume(session, cursor string) *http.Response {
	r.t.Helper()
	q := r.request("GET", session, "")
	q.Header.Set("Accept", "text/event-stream")
	if cursor != "" {
		q.Header.Set("Last-Event-ID", cursor)
	}
	return r.do(q)
}

func initialize(version string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"init-1","method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, version)
}

// child is the server's end of one connection, played by the test.
type child struct {
	t    *testing.T
	conn wire.Conn
	rest []wire.Message
}

func played(t *testing.T, conn wire.Conn) *child { return &child{t: t, conn: conn} }

// open initializes a session at a revision.
func (r *rig) open(version string) (id string, c *child) {
	r.t.Helper()
	type answer struct {
		res *http.Response
		err error
	}
	done := make(chan answer, 1)
	go func() {
		res, err := r.client.Do(r.request("POST", "", initialize(version)))
		done <- answer{res, err}
	}()
	c = &child{t: r.t, conn: <-r.conns}
	m := c.recv()
	if m.Method != wire.Initialize {
		r.t.Fatalf("the server got %s first", m.Raw)
	}
	c.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`, m.IDText(), version)
	got := <-done
	if got.err != nil || got.res.StatusCode != http.StatusOK {
		r.t.Fatalf("initialize: %v %v", got.res, got.err)
	}
	defer got.res.Body.Close()
	body, err := io.ReadAll(got.res.Body)
	if err != nil || !strings.Contains(string(body), `"id":"init-1"`) {
		r.t.Fatalf("initialize was answered %q (%v)", body, err)
	}
	return got.res.Header.Get("Mcp-Session-Id"), c
}

func (c *child) recv() wire.Message {
	c.t.Helper()
	if len(c.rest) == 0 {
		msgs, err := c.conn.Recv(c.t.Context())
		if err != nil {
			c.t.Fatalf("the server's end: %v", err)
		}
		for _, m := range msgs {
			m.Raw = bytes.Clone(m.Raw)
			c.rest = append(c.rest, m)
		}
	}
	m := c.rest[0]
	c.rest = c.rest[1:]
	return m
}

func (c *child) send(format string, a ...any) {
	c.t.Helper()
	if err := c.conn.Send(c.t.Context(), fmt.Appendf(nil, format, a...)); err != nil {
		c.t.Fatal(err)
	}
}

// progress reports on the request, by its token.
func (c *child) progress(m *wire.Message, n int) {
	c.t.Helper()
	at, err := m.Find("params", "_meta", "progressToken")
	if err != nil || !at.Ok() {
		c.t.Fatalf("no token in %s", m.Raw)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.Text(at), n)
}

func (c *child) answer(m *wire.Message, result string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.IDText(), result)
}

const callTool = `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":"p"}}}`

// stream reads the events of an answer.
type stream struct {
	t    *testing.T
	res  *http.Response
	read *sse.Reader
}

func (r *rig) stream(res *http.Response) *stream {
	r.t.Helper()
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(res.Body)
		r.t.Fatalf("not a stream: %s, %q, %s", res.Status, res.Header.Get("Content-Type"), body)
	}
	return &stream{t: r.t, res: res, read: sse.NewReader(res.Body)}
}

func (s *stream) next() sse.Event {
	s.t.Helper()
	e, err := s.read.Next()
	if err != nil {
		s.t.Fatalf("reading the stream: %v", err)
	}
	e.Data = bytes.Clone(e.Data)
	return e
}

// rest reads to the end, which must be a clean one.
func (s *stream) rest() (events []sse.Event) {
	s.t.Helper()
	for {
		e, err := s.read.Next()
		if err == io.EOF {
			return events
		}
		if err != nil {
			s.t.Fatalf("reading the stream: %v after %d events", err, len(events))
		}
		e.Data = bytes.Clone(e.Data)
		events = append(events, e)
	}
}

// body is the whole text of an answer.
func text(t *testing.T, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// counter is a meter that counts by metric and label.
type counter struct{ sums sync.Map }

func (c *counter) Add(m metric.Name, label string, n float64) {
	sum, _ := c.sums.LoadOrStore(string(m)+" "+label, new(atomic.Int64))
	sum.(*atomic.Int64).Add(int64(n))
}

func (*counter) Observe(metric.Name, string, float64) {}

func (c *counter) of(m metric.Name, label string) int64 {
	sum, ok := c.sums.Load(string(m) + " " + label)
	if !ok {
		return 0
	}
	return sum.(*atomic.Int64).Load()
}

// panicky is a meter that panics once, when the count is one.
type panicky struct{ calls *int }

func (p panicky) Add(m metric.Name, _ string, _ float64) {
	if m == metric.MessagesIn && *p.calls == 1 {
		*p.calls = 2
		panic("as the test wants it")
	}
}
func (panicky) Observe(metric.Name, string, float64) {}

// damaged is a log whose streams cannot be read at times.
type damaged struct {
	eventlog.Log
	now *atomic.Bool
}

var errDamaged = errors.New("the checksum is wrong")

func (d damaged) Stat(ctx context.Context, k eventlog.Key) (eventlog.Info, error) {
	if d.now.Load() {
		return eventlog.Info{}, errDamaged
	}
	return d.Log.Stat(ctx, k)
}

func (d damaged) Read(ctx context.Context, k eventlog.Key, after uint64, max int) (eventlog.Page, error) {
	if d.now.Load() {
		return eventlog.Page{}, errDamaged
	}
	return d.Log.Read(ctx, k, after, max)
}

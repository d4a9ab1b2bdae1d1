package session

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// patience is how long a test waits for what must come, in virtual time mostly.
const patience = 2 * time.Hour

// server is the other end of one child, driven by the test.
type server struct {
	t    *testing.T
	c    wire.Conn
	next []wire.Message // received, not yet looked at
}

// dialer hands out connections whose other end the test plays.
type dialer struct {
	conns chan wire.Conn
	fail  atomic.Pointer[wire.Gone]
	dials atomic.Int64
	hang  atomic.Bool
	gate  atomic.Pointer[chan struct{}] // while set, nothing is sent before it closes
	only  string                        // the gate is for messages with this text
}

// gated is a connection that the dialer's gate holds up.
type gated struct {
	wire.Conn
	d *dialer
}

func (g gated) Send(ctx context.Context, msg []byte) error {
	if gate := g.d.gate.Load(); gate != nil && strings.Contains(string(msg), g.d.only) {
		<-*gate
	}
	return g.Conn.Send(ctx, msg)
}

func (d *dialer) Connect(ctx context.Context, _ string) (wire.Conn, error) {
	d.dials.Add(1)
	if d.hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if gone := d.fail.Load(); gone != nil {
		return nil, gone
	}
	ours, theirs := wire.Pair()
	d.conns <- theirs
	return gated{ours, d}, nil
}

func (d *dialer) Fingerprint() string { return "test" }

func (s *server) recv() wire.Message {
	s.t.Helper()
	if len(s.next) == 0 {
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		defer cancel()
		s.fill(ctx)
	}
	if len(s.next) == 0 {
		s.t.Fatal("the server was sent nothing more")
	}
	m := s.next[0]
	s.next = s.next[1:]
	return m
}

func (s *server) fill(ctx context.Context) {
	msgs, _ := s.c.Recv(ctx)
	for _, m := range msgs {
		m.Raw = append([]byte(nil), m.Raw...)
		s.next = append(s.next, m)
	}
}

// pending is what the server was sent and has not received, by now.
func (s *server) pending() (got []string) {
	s.t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Nanosecond)
	defer cancel()
	s.fill(ctx)
	for _, m := range s.next {
		got = append(got, string(m.Raw))
	}
	s.next = nil
	return got
}

func (s *server) send(format string, a ...any) {
	s.t.Helper()
	if err := s.c.Send(s.t.Context(), fmt.Appendf(nil, format, a...)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) progress(to wire.Message, n int) {
	s.t.Helper()
	s.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, to.IDText(), n)
}

func (s *server) answer(to wire.Message, result string) {
	s.t.Helper()
	s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, to.IDText(), result)
}

func message(t testing.TB, format string, a ...any) *wire.Message {
	t.Helper()
	m, err := wire.Parse(fmt.Appendf(nil, format, a...))
	if err != nil {
		t.Fatal(err)
	}
	return &m
}

type bench struct {
	t *testing.T
	m *Manager
	d *dialer
}

func newBench(t *testing.T, o Options) *bench {
	t.Helper()
	d := &dialer{conns: make(chan wire.Conn, 10000)}
	o.Upstream = d
	if o.Log == nil {
		o.Log = memlog.New()
	}
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, m, d}
	t.Cleanup(b.close)
	return b
}

func (b *bench) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.m.Close(ctx); err != nil {
		b.t.Error(err)
	}
}

// server is the next child that was started.
func (b *bench) server() *server {
	b.t.Helper()
	select {
	case c := <-b.d.conns:
		return &server{t: b.t, c: c}
	case <-time.After(time.Minute):
		b.t.Fatal("no child was started")
		return nil
	}
}

const initText = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func (b *bench) create(principal string) (*Session, *Call) {
	b.t.Helper()
	s, c, err := b.m.Create(b.t.Context(), principal, message(b.t, initText), ClientInfo{})
	if err != nil {
		b.t.Fatal(err)
	}
	return s, c
}

// greet answers initialize as the server does.
func (s *server) greet() {
	s.t.Helper()
	m := s.recv()
	if m.Method != wire.Initialize {
		s.t.Fatalf("the server got %s before initialize", m.Raw)
	}
	s.answer(m, `{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"s","version":"1"}}`)
}

func (b *bench) open() (*Session, *server) { return b.openAs("anon") }

func (b *bench) openAs(principal string) (*Session, *server) {
	b.t.Helper()
	s, c := b.create(principal)
	srv := b.server()
	srv.greet()
	if got := b.answers(s, c); len(got) != 1 || !strings.Contains(got[0], `"id":0`) {
		b.t.Fatalf("initialize was answered with %q", got)
	}
	return s, srv
}

func (b *bench) call(s *Session, format string, a ...any) *Call {
	b.t.Helper()
	c, err := s.Call(b.t.Context(), message(b.t, format, a...), CallOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// tool calls a tool with a progress token that is the id.
func (b *bench) tool(s *Session, id string) *Call {
	b.t.Helper()
	return b.call(s, `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":%s}}}`, id, id)
}

func (b *bench) deliver(s *Session, format string, a ...any) {
	b.t.Helper()
	if err := s.Deliver(b.t.Context(), message(b.t, format, a...)); err != nil {
		b.t.Fatal(err)
	}
}

// answers reads a call's stream to its end.
func (b *bench) answers(s *Session, c *Call) []string {
	b.t.Helper()
	r := s.AttachCall(c, Oldest)
	defer r.Close()
	return collect(b.t, r)
}

// collect reads a stream to its end.
func collect(t testing.TB, r *Reader) []string {
	t.Helper()
	var got []string
	for {
		d, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.took(d)...)
		switch {
		case d.Ended:
			return got
		case d.Wait, d.Spare:
			select {
			case <-r.C():
			case <-time.After(patience):
				t.Fatalf("nothing came for %v after %q", patience, got)
			}
		case d.Retired:
			t.Fatal("the connection was retired")
		}
	}
}

// took is what the client sees of a delivery.
func (r *Reader) took(d Delivery) (got []string) {
	if d.Notice != nil {
		got = append(got, string(d.Notice))
	}
	for _, e := range d.Events {
		got = append(got, string(e.Data))
		r.Sent(e.Seq, true)
	}
	return got
}

// now reads what is there at the moment, and how it stands then.
func now(t *testing.T, r *Reader) (got []string, last Delivery) {
	t.Helper()
	for {
		synctest.Wait()
		d, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.took(d)...)
		if d.Wait || d.Ended || d.Spare || d.Retired {
			return got, d
		}
	}
}

// cursor is the event id of a place in a stream.
func (b *bench) cursor(s *Session, stream string, place uint64) string {
	b.t.Helper()
	return idAt(b.stat(s, stream), stream, place, "")
}

func (b *bench) stat(s *Session, stream string) eventlog.Info {
	b.t.Helper()
	info, err := b.m.log.Stat(b.t.Context(), eventlog.Key{Session: s.name, Stream: stream})
	if err != nil {
		b.t.Fatal(err)
	}
	return info
}

func (b *bench) resume(s *Session, cursor string, p Policy) *Resumption {
	b.t.Helper()
	r, err := s.Resume(b.t.Context(), cursor, p)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func contains(t *testing.T, got string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(got, w) {
			t.Errorf("%q is not in %s", w, got)
		}
	}
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// flaky is a log that takes nothing while it is away.
type flaky struct {
	eventlog.Log
	away atomic.Bool
}

func (f *flaky) Append(ctx context.Context, a eventlog.Append) error {
	if f.away.Load() {
		return fmt.Errorf("%w: in this test", eventlog.ErrUnavailable)
	}
	return f.Log.Append(ctx, a)
}

func (f *flaky) Drop(ctx context.Context, k eventlog.Key, fence uint64, memo []byte) error {
	if f.away.Load() {
		return fmt.Errorf("%w: in this test", eventlog.ErrUnavailable)
	}
	return f.Log.Drop(ctx, k, fence, memo)
}

// tally counts what is reported.
type tally struct {
	sums   [64]atomic.Int64
	keys   map[metric.Name]int
	labels sync.Map
}

func newTally() *tally {
	c := &tally{keys: map[metric.Name]int{}}
	for _, m := range []metric.Name{metric.SessionsOpen, metric.StreamsOpen, metric.ChildrenRunning, metric.RetainedEvents, metric.Dropped, metric.Outcomes, metric.EvictedEvents, metric.Refused, metric.Gaps, metric.ForeignResumes} {
		c.keys[m] = len(c.keys) + 1
	}
	return c
}

func (c *tally) Add(m metric.Name, label string, n float64) {
	c.sums[c.keys[m]].Add(int64(n))
	sum, _ := c.labels.LoadOrStore(string(m)+label, new(atomic.Int64))
	sum.(*atomic.Int64).Add(int64(n))
}

func (*tally) Observe(metric.Name, string, float64) {}

func (c *tally) of(m metric.Name) int64 { return c.sums[c.keys[m]].Load() }

func (c *tally) labelled(m metric.Name, label string) int64 {
	sum, ok := c.labels.Load(string(m) + label)
	if !ok {
		return 0
	}
	return sum.(*atomic.Int64).Load()
}

// held is a log whose appends wait for a verdict while it has a gate.
type held struct {
	eventlog.Log
	gate atomic.Pointer[chan error]
}

func (h *held) Append(ctx context.Context, a eventlog.Append) error {
	if gate := h.gate.Load(); gate != nil {
		if err := <-*gate; err != nil {
			return err
		}
	}
	return h.Log.Append(ctx, a)
}

// slowLister is a log whose lists of streams wait while it has a gate.
type slowLister struct {
	eventlog.Log
	gate atomic.Pointer[chan struct{}]
}

func (l *slowLister) Streams(ctx context.Context, session, after string, max int) ([]string, error) {
	if gate := l.gate.Load(); gate != nil {
		<-*gate
	}
	return l.Log.Streams(ctx, session, after, max)
}

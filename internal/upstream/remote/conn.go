package remote

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// conn is a connection to the server, whatever becomes of the HTTP connections
// below it. It ends by Close alone: a server that forgot the session is asked
// for a new one.
//
// Each message that is sent has a goroutine, which for a request lives until it
// is answered. Each decides by what it saw itself, so there is no event that
// has to reach all of them.
type conn struct {
	o     *Options
	link  *link
	gate  *gate
	pulse pulse
	tools hints
	log   *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	out    wire.Conn // what the caller receives
	in     wire.Conn // the other end of that

	mu      sync.Mutex
	closed  bool
	life    *life
	made    int    // lives so far
	first   []byte // the client's initialize
	greeted bool   // it said that it is initialized
	setting settings
	pinged  bool // a ping is on its way: one is enough
	pending map[*request]struct{}
	before  <-chan struct{} // closed when what was sent last lets the next go
}

func newConn(s *Server, label string) *conn {
	log := s.o.Logger
	if label != "" {
		log = log.With("session", label)
	}
	c := &conn{
		o: &s.o, link: newLink(s), gate: newGate(log), log: log,
		pending: map[*request]struct{}{}, setting: settings{subscribed: map[string][]byte{}},
	}
	c.pulse.fixed = s.o.Heartbeat
	c.out, c.in = wire.Pair()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	gone := make(chan struct{})
	close(gone)
	c.before = gone
	return c
}

// run starts a goroutine that Close waits for.
func (c *conn) run(do func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(do)
	return true
}

// Recv waits for messages of the server, and for answers given in its place.
func (c *conn) Recv(ctx context.Context) ([]wire.Message, error) { return c.out.Recv(ctx) }

// deliver hands a message to the caller of Recv, who may be slow.
func (c *conn) deliver(raw []byte) {
	if err := c.in.Send(c.ctx, raw); err != nil && c.ctx.Err() == nil {
		c.log.Warn("a message was dropped", "error", err)
	}
}

// Send takes a message. It returns at once; what becomes of it is told by the
// answer that each request gets.
func (c *conn) Send(_ context.Context, msg []byte) error {
	m, bad := wire.Parse(bytes.Clone(msg))
	if bad != nil {
		return bad
	}
	switch {
	case m.Kind == wire.Request && m.Method == wire.Discover:
		// Streams of 2026-07-28 cannot be resumed. Answered so, a client that
		// speaks both goes on with initialize.
		return c.put(wire.AppendError(nil, m.IDText(), wire.CodeNoMethod, "method not found: "+wire.Discover, nil))
	case m.Kind == wire.Request && m.Method == wire.Ping:
		return c.ping(&m)
	case m.Kind == wire.Request:
		return c.request(&m, false)
	case m.Kind == wire.Notification && m.Method == wire.Cancelled:
		return c.cancelled(&m)
	case m.Kind == wire.Notification:
		return c.notification(&m)
	}
	return c.response(&m)
}

// ping is answered here, so that a client does not take an outage of the server
// for the end of this process. The server gets it too: it is a sign of life.
func (c *conn) ping(m *wire.Message) error {
	if err := c.put(wire.AppendResponse(nil, m.IDText(), []byte("{}"))); err != nil {
		return err
	}
	c.mu.Lock()
	alive := c.life != nil && !c.pinged
	c.pinged = c.pinged || alive
	c.mu.Unlock()
	if !alive {
		return nil
	}
	own, _ := wire.Parse(wire.AppendRequest(nil, []byte(`"segno-ping"`), wire.Ping, nil))
	return c.request(&own, true)
}

// put is deliver for callers that must not wait.
func (c *conn) put(raw []byte) error {
	if !c.run(func() { c.deliver(raw) }) {
		return errClosed
	}
	return nil
}

var errClosed = &wire.Gone{Reason: "closed here"}

// line is a message's place behind the one sent before it.
type line struct {
	before <-chan struct{}
	pass   func() // lets the next one go; may be called again
}

// queue takes the next place. Messages leave in the order they were sent in, as
// far as HTTP allows: a request when the one before was written, and after a
// notification when that was answered. c.mu is held.
func (c *conn) queue() line {
	done := make(chan struct{})
	l := line{before: c.before, pass: sync.OnceFunc(func() { close(done) })}
	c.before = done
	return l
}

func (l line) wait(ctx context.Context) bool {
	select {
	case <-l.before:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// closeTime bounds how long the server is waited for at the end.
const closeTime = 2 * time.Second

// Close ends the session at the server, and everything here. Requests that are
// not answered stay so: nobody is left to read answers.
func (c *conn) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	l := c.life
	c.mu.Unlock()
	c.out.Close()
	if first && l != nil {
		c.end(l)
	}
	c.cancel()
	c.work.Wait()
	c.link.trans.CloseIdleConnections()
	return nil
}

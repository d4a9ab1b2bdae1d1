package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// request is one request until its answer. Its goroutine owns what no lock
// guards.
type request struct {
	line   line
	id     []byte // as the client wrote it
	raw    []byte // as it is sent
	wireID []byte // its id there: another one after a reissue
	method string
	tool   string
	uri    string // of a subscription
	init   bool
	hidden bool // Segno's own: nobody waits for the answer

	ctx    context.Context
	cancel context.CancelFunc
	alive  time.Time // last sign of life of the server for it
	life   *life     // that it was last sent in
	key    string    // under which a Segno runs it once only
	back   pace      // between attempts to send it
	failed int       // the life of which it waited for the handshake
	moved  int       // sessions it was sent in that turned out to be gone
	again  int       // times it was made again after a gap
	maybe  bool      // the server may have carried it out in an attempt before
	why    error     // the last trouble

	// The connection's lock guards these.
	sent bool // the server may have it
	done bool // answered, or given up by the client
	over chan struct{}
}

func (r *request) begin(ctx context.Context) {
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.over = make(chan struct{})
}

// request takes one from the client.
func (c *conn) request(m *wire.Message, hidden bool) error {
	r := &request{
		id: m.IDText(), wireID: m.IDText(), raw: m.Raw, method: m.Method,
		init: m.Method == wire.Initialize, hidden: hidden, alive: time.Now(),
	}
	switch m.Method {
	case wire.ToolsCall:
		r.tool = m.StringAt("params", "name")
		r.key = rand.Text()
	case wire.Subscribe, wire.Unsubscribe:
		r.uri = m.StringAt("params", "uri")
	}
	r.begin(c.ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		r.cancel()
		return errClosed
	}
	if r.init {
		c.begins(r, m)
	}
	r.line = c.queue()
	c.pending[r] = struct{}{}
	c.work.Go(func() {
		if r.line.wait(r.ctx) {
			c.carry(r)
		}
		r.line.pass()
	})
	return nil
}

// begins makes the life that the client's initialize opens. c.mu is held.
func (c *conn) begins(r *request, m *wire.Message) {
	if old := c.life; old != nil {
		old.end()
		c.work.Go(func() { c.end(old) })
	}
	c.first, c.greeted = m.Raw, false
	c.setting = settings{subscribed: map[string][]byte{}}
	r.life = c.newLife()
}

// settle ends a request with its one answer, or without one if m is nil. Only
// the first to come does it.
func (c *conn) settle(r *request, m *wire.Message) bool {
	c.mu.Lock()
	if r.done {
		c.mu.Unlock()
		return false
	}
	r.done = true
	delete(c.pending, r)
	if r.hidden && r.method == wire.Ping {
		c.pinged = false
	}
	c.mu.Unlock()
	defer close(r.over)
	if m == nil {
		return true
	}
	if r.init {
		c.opened(r.life, m)
	}
	if m.Kind == wire.Result {
		c.learn(r, m)
	}
	if !r.hidden {
		c.deliver(wire.AppendSplice(nil, m.Raw, wire.Edit{Span: m.ID, With: r.id}))
	}
	return true
}

// fail ends a request with an error of our own.
func (c *conn) fail(r *request, raw []byte) {
	m, _ := wire.Parse(raw)
	level := slog.LevelWarn
	if r.hidden {
		level = slog.LevelDebug
	}
	if c.settle(r, &m) {
		c.log.Log(c.ctx, level, "a request ended without an answer of the server", "request", string(r.id), "method", r.method, "error", m.StringAt("error", "message"))
	}
}

// notExecuted ends a request that the server certainly did not carry out.
func (c *conn) notExecuted(r *request, why error) {
	c.fail(r, outcome(r.wireID, "not executed", why.Error(), nil))
}

// ends ends a request that is not sent any more.
func (c *conn) ends(r *request, why error) {
	if r.maybe && !harmless[r.method] {
		c.unknown(r, why)
		return
	}
	c.notExecuted(r, why)
}

// unknown ends a request of which nobody knows what became.
func (c *conn) unknown(r *request, why error) {
	c.fail(r, outcome(r.wireID, "unknown", why.Error(), nil))
}

// outcome is the error that says how a request ended that has no answer; data
// is more members for the error's data.
func outcome(id []byte, how, why string, data []byte) []byte {
	d := wire.AppendQuoted([]byte(`{"outcome":`), how)
	d = wire.AppendQuoted(append(d, `,"reason":`...), why)
	d = append(append(d, data...), '}')
	text := how + ": " + why
	if how == "unknown" {
		text = "outcome " + text
	}
	return wire.AppendError(nil, id, wire.CodeInternal, text, d)
}

// learn takes from an answer what may be needed later.
func (c *conn) learn(r *request, m *wire.Message) {
	if r.method == wire.ToolsList && c.o.ReplaySafe {
		c.tools.learn(m)
	}
	if r.hidden {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.method {
	case wire.Initialize:
		c.setting.promise(m)
	case wire.SetLevel:
		c.setting.level = r.raw
	case wire.Subscribe:
		c.setting.subscribed[r.uri] = r.raw
	case wire.Unsubscribe:
		delete(c.setting.subscribed, r.uri)
	}
}

// withWireID finds the request that an answer is for. Servers that write a
// number as a string, or the other way round, are understood.
func (c *conn) withWireID(id []byte, l *life) *request {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.pending {
		if r.life == l && sameID(r.wireID, id) {
			return r
		}
	}
	return nil
}

func sameID(a, b []byte) bool {
	if string(a) == string(b) {
		return true
	}
	n, ok := wire.IntID(a)
	m, also := wire.IntID(b)
	return ok && also && n == m
}

// cancelled: the client gives a request up. What was not sent yet is not sent
// any more.
func (c *conn) cancelled(m *wire.Message) error {
	at, err := m.Find("params", "requestId")
	if err != nil || !at.Ok() {
		return c.notification(m)
	}
	c.mu.Lock()
	var r *request
	for p := range c.pending {
		if sameID(p.id, m.Text(at)) && !p.init && !p.hidden {
			r = p
		}
	}
	if r == nil || c.closed {
		c.mu.Unlock()
		return nil
	}
	q := c.queue()
	c.work.Go(func() {
		defer q.pass()
		defer r.cancel()
		if !q.wait(c.ctx) {
			return
		}
		c.mu.Lock()
		sent, l := r.sent, r.life
		id := r.wireID
		c.mu.Unlock()
		if sent {
			c.tell(c.ctx, l, wire.AppendSplice(nil, m.Raw, wire.Edit{Span: at, With: id}))
		}
	})
	c.mu.Unlock()
	c.settle(r, nil)
	return nil
}

// notification sends one of the client.
func (c *conn) notification(m *wire.Message) error {
	return c.send(func(ctx context.Context) {
		l, err := c.usable(ctx, &request{})
		if err != nil {
			return
		}
		if c.tell(ctx, l, m.Raw) && m.Method == wire.Initialized && l != nil {
			c.mu.Lock()
			c.greeted = true
			c.mu.Unlock()
			c.listen(l)
		}
	})
}

// response sends the client's answer to a request of the server, unless the
// server that asked is gone.
func (c *conn) response(m *wire.Message) error {
	return c.send(func(ctx context.Context) {
		l, err := c.usable(ctx, &request{})
		if err != nil || l == nil {
			return
		}
		c.mu.Lock()
		asked := l.asks[string(m.IDText())]
		delete(l.asks, string(m.IDText()))
		c.mu.Unlock()
		if asked {
			c.tell(ctx, l, m.Raw)
		}
	})
}

// noteTime is how long what follows a notification is held back for it.
const noteTime = 5 * time.Second

// send queues what is no request.
func (c *conn) send(do func(context.Context)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	q := c.queue()
	c.work.Go(func() {
		defer q.pass()
		if q.wait(c.ctx) {
			late := time.AfterFunc(noteTime, q.pass)
			defer late.Stop()
			do(c.ctx)
		}
	})
	return nil
}

// reissued makes the request a new one to the server.
func (c *conn) reissued(r *request) error {
	r.again++
	r.maybe = false
	m, bad := wire.Parse(r.raw)
	if bad != nil {
		return bad
	}
	id := []byte(fmt.Sprintf(`"segno-again-%d-%s"`, r.again, rand.Text()[:8]))
	c.mu.Lock()
	defer c.mu.Unlock()
	r.raw = wire.AppendSplice(nil, r.raw, wire.Edit{Span: m.ID, With: id})
	r.wireID, r.key, r.sent = id, rand.Text(), false
	return nil
}

var errNoAnswer = errors.New("the server ended the answer without a response")

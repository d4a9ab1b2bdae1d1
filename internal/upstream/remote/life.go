package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// life is one session at the server, from initialize until it is forgotten.
// Its fields up to asks do not change once up is closed.
type life struct {
	n       int
	up      chan struct{} // closed when initialize was answered, or never will be
	err     error         // why it failed
	id      string        // Mcp-Session-Id, if the server has sessions
	version string        // negotiated
	segno   bool          // the server is a Segno
	logging bool
	own     context.Context // of the session's own stream
	end     context.CancelFunc
	door    *door // not nil: the server speaks 2024-11-05

	// The connection's lock guards these.
	asks      map[string]bool // the server's requests that wait for the client
	listening bool
	noStream  bool // the server has no stream of the session's own
}

// settings are what the client set, to be set again in a new session.
type settings struct {
	level      []byte            // logging/setLevel
	subscribed map[string][]byte // resources/subscribe, by uri
	promised   []string          // list_changed notifications it counts on
}

// newLife makes the next life the current one. c.mu is held.
func (c *conn) newLife() *life {
	c.made++
	l := &life{n: c.made, up: make(chan struct{}), asks: map[string]bool{}}
	l.own, l.end = context.WithCancel(c.ctx)
	c.life = l
	return l
}

// usable is the life that a request is to be sent in; nil before initialize. It
// waits for one that is being made, and makes one if the last attempt failed.
func (c *conn) usable(ctx context.Context, r *request) (*life, error) {
	if r.life != nil && r.init {
		return r.life, nil
	}
	for {
		c.mu.Lock()
		l := c.life
		c.mu.Unlock()
		if l == nil {
			return nil, nil
		}
		select {
		case <-l.up:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if l.err == nil {
			return l, nil
		}
		if r.failed == l.n || !c.reopenable() {
			return nil, l.err
		}
		r.failed = c.lost(l, l.err.Error())
	}
}

// reopenable tells whether there is an initialize to repeat.
func (c *conn) reopenable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first != nil
}

// lost is called by everybody who sees that the session is no more. The first
// one makes the next life; the number of the current one is returned.
func (c *conn) lost(l *life, why string) int {
	c.mu.Lock()
	if c.life != l || c.closed {
		defer c.mu.Unlock()
		if c.life == nil {
			return 0
		}
		return c.life.n
	}
	asks := l.asks
	l.asks = nil
	next := c.newLife()
	c.work.Go(func() { c.reopen(next) })
	c.mu.Unlock()
	l.end()
	if l.err == nil {
		c.log.Warn("the server ended the session: a new one is opened", "reason", why)
	}
	for id := range asks {
		c.deliver(wire.AppendNotification(nil, wire.Cancelled, []byte(`{"requestId":`+id+`,"reason":"the server's session is gone"}`)))
	}
	return next.n
}

// reopen repeats the handshake, and what the client set since.
func (c *conn) reopen(l *life) {
	c.mu.Lock()
	first, _ := wire.Parse(c.first)
	id := []byte(`"segno-init-` + strconv.Itoa(l.n) + `"`)
	r := &request{
		id: id, wireID: id, raw: wire.AppendSplice(nil, first.Raw, wire.Edit{Span: first.ID, With: id}),
		method: wire.Initialize, init: true, hidden: true, life: l, alive: time.Now(), line: line{pass: func() {}},
	}
	r.begin(c.ctx)
	c.pending[r] = struct{}{}
	c.mu.Unlock()
	c.carry(r)
	select {
	case <-l.up:
	default:
		c.failLife(l, errors.New("initialize was not answered"))
	}
	if l.err != nil {
		return
	}
	c.log.Info("a new session is open")
	c.restore(l)
	c.changed()
}

// restore tells the server what the client told the one before.
func (c *conn) restore(l *life) {
	c.mu.Lock()
	greeted, level := c.greeted, c.setting.level
	sets := [][]byte{}
	if level != nil {
		sets = append(sets, level)
	}
	for _, raw := range c.setting.subscribed {
		sets = append(sets, raw)
	}
	c.mu.Unlock()
	if !greeted {
		return
	}
	c.tell(c.ctx, l, wire.AppendNotification(nil, wire.Initialized, nil))
	c.listen(l)
	for n, raw := range sets {
		m, _ := wire.Parse(raw)
		id := []byte(`"segno-set-` + strconv.Itoa(l.n) + "-" + strconv.Itoa(n) + `"`)
		r := &request{
			id: id, wireID: id, raw: wire.AppendSplice(nil, m.Raw, wire.Edit{Span: m.ID, With: id}),
			method: m.Method, hidden: true, alive: time.Now(), line: line{pass: func() {}},
		}
		r.begin(c.ctx)
		c.mu.Lock()
		c.pending[r] = struct{}{}
		c.mu.Unlock()
		c.carry(r)
	}
}

// changed tells the client that the lists it has are those of a server that is
// gone, if it was promised to be told.
func (c *conn) changed() {
	c.mu.Lock()
	kinds := c.setting.promised
	c.mu.Unlock()
	for _, method := range kinds {
		c.deliver(wire.AppendNotification(nil, method, nil))
	}
}

// failLife ends an attempt to open a session.
func (c *conn) failLife(l *life, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-l.up:
	default:
		l.err = err
		close(l.up)
	}
}

// opened takes note of what initialize was answered with.
func (c *conn) opened(l *life, m *wire.Message) {
	if m.Kind != wire.Result {
		c.failLife(l, fmt.Errorf("the server refused initialize: %s", m.StringAt("error", "message")))
		return
	}
	version := m.StringAt("result", "protocolVersion")
	segno, _ := m.Find("result", "capabilities", "experimental", "segno")
	logging, _ := m.Find("result", "capabilities", "logging")
	if segno.Ok() {
		c.pulse.assume(segnoBeat)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-l.up:
	default:
		l.version, l.segno, l.logging = version, segno.Ok(), logging.Ok()
		close(l.up)
	}
}

// end deletes the session (MCP 2025-11-25, Transports, Session Management). A
// server that does not let clients do that answers 405, which is as well.
func (c *conn) end(l *life) {
	select {
	case <-l.up:
	default:
		return
	}
	if l.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, closeTime)
	defer cancel()
	h := http.Header{}
	l.head(h)
	resp, _, err := c.link.do(ctx, http.MethodDelete, c.link.endpoint(), h, nil)
	if err != nil {
		c.log.Debug("ending the session at the server", "error", err)
		return
	}
	io.CopyN(io.Discard, resp.Body, 4<<10)
	resp.Body.Close()
}

// head names the session in a request's headers.
func (l *life) head(h http.Header) {
	if l == nil {
		return
	}
	if l.id != "" {
		h.Set("Mcp-Session-Id", l.id)
	}
	if wire.AtLeast(l.version, wire.Rev2025June) {
		h.Set("Mcp-Protocol-Version", l.version)
	}
}

package remote

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// carry sends a request until it is answered.
func (c *conn) carry(r *request) {
	defer r.cancel()
	for c.attempt(r) {
	}
}

// attempt sends a request once. true: it is to be sent again.
func (c *conn) attempt(r *request) bool {
	l, err := c.usable(r.ctx, r)
	if r.ctx.Err() != nil {
		return false
	}
	if err == nil && r.maybe && r.life != l && !c.safeTwice(r) {
		err = fmt.Errorf("the server's session ended: %w", r.why)
	}
	if err != nil {
		c.ends(r, err)
		return false
	}
	epoch, err := c.gate.wait(r.ctx, r.alive.Add(c.o.GiveUp))
	if err != nil || !c.sending(r, l) {
		c.abandon(r, err)
		return false
	}
	in := l
	if r.init {
		in = nil // it opens a session, whatever an attempt before was told
	}
	p := c.post(r.ctx, c.where(l), in, r.raw, r.key, r.line.pass)
	r.line.pass()
	if r.ctx.Err() != nil && p.verdict != streams && p.verdict != whole {
		return false
	}
	switch p.verdict {
	case unsent:
		r.why = p.why
		c.notSent(r)
		c.gate.failed(epoch, p.after, p.why)
		return true
	case unclear:
		r.why, r.maybe = p.why, true
		c.gate.failed(epoch, p.after, p.why)
		return c.again(r, l)
	}
	if p.resp != nil {
		c.gate.passed(epoch)
	}
	switch p.verdict {
	case noSession:
		return c.moves(r, l, p.why)
	case refused:
		c.notSent(r)
		if r.init && old(p) {
			return c.openOld(r, l, p)
		}
		c.refuse(r, p)
	case streams, whole, taken:
		return c.reads(r, l, p)
	case broken:
		c.refuse(r, p)
	}
	return false
}

// reads finds the answer to a request that the server took.
func (c *conn) reads(r *request, l *life, p reply) bool {
	if !r.init {
		c.listen(l)
	}
	switch {
	case l != nil && l.door != nil:
		return c.awaitOld(r, l, p)
	case p.verdict == whole:
		return c.readWhole(r, l, p)
	case p.verdict == streams:
		return c.readStream(r, l, p)
	}
	c.refuse(r, p)
	return false
}

// sending marks that the server may have the request from now on; false if the
// client has given it up.
func (c *conn) sending(r *request, l *life) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.done {
		return false
	}
	r.sent, r.life = true, l
	return true
}

func (c *conn) notSent(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.sent = false
}

// abandon ends a request that is not sent any more.
func (c *conn) abandon(r *request, err error) {
	if !errors.Is(err, errGaveUp) {
		return
	}
	if r.why != nil {
		err = fmt.Errorf("%w, %v: %w", err, c.o.GiveUp, r.why)
	}
	c.ends(r, err)
}

// again tells whether a request is to be sent again of which nobody knows
// whether the server has it. If not, its answer is that.
func (c *conn) again(r *request, l *life) bool {
	if !c.repeatable(r, l) {
		c.unknown(r, r.why)
		return false
	}
	if time.Since(r.alive) > c.o.GiveUp {
		c.abandon(r, errGaveUp)
		return false
	}
	return sleep(r.ctx, r.back.next())
}

// moves sends a request in a new session, as the one it was sent in is unknown
// to the server, which therefore did not execute it.
func (c *conn) moves(r *request, l *life, why error) bool {
	c.notSent(r)
	if r.moved++; r.moved > 2 {
		c.ends(r, fmt.Errorf("the server forgets its sessions: %w", why))
		return false
	}
	c.lost(l, why.Error())
	return true
}

// refuse hands on what the server said.
func (c *conn) refuse(r *request, p reply) {
	if m, bad := wire.Parse(p.answer); bad == nil && (!m.ID.Ok() || sameID(m.IDText(), r.wireID)) {
		if m.ID.Ok() {
			c.settle(r, &m)
			return
		}
	}
	r.maybe = r.maybe || p.verdict != refused
	c.ends(r, p.why)
}

// readWhole reads an answer in JSON: a response, or an array with it in it
// (2025-03-26).
func (c *conn) readWhole(r *request, l *life, p reply) bool {
	defer p.cancel()
	defer p.resp.Body.Close()
	c.hasSession(r, p)
	text, err := io.ReadAll(io.LimitReader(p.resp.Body, int64(c.o.MaxMessage)+1))
	if err != nil {
		r.why, r.maybe = brokenBy(err), true
		return c.again(r, l)
	}
	if len(text) > c.o.MaxMessage {
		c.unknown(r, fmt.Errorf("the answer is longer than %d bytes", c.o.MaxMessage))
		return false
	}
	s := c.newStream(l, r)
	s.messages(text, "")
	if !c.isDone(r) {
		c.unknown(r, errNoAnswer)
	}
	return false
}

// readStream reads an answer that is a stream, over as many connections as it
// takes.
func (c *conn) readStream(r *request, l *life, p reply) bool {
	c.hasSession(r, p)
	s := c.newStream(l, r)
	r.alive = time.Now()
	how, why := s.run(p)
	if s.fresh {
		r.back.moved()
	}
	r.alive = s.alive
	switch how {
	case answered:
		return false
	case remade:
		r.alive = time.Now()
		return true
	case gaveUp:
		c.unknown(r, fmt.Errorf("%w, %v: %w", errGaveUp, c.o.GiveUp, why))
		return false
	case gone:
		c.unknown(r, why)
		c.lost(l, why.Error())
		return false
	case lostPlace:
		r.why, r.maybe = why, true
		return c.again(r, l)
	}
	c.unknown(r, why)
	return false
}

// hasSession takes the session's id from the answer to initialize.
func (c *conn) hasSession(r *request, p reply) {
	if !r.init {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.life.id = p.resp.Header.Get("Mcp-Session-Id")
}

func (c *conn) isDone(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.done
}

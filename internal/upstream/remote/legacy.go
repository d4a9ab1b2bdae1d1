package remote

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/segno-mcp/segno/internal/sse"
	"github.com/segno-mcp/segno/internal/wire"
)

// door is the way into a server of 2024-11-05 (Transports, HTTP with SSE): one
// stream on which everything comes, and a URL that it names, to which
// everything is posted. The stream is the session: when it breaks both are gone.
type door struct {
	base  *url.URL // of the stream
	named chan struct{}
	to    *url.URL // set before named is closed
	broke chan struct{}
	why   error // set before broke is closed
}

// where is the URL that messages of a life are posted to.
func (c *conn) where(l *life) *url.URL {
	if l != nil && l.door != nil {
		return l.door.to
	}
	return c.link.endpoint()
}

// old tells whether a refused initialize may mean that the server is one of
// 2024-11-05 (MCP 2025-11-25, Transports, Backwards Compatibility).
func old(p reply) bool {
	if m, bad := wire.Parse(p.answer); p.resp == nil || bad == nil && m.ID.Ok() {
		return false
	}
	switch p.resp.StatusCode {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

// doorTime is how long the first event of a server of 2024-11-05 is waited for.
const doorTime = 10 * time.Second

// openOld looks for the stream of 2024-11-05. true: initialize is to be sent
// again, by then to where the stream said. first is how it was refused.
func (c *conn) openOld(r *request, l *life, first reply) bool {
	if l.door != nil {
		c.refuse(r, first)
		return false
	}
	p := c.get(l.own, nil, "")
	switch p.verdict {
	case streams:
	case unsent, unclear:
		r.why = p.why
		return c.again(r, l)
	default:
		c.refuse(r, first)
		return false
	}
	d := &door{base: p.resp.Request.URL, named: make(chan struct{}), broke: make(chan struct{})}
	if !c.run(func() { c.hearOld(l, d, p) }) {
		p.cancel()
		return false
	}
	late := time.NewTimer(doorTime)
	defer late.Stop()
	select {
	case <-d.named:
		c.mu.Lock()
		l.door, l.noStream = d, true
		c.mu.Unlock()
		return true
	case <-d.broke:
		if errors.Is(d.why, errDoor) {
			first.why, first.answer = d.why, nil
		}
	case <-late.C:
	case <-r.ctx.Done():
	}
	p.cancel()
	c.refuse(r, first)
	return false
}

// hearOld reads the one stream until it breaks. That ends the session, and each
// request that waits for an answer on it decides for itself.
func (c *conn) hearOld(l *life, d *door, p reply) {
	s := c.newStream(l, nil)
	s.door = d
	stop := make(chan struct{})
	c.work.Go(func() {
		select {
		case <-l.own.Done():
		case <-stop:
		}
		p.cancel()
	})
	_, err := s.read(p)
	if s.why != nil {
		err = s.why
	}
	close(stop)
	d.why = err
	close(d.broke)
	select {
	case <-l.up:
		c.lost(l, err.Error())
	default:
	}
}

// awaitOld waits for an answer that comes on the one stream.
func (c *conn) awaitOld(r *request, l *life, p reply) bool {
	p.cancel()
	p.resp.Body.Close()
	select {
	case <-r.over:
		return false
	case <-r.ctx.Done():
		return false
	case <-l.door.broke:
	}
	r.why, r.maybe = l.door.why, true
	if r.init {
		c.mu.Lock()
		l.door = nil
		c.mu.Unlock()
	}
	if !c.safeTwice(r) {
		c.unknown(r, fmt.Errorf("the stream that all answers come on broke: %w", r.why))
		return false
	}
	return c.again(r, l)
}

var errDoor = errors.New("the endpoint that the server names cannot be used")

// oldEvent takes an event of a server of 2024-11-05.
func (s *stream) oldEvent(e *sse.Event) ending {
	if e.Name != "endpoint" {
		s.c.o.Trace.Event(Event{ID: e.ID, At: s.alive})
		return s.messages(e.Data, e.Name)
	}
	to, err := s.door.endpoint(string(e.Data))
	select {
	case <-s.door.named:
		if err == nil && to.String() != s.door.to.String() {
			err = fmt.Errorf("%w: it names another one later", errDoor)
		}
	default:
		if err == nil {
			s.door.to = to
			close(s.door.named)
		}
	}
	if err != nil {
		s.why = err
		return useless
	}
	return 0
}

// endpoint resolves what the server names against its own URL (RFC 3986). It
// must be of the same origin: credentials go there.
func (d *door) endpoint(named string) (*url.URL, error) {
	named = strings.TrimSpace(named)
	if named == "" || strings.ContainsAny(named, "\\\r\n\x00") {
		return nil, fmt.Errorf("%w: %q is no URL", errDoor, named)
	}
	to, err := d.base.Parse(named)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDoor, err)
	}
	if !sameOrigin(d.base, to) {
		return nil, fmt.Errorf("%w: %s is of another origin than %s", errDoor, to.Redacted(), d.base.Redacted())
	}
	to.User, to.Fragment = d.base.User, ""
	return to, nil
}

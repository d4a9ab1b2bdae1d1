package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/segno-mcp/segno/internal/sse"
	"github.com/segno-mcp/segno/internal/wire"
)

// ending is why a stream is read no more.
type ending uint8

const (
	answered  ending = iota + 1 // or nobody waits any more
	remade                      // the call is to be made again
	gaveUp                      // no sign of life for too long
	gone                        // the session is unknown to the server
	lostPlace                   // there is nothing to resume from, or nobody who could
	useless                     // the server refuses, and will again
)

// stream is one stream over all its connections. It belongs to one goroutine.
type stream struct {
	c    *conn
	l    *life
	r    *request // nil: the session's own stream
	door *door    // of 2024-11-05
	ctx  context.Context

	cursor string // the last event's id: where to go on
	marked bool   // an id came on this connection
	place  place  // of the cursor, if its text tells
	told   bool   // a gap was told since
	dense  dense
	seen   seen
	pace   pace
	alive  time.Time // last byte
	fresh  bool      // something new came, on whatever connection
	resume *Reconnect
	why    error
}

func (c *conn) newStream(l *life, r *request) *stream {
	s := &stream{c: c, l: l, r: r, alive: time.Now()}
	if r != nil {
		s.ctx = r.ctx
	} else {
		s.ctx = l.own
	}
	return s
}

func (s *stream) name() string {
	if s.r == nil {
		return ""
	}
	return string(s.r.id)
}

// run reads the stream from its first answer on. A connection that ends before
// the response is a break, in whichever way it ends.
func (s *stream) run(p reply) (ending, error) {
	for {
		how, err := s.read(p)
		s.ended()
		if how != 0 {
			return how, err
		}
		s.why = err
		if p, how = s.take(); how != 0 {
			return how, s.why
		}
	}
}

// ended reports a connection that resumed the stream.
func (s *stream) ended() {
	if s.resume == nil {
		return
	}
	s.resume.Running = s.r == nil || !s.c.isDone(s.r)
	s.c.o.Trace.Reconnect(*s.resume)
	s.resume = nil
}

const readSize = 16 << 10

// read reads one connection until it ends, which is 0, or the stream does.
func (s *stream) read(p reply) (ending, error) {
	defer p.cancel()
	defer p.resp.Body.Close()
	body := watch(p.resp.Body, func() time.Duration { return s.c.pulse.limit(s.cursor != "") }, p.cancel)
	var long wire.Outline
	parser := sse.Parser{Max: s.c.o.MaxMessage, Over: func(b []byte) { long.See(b) }}
	buf := make([]byte, readSize)
	began := time.Now()
	beatAt := began
	s.marked = false
	for {
		n, err := body.Read(buf)
		if n > 0 {
			s.alive = time.Now()
			parser.Feed(buf[:n])
			quiet := true
			for e, ok := parser.Next(); ok; e, ok = parser.Next() {
				quiet = false
				if how := s.event(&e, &long); how != 0 {
					if how == answered {
						s.drain(p)
					}
					return how, s.why
				}
				long = wire.Outline{}
			}
			s.at(parser.LastID())
			if d, ok := parser.Retry(); ok {
				s.pace.retry = min(d, maxRetry)
			}
			if quiet && buf[0] == ':' {
				s.c.pulse.heard(s.alive.Sub(beatAt))
				beatAt = s.alive
			}
		}
		if errors.Is(err, errSilent) {
			s.c.pulse.silent()
		}
		if err != nil {
			if time.Since(began) > backoffCeil {
				s.pace.moved()
			}
			return 0, brokenBy(err)
		}
	}
}

func brokenBy(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the stream ended before the response")
	}
	return fmt.Errorf("the connection broke: %w", err)
}

// drainTime is how long the end of an answer is waited for, so that its
// connection can be used again. Some servers never end it.
const drainTime = time.Second

func (s *stream) drain(p reply) {
	late := time.AfterFunc(drainTime, p.cancel)
	defer late.Stop()
	io.CopyN(io.Discard, p.resp.Body, 64<<10)
}

// at moves the cursor. An id that is set to nothing takes it back (WHATWG,
// Server-sent events, 9.2.6); that none came yet on this connection does not.
func (s *stream) at(id string) {
	if id == "" && !s.marked {
		return
	}
	s.marked = true
	if id == s.cursor {
		return
	}
	if !headerText(id) {
		id = ""
	}
	s.cursor = id
	if at, ok := placeOf(id); ok {
		s.place = at
	}
}

// event takes one event.
func (s *stream) event(e *sse.Event, long *wire.Outline) ending {
	if e.Err != nil {
		s.tooLong(e, long.Answers())
		s.at(e.ID)
		return s.over()
	}
	if len(bytes.TrimSpace(e.Data)) == 0 {
		s.at(e.ID)
		return 0
	}
	if s.door != nil {
		return s.oldEvent(e)
	}
	again := s.repeated(e.ID)
	if again && !s.awaited(e.Data) {
		s.c.o.Trace.Event(Event{Stream: s.name(), ID: e.ID, At: s.alive, Duplicate: true})
		return 0
	}
	s.c.o.Trace.Event(Event{Stream: s.name(), ID: e.ID, At: s.alive})
	if how := s.follows(e); how != 0 {
		return how
	}
	s.seen.add(e.ID)
	if s.resume != nil {
		s.resume.Events++
	}
	s.fresh = true
	s.pace.moved()
	how := s.messages(e.Data, e.Name)
	s.at(e.ID)
	if how == answered {
		s.received(e)
	}
	return how
}

// ackMin is the least outcome that is worth an acknowledgement, in bytes.
const ackMin = 4 << 10

// received tells a Segno that it may let the outcome of a call go. It is told
// once: what is kept for nothing goes with the session.
func (s *stream) received(e *sse.Event) {
	if s.r == nil || s.r.key == "" || s.l == nil || !s.l.segno || len(e.Data) < ackMin {
		return
	}
	body := append(wire.AppendQuoted([]byte(`{"lastEventId":`), e.ID), '}')
	c, l := s.c, s.l
	c.run(func() {
		ctx, cancel := context.WithTimeout(c.ctx, closeTime)
		defer cancel()
		h := http.Header{"Content-Type": {"application/json"}}
		l.head(h)
		resp, _, err := c.link.do(ctx, http.MethodPost, c.link.endpoint().JoinPath("ack"), h, body)
		if err != nil {
			c.log.Debug("acknowledging an outcome", "error", err)
			return
		}
		discard(resp)
	})
}

// over tells whether the request has been answered, by whatever.
func (s *stream) over() ending {
	if s.r != nil && s.c.isDone(s.r) {
		return answered
	}
	return 0
}

// tooLong ends the call whose answer is longer than what is taken.
func (s *stream) tooLong(e *sse.Event, id []byte) {
	s.c.log.Warn("a message of the server was dropped", "error", e.Err)
	if id == nil {
		return
	}
	if r := s.c.withWireID(id, s.l); r != nil {
		s.c.fail(r, wire.AppendError(nil, r.wireID, wire.CodeInternal, "the server's answer was dropped: "+e.Err.Error(), nil))
	}
}

// awaited tells whether data is the response to a request that still waits. It
// cannot have been seen, whatever its event's id says.
func (s *stream) awaited(data []byte) bool {
	m, bad := wire.Parse(data)
	return bad == nil && m.Kind >= wire.Result && m.ID.Ok() && s.c.withWireID(m.IDText(), s.l) != nil
}

// messages takes what an event or a JSON answer holds: a message, or an array
// of them (2025-03-26).
func (s *stream) messages(data []byte, name string) ending {
	if wire.IsArray(data) {
		parts, bad := wire.Split(data)
		if bad == nil {
			for _, part := range parts {
				s.message(part, name)
			}
			return s.over()
		}
	}
	if how := s.message(data, name); how != 0 {
		return how
	}
	return s.over()
}

func (s *stream) message(data []byte, name string) ending {
	m, bad := wire.Parse(wire.FixUTF8(data))
	if bad != nil {
		s.c.log.Warn("an event of the server is no message", "event", name, "error", bad, "bytes", len(data))
		return 0
	}
	switch m.Kind {
	case wire.Result, wire.Failure:
		s.response(&m)
		return 0
	case wire.Request:
		s.c.mu.Lock()
		if s.l != nil && s.l.asks != nil {
			s.l.asks[string(m.IDText())] = true
		}
		s.c.mu.Unlock()
	case wire.Notification:
		if m.Method == wire.ToolsChanged {
			s.c.tools.forget()
		}
		if g, ok := gapOf(&m); ok {
			s.told = true
			return s.gap(g, &m)
		}
	}
	if s.over() == 0 {
		s.c.deliver(m.Raw)
	}
	return 0
}

// response goes to the request that it answers. On the stream of a request an
// error that names none is that request's.
func (s *stream) response(m *wire.Message) {
	if !m.ID.Ok() {
		if s.r != nil && m.Kind == wire.Failure {
			raw := wire.AppendError(nil, s.r.wireID, wire.CodeInternal, m.StringAt("error", "message"), nil)
			if code, err := m.Find("error", "code"); err == nil && code.Ok() {
				raw = append(append(append([]byte(`{"jsonrpc":"2.0","id":`), s.r.wireID...), `,"error":`...), m.Text(m.Error)...)
				raw = append(raw, '}')
			}
			own, _ := wire.Parse(raw)
			s.c.settle(s.r, &own)
			return
		}
		s.c.log.Warn("the server reports an error without saying for what", "error", m.StringAt("error", "message"))
		return
	}
	r := s.r
	if r == nil || !sameID(r.wireID, m.IDText()) {
		r = s.c.withWireID(m.IDText(), s.l)
	}
	if r == nil {
		s.c.log.Warn("an answer to nothing was dropped", "request", string(m.IDText()))
		return
	}
	if s.c.settle(r, m) && r != s.r && s.door == nil {
		r.cancel()
	}
}

// get asks for the stream (MCP 2025-11-25, Transports, Resumability and
// Redelivery); without a cursor for the session's own.
func (c *conn) get(ctx context.Context, l *life, cursor string) reply {
	ctx, cancel := context.WithCancel(ctx)
	h := http.Header{"Accept": {"text/event-stream"}}
	l.head(h)
	if cursor != "" {
		h.Set("Last-Event-ID", cursor)
	}
	wait := headWait
	if l != nil && l.segno {
		wait = min(wait, c.pulse.limit(true))
	}
	late := afterHead(wait, cancel)
	to := c.link.endpoint()
	resp, wrote, err := c.link.do(ctx, http.MethodGet, to, h, nil)
	if late.stop() {
		err = errSilent
	}
	if err != nil {
		cancel()
		return reply{verdict: failed(err, wrote), why: fmt.Errorf("%w%s", err, c.link.via(to))}
	}
	r := reply{verdict: ofType(resp), resp: resp, cancel: cancel}
	if r.verdict == streams {
		return r
	}
	defer cancel()
	c.judge(&r, l)
	return r
}

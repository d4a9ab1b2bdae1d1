package remote

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// take takes the stream up again: 0 with its next answer, or why not.
func (s *stream) take() (reply, ending) {
	for {
		if how := s.may(); how != 0 {
			return reply{}, how
		}
		deadline := s.alive.Add(s.c.o.GiveUp)
		if !sleep(s.ctx, min(s.pace.next(), time.Until(deadline))) {
			return reply{}, answered
		}
		p, how := s.ask(deadline)
		if how != 0 || p.verdict == streams {
			return p, how
		}
	}
}

// may tells whether there is any use in asking.
func (s *stream) may() ending {
	switch {
	case s.over() != 0:
		return answered
	case s.r != nil && s.cursor == "":
		return lostPlace
	case strings.HasSuffix(s.cursor, dead):
		// The server just said that it does not know the stream.
		if s.r != nil {
			s.why = errors.New("the server does not know the stream any more")
			return useless
		}
		s.cursor, s.place = "", place{}
	case time.Since(s.alive) >= s.c.o.GiveUp:
		return gaveUp
	}
	return 0
}

// dead ends ids that lead nowhere, as a Segno gives them.
const dead = ".x"

// ask makes one attempt. Neither a stream nor an ending: another one is due.
func (s *stream) ask(deadline time.Time) (reply, ending) {
	epoch, err := s.c.gate.wait(s.ctx, deadline)
	if err != nil {
		if errors.Is(err, errGaveUp) {
			return reply{}, gaveUp
		}
		return reply{}, answered
	}
	if s.cursor != "" {
		s.resume = &Reconnect{Stream: s.name(), Cursor: s.cursor, At: time.Now()}
	}
	p := s.c.get(s.ctx, s.l, s.cursor)
	if p.resp != nil && s.resume != nil {
		s.resume.Status = p.resp.StatusCode
	}
	if p.verdict == streams {
		s.c.gate.passed(epoch)
		s.c.log.Debug("a stream is taken up again", "request", s.name(), "cursor", s.cursor)
		return p, 0
	}
	defer s.ended()
	if s.ctx.Err() != nil {
		return p, answered
	}
	s.why = p.why
	how := s.judged(p)
	if unreachable(p) {
		s.c.gate.failed(epoch, p.after, p.why)
	} else {
		s.c.gate.passed(epoch)
	}
	return p, how
}

// unreachable tells whether trouble is not this stream's alone.
func unreachable(p reply) bool {
	if p.resp == nil {
		return p.verdict != refused
	}
	switch p.resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// judged is what the answer to a GET means that is no stream.
func (s *stream) judged(p reply) ending {
	if p.resp == nil {
		if p.verdict == refused {
			return useless
		}
		return 0
	}
	switch status := p.resp.StatusCode; {
	case p.verdict == noSession && status != http.StatusBadRequest:
		return gone
	case status == http.StatusConflict, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500:
		return 0
	case status == http.StatusNoContent && s.r != nil:
		s.why = errors.New("the server has nothing more of the answer, and no response was in it")
		return useless
	case status == http.StatusNoContent && s.cursor != "":
		s.cursor, s.place = "", place{}
		return 0
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		return useless
	case s.r != nil:
		s.why = fmt.Errorf("the stream cannot be resumed: %w", p.why)
		return lostPlace
	}
	return useless
}

// listen opens the session's own stream, once for each life.
func (c *conn) listen(l *life) {
	if l == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.listening || l.noStream || !c.greeted || c.closed {
		return
	}
	l.listening = true
	c.work.Go(func() { c.hear(l) })
}

// hear reads the session's own stream for as long as there is one.
func (c *conn) hear(l *life) {
	s := c.newStream(l, nil)
	p, how := s.ask(time.Now().Add(c.o.GiveUp))
	if how == 0 && p.verdict != streams {
		p, how = s.take()
	}
	err := s.why
	if how == 0 {
		how, err = s.run(p)
	}
	c.mu.Lock()
	l.listening = false
	l.noStream = how == useless
	c.mu.Unlock()
	switch how {
	case gone:
		c.lost(l, err.Error())
	case useless:
		c.log.Debug("the server has no stream of the session's own", "reason", err)
	case gaveUp:
		c.log.Warn("the session's own stream is given up until the server is reached again", "error", err)
	}
}

package streamable

import (
	"context"
	"errors"
	"net/http"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/sse"
)

// get opens the session's own stream, or resumes the one that the cursor names
// (MCP 2025-11-25, Transports, Resumability and Redelivery). In a live session
// a cursor is never answered by an HTTP error: clients would take the session
// for dead.
func (x *exchange) get() error {
	if !accepted(x.r.Header).sse {
		return invalid(http.StatusNotAcceptable, "the client must accept text/event-stream")
	}
	s, err := x.session()
	if err != nil {
		return err
	}
	if err := checkVersion(x.r.Header.Get("Mcp-Protocol-Version"), nil); err != nil {
		return err
	}
	if cursor := x.r.Header.Get("Last-Event-ID"); cursor != "" {
		return x.unlessUnreadable(s, x.resume(s, cursor))
	}
	x.read(s, s.AttachOwn(x.policy()), "get")
	x.flows = true
	return nil
}

// unlessUnreadable sends a client away for a while, by a stream that ends
// cleanly, if the log cannot be read: the session is there, and an error would
// end it for the client. Only that it has ended meanwhile is said as one.
func (x *exchange) unlessUnreadable(s *session.Session, err error) error {
	if err == nil || errors.Is(err, eventlog.ErrNoSession) || errors.Is(err, context.Canceled) {
		return err
	}
	x.f.meter.Add(metric.Errors, "stream", 1)
	x.log().Error("a stream could not be read", "error", err)
	p := x.f.paceFor(s)
	x.streamHead()
	if err := x.send(append([]byte(sse.Heartbeat), p.goodbye(whyFailed)...)); err != nil {
		x.log().Info("an answer did not get through", "error", err)
	}
	return nil
}

func (x *exchange) resume(s *session.Session, cursor string) error {
	res, err := s.Resume(x.r.Context(), cursor, x.policy())
	if err != nil {
		return err
	}
	x.resumed(res)
	switch {
	case res.Reader != nil:
		v := x.read(s, res.Reader, "resume")
		v.primingID = res.PrimingID
		if v.rd.Running() {
			v.waits()
		}
		x.flows = true
		return nil
	case res.Notice == nil:
		// An empty stream would be asked for again at once, for ever.
		x.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return x.told(s, res)
}

// told is a whole stream for a cursor that leads nowhere: the notice, and the
// error that ends the call if it is known which.
func (x *exchange) told(s *session.Session, res *session.Resumption) error {
	p := x.f.paceFor(s)
	b := p.greet(nil, res.PrimingID)
	b = sse.AppendEvent(b, "", res.NoticeID, res.Notice)
	for _, answer := range res.Answers {
		b = sse.AppendEvent(b, "", res.AnswerID, answer)
	}
	x.streamHead()
	if err := x.send(b); err != nil {
		x.log().Info("an answer did not get through", "error", err)
	}
	return nil
}

// single is a whole stream of one message that has no place in any.
func (x *exchange) single(message []byte) error {
	x.streamHead()
	if err := x.send(sse.AppendEvent(nil, "", "", message)); err != nil {
		x.log().Info("an answer did not get through", "error", err)
	}
	return nil
}

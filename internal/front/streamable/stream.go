package streamable

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/sse"
)

// view is a stream as one connection sees it. It belongs to one goroutine.
type view struct {
	x     *exchange
	rd    *session.Reader
	kind  string // post, get or resume
	pace  pace
	seat  *seat
	timer *time.Timer
	// handed: the session knows that the client holds an id of the stream.
	handed bool

	began         time.Time
	first, last   uint64 // seqs written
	events, bytes int64
}

// Why a connection ended, as the log and the metrics say it.
const (
	whyEnded        = "ended" // the stream has, nothing follows
	whyClient       = "client_gone"
	whyTimeout      = "write_timeout"
	whyRetired      = "superseded"
	whyRotated      = "rotated"
	whyDrained      = "drained"
	whyLimit        = "limit"
	whyRevoked      = "revoked"
	whySessionEnded = "session_ended"
	whyFailed       = "failed"
)

func (x *exchange) view(s *session.Session, rd *session.Reader, kind string) *view {
	x.log = x.log.With("stream", rd.Stream(), "kind", kind)
	return &view{x: x, rd: rd, kind: kind, pace: x.f.paceFor(s), began: time.Now()}
}

// serve writes the stream until it or the connection ends. first is what was
// read already, primingID the id of the first event, empty for a fresh one.
func (v *view) serve(first session.Delivery, primingID string) error {
	if v.pace.primes && primingID == "" {
		var err error
		if primingID, err = v.rd.PrimingID(v.x.r.Context()); err != nil {
			return err
		}
	}
	v.seat = v.x.f.seats.take(v.x.who.Principal)
	defer v.x.f.seats.leave(v.seat)
	v.x.f.meter.Add(session.ConnectionsOpen, v.kind, 1)
	defer v.x.f.meter.Add(session.ConnectionsOpen, v.kind, -1)
	v.pace.start(v.began, v.x.f.o.Rotate)
	v.x.streamHead()
	v.report(v.run(first, primingID))
	return nil
}

// streamHead writes the head of a stream. What stands between must neither
// hold it back nor change it.
func (x *exchange) streamHead() {
	h := x.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	x.wrote = true
	x.w.WriteHeader(http.StatusOK)
}

// run is the one loop that writes events, live ones and replayed ones. It
// returns why it ended.
func (v *view) run(d session.Delivery, primingID string) string {
	greeting := v.pace.greet(nil, primingID)
	for {
		now := time.Now()
		if err := v.write(greeting, &d, now); err != nil {
			return v.broken(err)
		}
		greeting = nil
		switch {
		case d.Ended && v.rd.Own():
			return whySessionEnded
		case d.Ended:
			return whyEnded
		case d.Retired:
			return whyRetired
		}
		if why := v.over(now); why != "" {
			return v.farewell(why)
		}
		if (d.Wait || d.Spare) && !v.wait(now) {
			return whyClient
		}
		var err error
		if d, err = v.next(); err != nil {
			return v.broken(err)
		}
	}
}

// next reads on. A store that is away for a moment is no reason to end.
func (v *view) next() (session.Delivery, error) {
	d, err := v.rd.Next(v.x.r.Context())
	if errors.Is(err, eventlog.ErrUnavailable) {
		v.pace.again = true
		return session.Delivery{Wait: true}, nil
	}
	return d, err
}

// write sends one burst: a heartbeat if it is time, and what was delivered. It
// leaves at once, in one piece.
func (v *view) write(greeting []byte, d *session.Delivery, now time.Time) error {
	beat := v.pace.beats(now)
	if greeting == nil && !beat && d.Notice == nil && len(d.Events) == 0 {
		return nil
	}
	v.handsOut(len(d.Events) > 0 || d.NoticeID != "")
	p := v.x.f.page()
	defer v.x.f.giveBack(p)
	p.b = append(p.b, greeting...)
	if beat {
		p.b = append(p.b, sse.Heartbeat...)
	}
	if d.Notice != nil {
		p.b = sse.AppendEvent(p.b, "", d.NoticeID, d.Notice)
	}
	if err := v.encode(p, d); err != nil {
		return err
	}
	if err := v.send(p); err != nil {
		return err
	}
	if beat {
		// Before Sent: what goes out with a heartbeat has not yet lived through it.
		v.rd.Beat()
	}
	v.sent(d)
	return nil
}

// handsOut notes that ids are about to leave, before they do: a write that
// fails may have brought them to the client all the same.
func (v *view) handsOut(ids bool) {
	if !v.handed && (ids || v.pace.hasID) {
		v.rd.Sent(0, true)
		v.handed, v.pace.hasID = true, true
	}
}

// encode takes the events into the page, and sends those that are too large to
// be copied.
func (v *view) encode(p *page, d *session.Delivery) error {
	for i := range d.Events {
		e := &d.Events[i]
		if len(e.Data) <= large || !oneLine(e.Data) {
			p.event(v.rd, d.Term, e)
			continue
		}
		p.head(v.rd, d.Term, e.Seq)
		if err := v.send(p); err != nil {
			return err
		}
		if err := v.x.send(e.Data); err != nil {
			return err
		}
		v.bytes += int64(len(e.Data))
		p.b = append(p.b, "\n\n"...)
	}
	return nil
}

func (v *view) send(p *page) error {
	err := v.x.send(p.b)
	v.bytes += int64(len(p.b))
	p.b = p.b[:0]
	return err
}

// sent notes what the connection took.
func (v *view) sent(d *session.Delivery) {
	n := len(d.Events)
	if n == 0 {
		return
	}
	v.seat.active()
	if v.first == 0 {
		v.first = d.Events[0].Seq
	}
	v.last = d.Events[n-1].Seq
	v.events += int64(n)
	v.rd.Sent(v.last, true)
	v.x.f.meter.Add(session.MessagesOut, "client", float64(n))
}

// over tells whether and why the connection is to be ended from this side.
func (v *view) over(now time.Time) string {
	if !v.rd.Running() {
		v.pace.drains(v.x.f.o.Sessions.Draining(), now, v.x.f.o.DrainSpread)
	}
	if why := v.pace.over(now); why != "" {
		return why
	}
	select {
	case <-v.seat.end:
		return v.seat.why
	case <-v.x.who.Revoked:
		return whyRevoked
	default:
		return ""
	}
}

// wait returns when there may be something to do. It is false when the client
// is gone. While it waits the connection holds no buffer.
func (v *view) wait(now time.Time) bool {
	d := v.pace.until(now)
	if v.timer == nil {
		v.timer = time.NewTimer(d)
	} else {
		v.timer.Reset(d)
	}
	defer v.timer.Stop()
	var drain <-chan struct{}
	if v.pace.leaveAt.IsZero() && !v.rd.Running() {
		drain = v.x.f.o.Sessions.Draining()
	}
	select {
	case <-v.x.r.Context().Done():
		return false
	case <-v.rd.C():
	case <-v.timer.C:
	case <-drain:
	case <-v.seat.end:
	case <-v.x.who.Revoked:
	}
	return true
}

// farewell ends the connection so that the client comes back: a clean end after
// the time it shall stay away.
func (v *view) farewell(why string) string {
	if b := v.pace.goodbye(why); len(b) > 0 {
		if err := v.x.send(b); err != nil {
			return v.broken(err)
		}
	}
	return why
}

// broken tells why a connection ended without its own doing.
func (v *view) broken(err error) string {
	var slow net.Error
	ctx := v.x.r.Context()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		v.x.f.meter.Add(session.Errors, "write_timeout", 1)
		return whyTimeout
	case errors.Is(err, eventlog.ErrNoSession), errors.Is(err, eventlog.ErrNoStream):
		return whySessionEnded
	case ctx.Err() != nil, errors.Is(err, context.Canceled), lost(err):
		return whyClient
	}
	v.x.f.meter.Add(session.Errors, "stream", 1)
	v.x.log.Error("a stream could not be written", "error", err)
	return whyFailed
}

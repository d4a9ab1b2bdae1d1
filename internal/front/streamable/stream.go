package streamable

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/sse"
)

// view is a stream as one connection sees it. It belongs to one goroutine.
type view struct {
	x     *exchange
	ctx   context.Context
	guard guard
	line  *line // not nil: the connection is ours, not the server's
	rd    *session.Reader
	kind  string // post, get or resume
	pace  pace
	seat  *seat
	timer *time.Timer
	// handed: the session knows that the client holds an id of the stream.
	handed bool

	leave  func()            // not nil: the connection waits for a running call
	first  *session.Delivery // read already
	needs  int64             // not 0: room for the next page, of which freed tells
	freed  <-chan struct{}
	greets bool // the first bytes are still to be written
	// primingID is the id of the first event; empty: a fresh one.
	primingID string

	began         time.Time
	from, last    uint64 // seqs written
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

// read makes a view of a reader, which is closed with the exchange.
func (x *exchange) read(s *session.Session, rd *session.Reader, kind string) *view {
	x.v = &view{x: x, ctx: x.r.Context(), rd: rd, kind: kind, pace: x.f.paceFor(s)}
	x.v.guard.by(x.rc.SetWriteDeadline)
	rd.OnYield(x.v.guard.yield)
	return x.v
}

// waits notes that the connection waits for a running call.
func (v *view) waits() { v.leave = v.x.f.seats.wait(&v.guard) }

func (v *view) close() {
	v.rd.Close()
	v.guard.by(nil)
	v.letGo()
	if v.leave != nil {
		v.leave()
	}
	if v.seat != nil {
		v.x.f.meter.Add(metric.ConnectionsOpen, v.kind, -1)
		v.x.f.seats.leave(v.seat)
	}
}

// serve writes the stream until it or the connection ends.
func (v *view) serve() error {
	if v.pace.primes && v.primingID == "" {
		var err error
		if v.primingID, err = v.rd.PrimingID(v.ctx); err != nil && v.kind != "post" {
			return v.x.unlessUnreadable(v.x.s, err)
		} else if err != nil {
			return err
		}
	}
	v.begin()
	v.x.streamHead()
	why := v.run()
	if why == whyDetached {
		return nil
	}
	v.report(why)
	// The server has the end of the body to write, and the deadline of the last
	// write may have passed. A connection that takes none is gone.
	_ = v.guard.until(time.Now().Add(v.x.f.o.WriteTimeout))
	return nil
}

func (v *view) begin() {
	v.greets = true
	v.began = time.Now()
	v.pace.start(v.began, v.x.f.o.Rotate)
	seat, full := v.x.f.seats.take(v.x.who.Principal, &v.guard)
	if full != "" {
		v.x.f.meter.Add(metric.Refused, full, 1)
	}
	v.seat = seat
	v.x.f.meter.Add(metric.ConnectionsOpen, v.kind, 1)
}

// streamHead writes the head of a stream. What stands between must neither
// hold it back nor change it.
func (x *exchange) streamHead() {
	h := x.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	if x.v != nil && x.v.detaches() {
		h.Set("Connection", "close")
	}
	x.wrote = true
	x.w.WriteHeader(http.StatusOK)
}

// run is the one loop that writes events, live ones and replayed ones. It
// returns why it ended.
func (v *view) run() string {
	d := session.Delivery{}
	if v.first != nil {
		d, v.first = *v.first, nil
		v.admit(&d)
	}
	for {
		now := time.Now()
		if err := v.write(&d, now); err != nil {
			return v.broken(err)
		}
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
		if d.Wait || d.Spare {
			if v.detach() {
				return whyDetached
			}
			if !v.wait(now) {
				return whyClient
			}
		}
		var err error
		if d, err = v.next(); err != nil {
			return v.broken(err)
		}
	}
}

// next reads on. A store that is away for a moment is no reason to end.
func (v *view) next() (session.Delivery, error) {
	if d, starved := v.starved(); starved {
		return d, nil
	}
	d, err := v.rd.Next(v.ctx)
	if errors.Is(err, eventlog.ErrUnavailable) {
		v.pace.again = true
		return session.Delivery{Wait: true}, nil
	}
	v.admit(&d)
	return d, err
}

// write sends one burst: a heartbeat if it is time, and what was delivered. It
// leaves at once, in one piece.
func (v *view) write(d *session.Delivery, now time.Time) error {
	beat := v.pace.beats(now)
	if !v.greets && !beat && d.Notice == nil && len(d.Events) == 0 {
		return nil
	}
	p := v.x.f.page()
	defer v.x.f.giveBack(p)
	if v.greets {
		p.b = v.pace.greet(p.b, v.primingID)
		v.greets = false
	}
	v.handsOut(len(d.Events) > 0 || d.NoticeID != "")
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
		if err := v.out(e.Data); err != nil {
			return err
		}
		p.b = append(p.b, "\n\n"...)
	}
	return nil
}

func (v *view) send(p *page) error {
	err := v.out(p.b)
	p.b = p.b[:0]
	return err
}

func (v *view) out(b []byte) error {
	v.bytes += int64(len(b))
	v.guard.writes(true)
	defer v.guard.writes(false)
	if v.line != nil {
		return v.line.send(v.x.f, &v.guard, b)
	}
	return v.x.send(b)
}

// sent notes what the connection took.
func (v *view) sent(d *session.Delivery) {
	n := len(d.Events)
	if n == 0 {
		return
	}
	v.seat.active()
	if v.from == 0 {
		v.from = d.Events[0].Seq
	}
	v.last = d.Events[n-1].Seq
	v.events += int64(n)
	v.rd.Sent(v.last, true)
	v.x.f.meter.Add(metric.MessagesOut, "client", float64(n))
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
	case <-v.ctx.Done():
		return false
	case <-v.rd.C():
	case <-v.freed:
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
		if err := v.out(b); err != nil {
			return v.broken(err)
		}
	}
	return why
}

// broken tells why a connection ended without its own doing.
func (v *view) broken(err error) string {
	var slow net.Error
	if why := v.guard.wasCut(); why != "" {
		return why
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		v.x.f.meter.Add(metric.Errors, "write_timeout", 1)
		return whyTimeout
	case errors.Is(err, eventlog.ErrNoSession), errors.Is(err, eventlog.ErrNoStream):
		return whySessionEnded
	case v.ctx.Err() != nil, errors.Is(err, context.Canceled), lost(err):
		return whyClient
	}
	v.x.f.meter.Add(metric.Errors, "stream", 1)
	v.x.log().Error("a stream could not be written", "error", err)
	return whyFailed
}

// report says once, when a connection ends, what became of it.
func (v *view) report(why string) {
	lived := time.Since(v.began)
	v.x.f.meter.Observe(metric.ConnectionSeconds, why, lived.Seconds())
	v.x.f.meter.Add(metric.BytesOut, "client", float64(v.bytes))
	v.x.log().Info("connection ended", "why", why, "duration", lived,
		"events", v.events, "bytes", v.bytes, "first", v.from, "last", v.last)
}

// resumed says how a cursor was understood: what of the events after it is sent
// (from first to top), how many are gone and which of them is the oldest, up to
// where retention has been in the stream, and with which instance the session
// was until now. The instance that answers is an attribute of every line.
func (x *exchange) resumed(res *session.Resumption) {
	x.log().Info("resume", "result", res.Result, "stream", res.Stream, "after", res.After,
		"first", res.First, "top", res.Top, "evicted", res.Evicted, "oldest_evicted", res.Oldest,
		"floor", res.Floor, "owner", res.Owner)
}

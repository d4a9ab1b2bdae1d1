package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/retention"
)

// stream is a stream that is written or read in this process: what is to be
// appended next, what is kept of it, and who is connected. Whatever wants to
// say something in it adds events; one goroutine at a time appends them, so
// what comes while the log is busy goes with the next append.
type stream struct {
	s    *Session
	key  eventlog.Key
	kept *kept // nil for the session's own stream

	mu      sync.Mutex
	queue   []eventlog.Event
	idle    []eventlog.Event // the other half of a double buffer
	asks    []*ask           // one for each Request in queue, in order
	record  bool             // the session's record goes with the next append
	writing bool
	closed  bool // nothing can be added any more
	gone    bool // the session has ended, or another process owns it
	top     uint64
	ended   bool // the End is in the log
	window  retention.Window
	open    map[uint64]*ask // the server's requests that wait for an answer, by seq
	seats   []*Reader       // connections, the newest last
	left    int             // calls without an outcome
	waits   int             // requests of the server without an answer
	lonely  *time.Timer     // runs while nobody is connected, or nobody who can be asked
	empty   time.Time       // since when there is no connection
	unheard time.Time       // since when there is none that carries more than an outcome
	look    time.Time       // when lonely fires
	flush   []chan struct{} // closed when nothing is being written
}

// add queues events for the log. It reports false, and takes nothing, if the
// stream is at its end.
func (st *stream) add(events []eventlog.Event, asks []*ask, record bool) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return false
	}
	st.s.held.Add(payload(events))
	st.queue = append(st.queue, events...)
	st.asks = append(st.asks, asks...)
	st.record = st.record || record
	st.closed = len(events) > 0 && events[len(events)-1].Kind == eventlog.End
	if !st.writing && st.s.m.enter() {
		st.writing = true
		go st.write()
	}
	return true
}

func payload(events []eventlog.Event) (n int64) {
	for i := range events {
		n += int64(len(events[i].Data))
	}
	return n
}

// write appends what is queued until nothing is.
func (st *stream) write() {
	defer st.s.m.leave()
	for {
		a, record, ok := st.take()
		if !ok {
			st.s.release(st)
			return
		}
		if err := st.s.append(&a, record); err != nil {
			st.lose(&a, err)
			return
		}
		st.wrote(&a)
	}
}

// take makes an append of the whole queue. Requests of the server are known as
// open before anyone can read them.
func (st *stream) take() (a eventlog.Append, record, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.queue) == 0 && !st.record {
		st.writeDone()
		return a, false, false
	}
	a = eventlog.Append{Key: st.key, After: st.top, Events: st.queue}
	for i := range a.Events {
		switch a.Events[i].Kind {
		case eventlog.Request:
			st.opens(st.asks[0], st.top+uint64(i)+1)
			st.asks = st.asks[1:]
			a.Durable = true
		case eventlog.Outcome:
			a.Durable = true
		case eventlog.End:
			a.Durable = true
			a.Due = after(st.s.m.lim.RetainAge)
		}
	}
	record = st.record
	st.queue, st.idle, st.record = st.idle[:0], nil, false
	return a, record, true
}

// opens notes a request of the server under its seq, unless it was settled
// before it came this far. The lock is held.
func (st *stream) opens(a *ask, seq uint64) {
	a.seq = seq
	if a.done {
		return
	}
	if st.open == nil {
		st.open = map[uint64]*ask{}
	}
	st.open[seq] = a
}

// wrote accounts for an append that is in the log.
func (st *stream) wrote(a *eventlog.Append) {
	n, bytes := int64(len(a.Events)), payload(a.Events)
	lim := retention.Bounds{Events: st.s.m.lim.RetainEvents, Bytes: st.s.m.lim.RetainBytes}
	st.mu.Lock()
	for i := range a.Events {
		if e := &a.Events[i]; !eventlog.Pinned.Has(e.Kind) {
			st.window.Push(st.top+uint64(i)+1, int64(len(e.Data)), lim)
		}
	}
	st.top += uint64(n)
	st.ended = n > 0 && a.Events[n-1].Kind == eventlog.End
	ended := st.ended
	clear(a.Events)
	st.idle = a.Events[:0]
	through := st.window.Excess(lim, st.overtakable())
	st.overtake(through)
	st.mu.Unlock()
	st.s.held.Done(bytes)
	if ended {
		st.s.streamEnded(st.kept)
	}
	if st.kept != nil {
		st.kept.add(n, bytes)
	}
	st.s.grew(n, bytes)
	if through > 0 {
		st.trim(through)
	}
}

// lose drops what can never be written: the session has another owner, or the
// log is closed, or it has lost what the append follows.
func (st *stream) lose(a *eventlog.Append, err error) {
	st.mu.Lock()
	bytes := payload(a.Events) + payload(st.queue)
	st.queue, st.asks, st.closed = nil, nil, true
	st.writeDone()
	st.mu.Unlock()
	st.s.held.Done(bytes)
	if !errors.Is(err, eventlog.ErrClosed) && !errors.Is(err, context.Canceled) && !errors.Is(err, eventlog.ErrUnavailable) {
		st.s.lost(err)
	}
	st.s.release(st)
}

// writeDone says that nothing is being written; the lock is held.
func (st *stream) writeDone() {
	st.writing = false
	for _, c := range st.flush {
		close(c)
	}
	st.flush = nil
}

// flushed waits until everything added is written, or never will be.
func (st *stream) flushed() {
	st.mu.Lock()
	if !st.writing {
		st.mu.Unlock()
		return
	}
	c := make(chan struct{})
	st.flush = append(st.flush, c)
	st.mu.Unlock()
	<-c
}

// close lets nothing be added any more and stops the clocks.
func (st *stream) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	st.disarmAlone()
}

// leave is close that also sends the connections home.
func (st *stream) leave() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed, st.gone = true, true
	st.disarmAlone()
	for _, r := range st.seats {
		r.nudge()
	}
}

// trim lets the log forget what retention does not keep any more, and tells how
// many bytes that were. What the server asked is spared while an answer is due.
func (st *stream) trim(through uint64) (freed int64) {
	keep := eventlog.Pinned
	st.mu.Lock()
	if st.waits == 0 {
		keep &^= eventlog.Of(eventlog.Request)
	}
	st.mu.Unlock()
	return st.s.trim(st.key, st.kept, through, keep)
}

// trim trims a stream of the session and accounts for it.
func (s *Session) trim(key eventlog.Key, k *kept, through uint64, keep eventlog.Kinds) (freed int64) {
	done, err := s.m.log.Trim(s.m.ctx, key, s.claim.Fence, through, keep)
	if err != nil {
		if s.m.ctx.Err() == nil && !errors.Is(err, eventlog.ErrNoStream) && !errors.Is(err, eventlog.ErrNoSession) {
			s.log.Warn("trimming a stream", "stream", key.Stream, "error", err)
		}
		return 0
	}
	s.m.meter.Add(metric.EvictedEvents, "", float64(done.Events))
	if k != nil {
		k.add(-done.Events, -done.Bytes)
	}
	s.grew(-done.Events, -done.Bytes)
	return done.Bytes + done.Events*eventOverhead
}

// settled tells whether a request of the server needs no answer any more, so
// that it is not replayed.
func (st *stream) settled(seq uint64) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.open[seq] == nil
}

// connected tells whether somebody is there to whom anything can be said.
func (st *stream) connected() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.heard()
}

// mute tells whether those who are there take nothing but the outcome.
func (st *stream) mute() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.seats) > 0 && !st.heard()
}

// heard is connected with the lock held.
func (st *stream) heard() bool {
	return slices.ContainsFunc(st.seats, func(r *Reader) bool { return !r.mute })
}

// running tells whether a call of the stream has no outcome in the log yet.
func (st *stream) running() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st != st.s.own && !st.ended && !st.gone
}

// OnYield sets what is called when a newer connection gets the events: this one
// may stand in a write. It must not block.
func (r *Reader) OnYield(f func(retired bool)) {
	r.st.mu.Lock()
	defer r.st.mu.Unlock()
	r.yields = f
}

// Unread takes the events of the last Delivery back: they were not written, and
// Next reads them again. Until then retention does not pass them.
func (r *Reader) Unread(d *Delivery) {
	r.follow.Close()
	r.follow = eventlog.Follow(r.st.s.m.log, r.st.key, d.Events[0].Seq-1, r.hint)
	r.rest, r.gaps, r.over = eventlog.Page{}, nil, false
	r.st.mu.Lock()
	r.given, r.waiting = r.passed, true
	r.st.mu.Unlock()
}

// Turn tells whether this is the connection that gets the events, or else what
// it gets, without reading any.
func (r *Reader) Turn() (d Delivery, served bool) { return r.seat() }

package session

import (
	"errors"
	"sync"
	"time"

	"github.com/segno-mcp/segno/eventlog"
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
	record  []byte           // to be set with the next append
	writing bool
	closed  bool // an End was added: nothing follows
	top     uint64
	ended   bool // the End is in the log
	window  retention.Window
	open    map[uint64]*ask // the server's requests that wait for an answer, by seq
	seats   []*Reader       // connections, the newest last
	left    int             // calls without an outcome
	lonely  *time.Timer     // runs while nobody is connected
	since   time.Time       // since when
	flush   []chan struct{} // closed when nothing is being written
}

// add queues events for the log. It reports false, and takes nothing, if the
// stream is at its end.
func (st *stream) add(events []eventlog.Event, asks []*ask, record []byte) bool {
	bytes := int64(0)
	for i := range events {
		bytes += int64(len(events[i].Data))
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return false
	}
	st.s.held.Add(bytes)
	st.queue = append(st.queue, events...)
	st.asks = append(st.asks, asks...)
	if record != nil {
		st.record = record
	}
	st.closed = len(events) > 0 && events[len(events)-1].Kind == eventlog.End
	if !st.writing && st.s.m.enter() {
		st.writing = true
		go st.write()
	}
	return true
}

// write appends what is queued until nothing is.
func (st *stream) write() {
	defer st.s.m.leave()
	for {
		a, ok := st.take()
		if !ok {
			st.s.release(st)
			return
		}
		if err := st.s.append(&a); err != nil {
			st.lose(err)
			return
		}
		st.wrote(&a)
	}
}

// take makes an append of the whole queue. Requests of the server are known as
// open before anyone can read them.
func (st *stream) take() (eventlog.Append, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.queue) == 0 && st.record == nil {
		st.writeDone()
		return eventlog.Append{}, false
	}
	a := eventlog.Append{Key: st.key, After: st.top, Events: st.queue, Record: st.record}
	for i := range a.Events {
		switch a.Events[i].Kind {
		case eventlog.Request:
			st.asks[0].seq = st.top + uint64(i) + 1
			st.open[st.asks[0].seq] = st.asks[0]
			st.asks = st.asks[1:]
			a.Durable = true
		case eventlog.Outcome:
			a.Durable = true
		case eventlog.End:
			a.Durable = true
			a.Due = time.Now().Add(st.s.m.lim.RetainAge)
		}
	}
	st.queue, st.idle, st.record = st.idle[:0], nil, nil
	return a, true
}

// wrote accounts for an append that is in the log.
func (st *stream) wrote(a *eventlog.Append) {
	bytes := int64(0)
	lim := retention.Bounds{Events: st.s.m.lim.RetainEvents, Bytes: st.s.m.lim.RetainBytes}
	st.mu.Lock()
	for i := range a.Events {
		n := int64(len(a.Events[i].Data))
		bytes += n
		if !eventlog.Pinned.Has(a.Events[i].Kind) {
			st.window.Push(st.top+uint64(i)+1, n, lim)
		}
	}
	st.top += uint64(len(a.Events))
	clear(a.Events)
	st.idle = a.Events[:0]
	st.ended = st.closed && len(st.queue) == 0
	ended := st.ended
	through := st.window.Excess(lim, st.overtakable())
	st.mu.Unlock()
	n := int64(len(a.Events))
	st.s.held.Done(bytes)
	st.s.m.meter.Add(RetainedEvents, "", float64(n))
	if st.kept != nil {
		st.kept.add(n, bytes)
	}
	st.s.grew(bytes + n*eventOverhead)
	if through > 0 {
		st.trim(through, eventlog.Pinned)
	}
	if ended {
		st.s.streamEnded(st)
	}
}

// lose drops what can never be written: the session has another owner, or the
// log is closed.
func (st *stream) lose(err error) {
	st.mu.Lock()
	bytes := int64(0)
	for i := range st.queue {
		bytes += int64(len(st.queue[i].Data))
	}
	st.queue, st.closed = nil, true
	st.writeDone()
	st.mu.Unlock()
	st.s.held.Done(bytes)
	if errors.Is(err, eventlog.ErrFenced) || errors.Is(err, eventlog.ErrNoSession) {
		st.s.lost(err)
	}
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

// close lets nothing be added any more and sends the connections home.
func (st *stream) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	st.disarmAlone()
	for _, r := range st.seats {
		r.nudge()
	}
}

// trim lets the log forget what retention does not keep any more.
func (st *stream) trim(through uint64, keep eventlog.Kinds) {
	done, err := st.s.m.log.Trim(st.s.m.ctx, st.key, st.s.claim.Fence, through, keep)
	if err != nil {
		st.s.log.Warn("trimming a stream", "stream", st.key.Stream, "error", err)
		return
	}
	st.s.m.meter.Add(EvictedEvents, "", float64(done.Events))
	st.s.m.meter.Add(RetainedEvents, "", -float64(done.Events))
	st.s.grew(-done.Bytes - done.Events*eventOverhead)
	if st.kept != nil {
		st.kept.add(-done.Events, -done.Bytes)
	}
}

// settled tells whether a request of the server needs no answer any more, so
// that it is not replayed.
func (st *stream) settled(seq uint64) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.open[seq] == nil
}

func (st *stream) connected() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.seats) > 0
}

func (st *stream) running() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.left > 0
}

package session

import (
	"strconv"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/notice"
	"github.com/segno-mcp/segno/internal/wire"
)

// A session has three clocks. The first stops its child and takes it out of
// memory, the second ends it; both are here. The third, of a stream that has
// ended, is an entry in the log's own index, see Manager.dueLoop.

// touch is a sign of life.
func (s *Session) touch() { s.lastSign.Store(time.Now().UnixNano()) }

// posted is a sign of life that the client gave by itself.
func (s *Session) posted() {
	now := time.Now().UnixNano()
	s.lastSign.Store(now)
	s.lastPost.Store(now)
}

// Touch is for signs of life that are no message: bytes taken on a connection.
func (s *Session) Touch() { s.touch() }

// graceOver runs when the grace may be over, and sets itself again if not.
func (s *Session) graceOver() {
	left := s.m.lim.Grace - time.Since(time.Unix(0, s.lastSign.Load()))
	if left <= 0 && (s.busy() || s.readers.Load() > 0) {
		left = s.m.lim.Grace
	}
	if left > 0 {
		s.life.Reset(left)
		return
	}
	s.m.run(func() {
		if !s.m.unload(s, "no sign of life for "+s.m.lim.Grace.String()) {
			s.life.Reset(s.m.lim.Grace)
		}
	})
}

// busy tells whether a call runs: it has a clock of its own, see alone.
func (s *Session) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls) > 0 || s.doomed
}

// armAlone starts the clocks of a stream that nobody is connected to.
func (st *stream) armAlone(lim Limits) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.seats) > 0 || st.lonely != nil || st.closed {
		return
	}
	st.since = time.Now()
	if next := nextClock(0, lim); next > 0 {
		st.lonely = time.AfterFunc(next, st.alone)
	}
}

// disarmAlone stops them; the stream's lock is held.
func (st *stream) disarmAlone() {
	if st.lonely != nil {
		st.lonely.Stop()
		st.lonely = nil
	}
}

// nextClock is how long after passed the next of the two limits is reached.
func nextClock(passed time.Duration, lim Limits) time.Duration {
	next := time.Duration(0)
	for _, d := range []time.Duration{lim.AskTimeout, lim.Orphan} {
		if d > passed && (next == 0 || d-passed < next) {
			next = d - passed
		}
	}
	return next
}

// alone acts on a stream nobody was connected to for too long: what the server
// asked is given up, and later the calls are.
func (st *stream) alone() {
	lim := st.s.m.lim
	st.mu.Lock()
	if st.lonely == nil || len(st.seats) > 0 {
		st.mu.Unlock()
		return
	}
	passed := time.Since(st.since)
	st.lonely = nil
	if next := nextClock(passed, lim); next > 0 && !st.closed {
		st.lonely = time.AfterFunc(next, st.alone)
	}
	st.mu.Unlock()
	if lim.AskTimeout > 0 && passed >= lim.AskTimeout {
		for _, a := range st.s.asksWhere(func(a *ask) bool { return a.st == st }) {
			a.giveUp("nobody was there to answer for " + lim.AskTimeout.String())
		}
	}
	if lim.Orphan > 0 && passed >= lim.Orphan {
		for _, c := range st.s.callsOf(st) {
			st.s.abort(c, "orphan", "cancelled: nobody was connected to the call for "+lim.Orphan.String())
		}
	}
}

// limitTime starts the clock of a call that may not run for ever.
func (s *Session) limitTime(c *call) {
	d := s.m.lim.CallTimeout
	if d <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.done {
		c.limit = time.AfterFunc(d, func() {
			s.abort(c, "timeout", "cancelled: the call took longer than call-timeout, "+d.String())
		})
	}
}

// abort ends a call with an error and cancels it at the server.
func (s *Session) abort(c *call, how, why string) {
	outcome := wire.AppendError(nil, c.id, wire.CodeInternal, why, []byte(`{"outcome":"unknown"}`))
	s.cancel(c, why, outcome, how)
}

// cancel ends a call, with the outcome or without any, and tells the server.
func (s *Session) cancel(c *call, why string, outcome []byte, how string) {
	ch, inner := c.child, c.inner
	if !s.settle(c, outcome, how) || ch == nil || c.init {
		return
	}
	id := strconv.AppendInt(nil, inner, 10)
	s.m.run(func() { ch.conn.Send(s.m.ctx, notice.Cancel(id, why)) })
}

// dueLoop does what the log's index says is due, until the manager ends.
func (m *Manager) dueLoop() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-tick.C:
		}
		keys, err := m.log.Due(m.ctx, time.Now(), dueBatch)
		if err != nil {
			m.logger.Warn("asking what is due", "error", err)
			continue
		}
		for _, k := range keys {
			if err := m.due(k); err != nil && m.ctx.Err() == nil {
				m.logger.Warn("doing what is due", "stream", k.Stream, "error", err)
			}
		}
		m.dropUnresumable()
	}
}

const dueBatch = 1000

func (m *Manager) due(k eventlog.Key) error {
	s := m.loaded(k.Session)
	if k.Stream == "" {
		if s != nil {
			return m.log.Arm(m.ctx, k, time.Now().Add(m.lim.Grace+m.lim.Keep))
		}
		return m.forgetSession(k.Session)
	}
	if s != nil {
		return s.age(k)
	}
	claim, err := m.log.Claim(m.ctx, k.Session, false)
	if err != nil {
		return err
	}
	defer m.log.Release(k.Session)
	if _, err := m.log.Trim(m.ctx, k, claim.Fence, ^uint64(0), agedKinds); err != nil {
		return err
	}
	return m.log.Arm(m.ctx, k, time.Time{})
}

// agedKinds are what of an ended stream outlives retain-age. The server's
// requests in it need no answer any more.
const agedKinds = eventlog.Kinds(1<<eventlog.Opening | 1<<eventlog.Outcome | 1<<eventlog.End)

// age lets the progress of an ended stream go, and the whole stream if its
// outcome is with the client.
func (s *Session) age(k eventlog.Key) error {
	kept := s.keptOf(k.Stream)
	if kept != nil && kept.proven.Load() {
		s.drop(kept)
		return nil
	}
	if kept != nil {
		s.trimEnded(kept)
	}
	return s.m.log.Arm(s.m.ctx, k, time.Time{})
}

func (s *Session) trimEnded(k *kept) {
	key := eventlog.Key{Session: s.name, Stream: k.stream}
	done, err := s.m.log.Trim(s.m.ctx, key, s.claim.Fence, ^uint64(0), agedKinds)
	if err != nil {
		s.log.Warn("trimming an ended stream", "stream", k.stream, "error", err)
		return
	}
	s.m.meter.Add(EvictedEvents, "", float64(done.Events))
	s.m.meter.Add(RetainedEvents, "", -float64(done.Events))
	k.add(-done.Events, -done.Bytes)
	s.grew(-done.Bytes - done.Events*eventOverhead)
}

// drop removes an ended stream. If a client may still come with its id, the
// call's own id stays, so that its error can be told.
func (s *Session) drop(k *kept) {
	var memo []byte
	if k.idsOut.Load() && k.id != "" {
		memo = []byte(k.id)
	}
	key := eventlog.Key{Session: s.name, Stream: k.stream}
	if err := s.m.log.Drop(s.m.ctx, key, s.claim.Fence, memo); err != nil {
		s.log.Warn("dropping a stream", "stream", k.stream, "error", err)
		return
	}
	s.m.meter.Add(RetainedEvents, "", -float64(k.events.Load()))
	s.grew(-k.size())
	s.forget(k)
}

// dropUnresumable drops the ended streams that nobody can ask for any more: no
// event id of them ever left, and the time for the same request again is over.
func (m *Manager) dropUnresumable() {
	before := time.Now().Add(-m.lim.Repost).UnixNano()
	for _, s := range m.all() {
		for _, k := range s.overdue(before) {
			s.drop(k)
		}
	}
}

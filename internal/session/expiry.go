package session

import (
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/wire"
)

// A session has three clocks. The first stops its child and takes it out of
// memory, the second ends it; both are here. The third, of a stream that has
// ended, is an entry in the log's own index, see Manager.dueLoop.

// never is longer than any process lives.
const never = time.Duration(1<<63 - 1)

// touch is a sign of life.
func (s *Session) touch() { s.lastSign.Store(time.Now().UnixNano()) }

// posted is a sign of life that the client gave by itself.
func (s *Session) posted() {
	now := time.Now().UnixNano()
	s.lastSign.Store(now)
	s.lastPost.Store(now)
}

// startLife starts the first clock.
func (s *Session) startLife() {
	d := s.m.lim.Grace
	if d < 0 {
		d = never
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = time.AfterFunc(d, s.graceOver)
}

// rewind sets the first clock again, unless the session is over.
func (s *Session) rewind(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended && s.life != nil {
		s.life.Reset(d)
	}
}

// idleFor is how long ago the last sign of life was; of a session in use, no
// time at all. The lock is held.
func (s *Session) idleFor() time.Duration {
	if s.accepting+len(s.calls) > 0 || s.readers.Load() > 0 {
		return 0
	}
	return time.Since(time.Unix(0, s.lastSign.Load()))
}

// graceOver runs when the grace may be over, and sets itself again if not.
func (s *Session) graceOver() {
	s.mu.Lock()
	idle, doomed := s.idleFor(), s.doomed
	s.mu.Unlock()
	grace := s.m.lim.Grace
	switch {
	case doomed:
		s.m.run(func() { s.End(s.m.ctx, "refused") })
	case grace >= 0 && idle >= grace:
		s.m.run(func() {
			if !s.m.unload(s) {
				s.rewind(grace)
			}
		})
	case grace >= 0:
		s.rewind(grace - idle)
	}
}

// busy tells whether a call runs: it has a clock of its own, see alone.
func (s *Session) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepting+len(s.calls) > 0 || s.doomed
}

// doom ends a session soon whose initialize got no result, when its client has
// had time to read why.
func (s *Session) doom() {
	s.mu.Lock()
	s.doomed = true
	s.mu.Unlock()
	s.rewind(doomAfter)
}

const doomAfter = 10 * time.Second

// armAlone starts and stops the clocks of a stream by who is connected to it.
func (st *stream) armAlone() {
	st.mu.Lock()
	defer st.mu.Unlock()
	empty, unheard := len(st.seats) == 0, !st.heard()
	begins(&st.empty, empty)
	begins(&st.unheard, unheard)
	if st.closed || !unheard {
		st.disarmAlone()
		return
	}
	lim := &st.s.m.lim
	if st.left > 0 && empty {
		st.wakeAfter(lim.Orphan - time.Since(st.empty))
	}
	if st.waits > 0 {
		st.wakeAfter(lim.AskTimeout)
	}
}

// begins notes since when something holds; the zero time if it does not.
func begins(since *time.Time, holds bool) {
	if !holds {
		*since = time.Time{}
	} else if since.IsZero() {
		*since = time.Now()
	}
}

// wakeAfter lets alone look no later than after d; the lock is held.
func (st *stream) wakeAfter(d time.Duration) {
	at := time.Now().Add(d)
	if d <= 0 || st.lonely != nil && !st.look.After(at) {
		return
	}
	st.look = at
	if st.lonely == nil {
		st.lonely = time.AfterFunc(d, st.alone)
		return
	}
	st.lonely.Reset(d)
}

// disarmAlone stops them; the stream's lock is held.
func (st *stream) disarmAlone() {
	if st.lonely != nil {
		st.lonely.Stop()
		st.lonely = nil
	}
}

// alone acts on a stream nobody was connected to for too long: what the server
// asked is given up, and later the calls are.
func (st *stream) alone() {
	lim := &st.s.m.lim
	st.mu.Lock()
	if st.lonely == nil || st.closed {
		st.mu.Unlock()
		return
	}
	empty, unheard := st.empty, st.unheard
	st.lonely = nil
	st.mu.Unlock()
	if lim.AskTimeout > 0 && !unheard.IsZero() {
		st.giveUpAsks(unheard, lim.AskTimeout)
	}
	if lim.Orphan > 0 && !empty.IsZero() && time.Since(empty) >= lim.Orphan {
		for _, c := range st.s.callsOf(st) {
			st.s.abort(c, "orphan", "cancelled: nobody was connected to the call for "+lim.Orphan.String())
		}
	}
	st.armAlone()
}

// giveUpAsks gives up what was asked and unseen for as long.
func (st *stream) giveUpAsks(since time.Time, limit time.Duration) {
	for _, a := range st.s.asksWhere(func(a *ask) bool { return a.st == st }) {
		waited := time.Since(since)
		if a.at.After(since) {
			waited = time.Since(a.at)
		}
		if waited >= limit {
			a.giveUp("nobody was there to answer for " + limit.String())
			continue
		}
		st.mu.Lock()
		st.wakeAfter(limit - waited)
		st.mu.Unlock()
	}
}

// limitTime starts the clock of a call that may not run for ever; the session's
// lock is held.
func (s *Session) limitTime(c *call) {
	if d := s.m.lim.CallTimeout; d > 0 {
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
		for m.dueOnce() {
		}
		m.dropUnresumable()
		m.relieveStore()
	}
}

// dueBatch is how many keys are asked of the log at once.
const dueBatch = 1000

// dueOnce does a batch and tells whether there is more that can be done.
func (m *Manager) dueOnce() bool {
	keys, err := m.log.Due(m.ctx, time.Now(), dueBatch)
	failed := 0
	for _, k := range keys {
		if e := m.due(k); e != nil {
			err = e
			failed++
		}
	}
	if err != nil && m.ctx.Err() == nil {
		m.logger.Warn("doing what is due", "failed", failed, "of", len(keys), "error", err)
	}
	return err == nil && len(keys) == dueBatch
}

func (m *Manager) due(k eventlog.Key) error {
	for {
		if s := m.loaded(k.Session); s != nil {
			if k.Stream == "" {
				return m.log.Arm(m.ctx, k, m.lim.expiry(true))
			}
			return s.age(k)
		}
		if free := m.holdUnloaded(k.Session); free != nil {
			defer free()
			return m.dueUnloaded(k)
		}
		if err := m.waitLoaded(m.ctx, k.Session); err != nil {
			return err
		}
	}
}

// dueUnloaded is for a session that is only in the log, while nobody can load it.
func (m *Manager) dueUnloaded(k eventlog.Key) error {
	claim, err := m.log.Claim(m.ctx, k.Session, false)
	if err != nil {
		return err
	}
	defer m.log.Release(k.Session)
	if k.Stream == "" {
		m.unpark(k.Session)
		m.meter.Add(metric.SessionsEnded, "expired", 1)
		return m.log.DropSession(m.ctx, k.Session, claim.Fence)
	}
	if _, err := m.log.Trim(m.ctx, k, claim.Fence, ^uint64(0), agedKinds); err != nil {
		return err
	}
	return m.log.Arm(m.ctx, k, time.Time{})
}

// agedKinds are what of an ended stream outlives retain-age. The server's
// requests in it need no answer any more.
const agedKinds = eventlog.Kinds(1<<eventlog.Opening | 1<<eventlog.Outcome | 1<<eventlog.End)

// age lets the progress of an ended stream go, or the whole stream if its
// outcome is with the client. From then on only the log knows of it.
func (s *Session) age(key eventlog.Key) error {
	k := s.keptOf(key.Stream)
	if k != nil && k.proven.Load() && s.drop(k) > 0 {
		return nil
	}
	s.trim(key, k, ^uint64(0), agedKinds)
	if k == nil {
		return s.m.log.Arm(s.m.ctx, key, time.Time{})
	}
	if again, until := s.repostable(k); again {
		return s.m.log.Arm(s.m.ctx, key, until)
	}
	s.forget(k)
	return s.m.log.Arm(s.m.ctx, key, time.Time{})
}

// repostable tells whether the same request again is still to get the outcome,
// and until when.
func (s *Session) repostable(k *kept) (again bool, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answersAgain(k), time.Unix(0, k.endedAt).Add(s.m.lim.Repost)
}

// drop removes an ended stream that nobody uses and tells what that freed. If a
// client may still come with an id of it, the ids of its requests stay, so that
// it can be told.
func (s *Session) drop(k *kept) (freed int64) {
	if !s.takeOut(k) {
		return 0
	}
	key := eventlog.Key{Session: s.name, Stream: k.stream}
	if err := s.m.log.Drop(s.m.ctx, key, s.claim.Fence, k.memo()); err != nil {
		if s.m.ctx.Err() == nil {
			s.log.Warn("dropping a stream", "stream", k.stream, "error", err)
			s.putBack(k)
		}
		return 0
	}
	s.grew(-k.events.Load(), -k.bytes.Load())
	return k.size()
}

// dropUnresumable drops the ended streams that nobody can ask for any more: no
// event id of them ever left, and the time for the same request again is over.
func (m *Manager) dropUnresumable() {
	before := time.Now().Add(-max(m.lim.Repost, 0)).UnixNano()
	for _, s := range m.all() {
		for _, k := range s.overdue(before) {
			s.drop(k)
		}
	}
}

// relieve frees about n bytes of the sessions: streams whose ids nobody ever
// got, then those proven received, then the progress of ended streams, then
// that of running ones; within each of what is left alone longest first.
// Outcomes nobody proved to have, and requests that wait for an answer, stay.
func (m *Manager) relieve(of []*Session, n int64) (freed int64) {
	if !m.relieving.TryLock() {
		return n
	}
	defer m.relieving.Unlock()
	for _, step := range [...]func(*Session, int64) int64{
		(*Session).dropUnseen, (*Session).dropProven, (*Session).trimEnded, (*Session).trimRunning,
	} {
		for _, s := range of {
			if freed >= n {
				return freed
			}
			freed += step(s, n-freed)
		}
	}
	return freed
}

func (s *Session) dropUnseen(n int64) int64 {
	return s.dropWhere(n, func(k *kept) bool { return !k.idsOut.Load() && !k.keyed })
}

func (s *Session) dropProven(n int64) int64 {
	return s.dropWhere(n, func(k *kept) bool { return k.proven.Load() })
}

func (s *Session) dropWhere(n int64, ok func(*kept) bool) (freed int64) {
	for _, k := range s.endedStreams() {
		if freed >= n {
			break
		}
		if ok(k) {
			freed += s.drop(k)
		}
	}
	return freed
}

func (s *Session) trimEnded(n int64) (freed int64) {
	for _, k := range s.endedStreams() {
		if freed >= n {
			break
		}
		if s.trimOnce(k) {
			freed += s.trim(eventlog.Key{Session: s.name, Stream: k.stream}, k, ^uint64(0), agedKinds)
		}
	}
	return freed
}

func (s *Session) trimOnce(k *kept) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !k.trimmed
	k.trimmed = true
	return first
}

// trimRunning drops the older half of what may go of each stream that is
// written, and again while more must.
func (s *Session) trimRunning(n int64) (freed int64) {
	for freed < n {
		before := freed
		for _, st := range s.liveStreams() {
			st.mu.Lock()
			through := st.window.Half()
			st.mu.Unlock()
			if through > 0 {
				freed += st.trim(through)
			}
		}
		if freed == before {
			break
		}
	}
	return freed
}

// relieveStore frees room when the store is over its bound. What a store frees
// it may give back later, so it is given time before the next look.
func (m *Manager) relieveStore() {
	over := m.log.Size() - m.lim.StoreMax
	if over <= 0 || time.Since(m.relieved) < storeRest {
		return
	}
	m.relieved = time.Now()
	freed := m.relieve(m.byIdleness(m.all()), over+m.lim.StoreMax/16)
	m.logger.Warn("the store is full", "over", over, "freed", freed)
}

const storeRest = 10 * time.Second

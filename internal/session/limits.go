package session

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/notice"
	"github.com/segno-mcp/segno/internal/wire"
)

// Limits are the clocks and bounds of sessions. A zero field means its default;
// a negative duration means never.
type Limits struct {
	Grace        time.Duration // without a sign of life for so long, the child is stopped
	Keep         time.Duration // after that, the session is kept for so long
	RetainAge    time.Duration // after a stream's end, its progress is kept for so long
	Orphan       time.Duration // a running call nobody was connected to for so long is cancelled
	AskTimeout   time.Duration // a request of the server waits so long for an absent client
	Repost       time.Duration // a finished call answers the same request again for so long
	CallTimeout  time.Duration // a call may run so long; 0 means without end
	StartTimeout time.Duration // a child must have answered initialize by then
	WriteTimeout time.Duration // a reader that took nothing for so long has stalled

	RetainEvents int64 // kept of a stream, not counting what is pinned
	RetainBytes  int64
	SessionMax   int64 // bytes in the log of a session
	PrincipalMax int64 // of all sessions of a principal
	StoreMax     int64 // of the whole log
	HeldMax      int64 // of a child's output that the log has not taken yet

	Sessions             int // in memory, in all
	SessionsPerPrincipal int
	Children             int
	ChildrenPerPrincipal int
	MaxBatch             int // requests in a batch of 2025-03-26
}

// WithDefaults fills what is zero.
func (l Limits) WithDefaults() Limits {
	l.Grace = cmp.Or(l.Grace, 5*time.Minute)
	l.Keep = cmp.Or(l.Keep, time.Hour)
	l.RetainAge = cmp.Or(l.RetainAge, 15*time.Minute)
	l.Orphan = cmp.Or(l.Orphan, time.Hour)
	l.AskTimeout = cmp.Or(l.AskTimeout, 10*time.Minute)
	l.Repost = cmp.Or(l.Repost, time.Minute)
	l.StartTimeout = cmp.Or(l.StartTimeout, time.Minute)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 30*time.Second)
	l.RetainEvents = cmp.Or(l.RetainEvents, 10000)
	l.RetainBytes = cmp.Or(l.RetainBytes, 16<<20)
	l.SessionMax = cmp.Or(l.SessionMax, 256<<20)
	l.PrincipalMax = cmp.Or(l.PrincipalMax, 1<<30)
	l.StoreMax = cmp.Or(l.StoreMax, 4<<30)
	l.HeldMax = cmp.Or(l.HeldMax, 8<<20)
	l.Sessions = cmp.Or(l.Sessions, 10000)
	l.SessionsPerPrincipal = cmp.Or(l.SessionsPerPrincipal, 1000)
	l.Children = cmp.Or(l.Children, 256)
	l.ChildrenPerPrincipal = cmp.Or(l.ChildrenPerPrincipal, 128)
	l.MaxBatch = cmp.Or(l.MaxBatch, 100)
	return l
}

// Check refuses limits that contradict each other.
func (l Limits) Check() error {
	if l.Keep >= 0 && l.Keep < l.RetainAge {
		return fmt.Errorf("keep (%v) must not be shorter than retain-age (%v): a session would end before its streams do", l.Keep, l.RetainAge)
	}
	return nil
}

// after is when a duration from now is over; no date at all if it never is.
func after(d time.Duration) time.Time {
	if d < 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// expiry is when a session nobody comes for any more ends. In memory it has its
// grace before that.
func (l *Limits) expiry(inMemory bool) time.Time {
	switch {
	case l.Keep < 0:
		return time.Time{}
	case inMemory:
		return time.Now().Add(max(l.Grace, 0) + l.Keep)
	}
	return time.Now().Add(l.Keep)
}

// Refusal is a request that was refused and not executed. In a live session it
// is answered in-band: error -32000 with data {limit, retryAfterMs}.
type Refusal struct {
	Limit      string // the name of the flag that was reached
	Message    string
	RetryAfter time.Duration
	Detail     string // what the server last said, if that helps
}

func (r *Refusal) Error() string { return r.Message }

// refuse makes a refusal and counts it.
func (m *Manager) refuse(limit string, after time.Duration, format string, a ...any) *Refusal {
	m.meter.Add(metric.Refused, limit, 1)
	return &Refusal{Limit: limit, Message: fmt.Sprintf(format, a...), RetryAfter: after}
}

// eventOverhead is what an event costs besides its payload, roughly.
const eventOverhead = 48

// stock is what a session keeps in the log, as it counts for its principal.
type stock struct {
	mu     sync.Mutex
	events int64
	bytes  int64 // with the overhead
	closed bool  // the session is over, or counted as parked
}

// account sums up what one principal uses.
type account struct {
	principal string
	bytes     atomic.Int64
	retry     atomic.Int64 // Unix nanoseconds: nothing more can be freed before, probably

	// The manager's lock guards these.
	refs     int // sessions in memory and parked ones
	sessions int // in memory
	children int
}

// occupy counts a session that is loaded, over the cap if need be.
func (m *Manager) occupy(principal string) *account {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.occupied(principal)
}

// occupied is occupy with the lock held.
func (m *Manager) occupied(principal string) *account {
	a := m.accounts[principal]
	if a == nil {
		a = &account{principal: principal}
		m.accounts[principal] = a
	}
	a.refs++
	a.sessions++
	m.inMemory++
	m.meter.Add(metric.SessionsOpen, "", 1)
	return a
}

// vacate takes back what occupy counted.
func (m *Manager) vacate(a *account) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.sessions--
	m.inMemory--
	m.meter.Add(metric.SessionsOpen, "", -1)
	m.unref(a)
}

// unref forgets an account that nothing counts for; the lock is held.
func (m *Manager) unref(a *account) {
	if a.refs--; a.refs == 0 {
		delete(m.accounts, a.principal)
	}
}

// parked is what a session that is not in memory still counts for.
type parked struct {
	account *account
	bytes   int64
}

// park keeps what a session that leaves the memory counts for.
func (m *Manager) park(s *Session) {
	bytes := s.uncount(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	s.account.sessions--
	m.inMemory--
	m.meter.Add(metric.SessionsOpen, "", -1)
	m.parked[s.name] = parked{s.account, bytes}
}

// unpark gives back what a session counted for while it was out of memory.
func (m *Manager) unpark(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.parked[name]; ok {
		p.account.bytes.Add(-p.bytes)
		delete(m.parked, name)
		m.unref(p.account)
	}
}

// grew keeps the sums and lets go what goes first when one is over its bound.
func (s *Session) grew(events, payload int64) {
	n := payload + events*eventOverhead
	s.stock.mu.Lock()
	if s.stock.closed {
		s.stock.mu.Unlock()
		return
	}
	s.stock.events += events
	s.stock.bytes += n
	own, all := s.stock.bytes, s.account.bytes.Add(n)
	s.stock.mu.Unlock()
	s.m.meter.Add(metric.RetainedEvents, "", float64(events))
	if n > 0 {
		s.keepWithin(own, all)
	}
}

// uncount ends the counting. What is kept of a parked session goes on counting
// for its principal.
func (s *Session) uncount(parked bool) (bytes int64) {
	s.stock.mu.Lock()
	defer s.stock.mu.Unlock()
	if s.stock.closed {
		return 0
	}
	s.stock.closed = true
	s.m.meter.Add(metric.RetainedEvents, "", -float64(s.stock.events))
	if !parked {
		s.account.bytes.Add(-s.stock.bytes)
	}
	return s.stock.bytes
}

func (s *Session) size() int64 {
	s.stock.mu.Lock()
	defer s.stock.mu.Unlock()
	return s.stock.bytes
}

// full refuses what needs room in the log when there is none.
func (s *Session) full() *Refusal {
	lim := &s.m.lim
	switch {
	case s.size() > lim.SessionMax:
		return s.m.refuse("session-max", time.Minute, "the session's streams fill the %d bytes it may use", lim.SessionMax)
	case s.account.bytes.Load() > lim.PrincipalMax:
		return s.m.refuse("principal-max", time.Minute, "the streams of all your sessions fill the %d bytes they may use", lim.PrincipalMax)
	case s.m.log.Size() > lim.StoreMax:
		return s.m.refuse("store-max", time.Minute, "the store is full: it may use %d bytes", lim.StoreMax)
	}
	return nil
}

// childRoom refuses a call that would need one more child than there may be.
// Before that the child of another session of the principal goes, the one left
// alone longest, if nothing runs there: its session starts one again when it
// has to.
func (s *Session) childRoom() error {
	if s.hasChild() {
		return nil
	}
	full, n := s.m.childless(s)
	if full == "" {
		return nil
	}
	for _, other := range s.m.sessionsOf(s.rec.Principal) {
		if other != s && !other.busy() && other.hasChild() {
			other.stopChild("its place was needed by another session")
			return nil
		}
	}
	return s.m.tooMany(full, n)
}

func (s *Session) hasChild() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child != nil
}

// keepWithin frees room when the session or its principal comes near a bound,
// down to a little less, so that not every event has to, and that calls are not
// refused while it works.
func (s *Session) keepWithin(own, all int64) {
	lim := &s.m.lim
	near := func(bound int64) int64 { return bound - bound/16 }
	if own <= near(lim.SessionMax) && all <= near(lim.PrincipalMax) || time.Now().UnixNano() < s.account.retry.Load() {
		return
	}
	from, n := []*Session{s}, own-near(near(lim.SessionMax))
	if own <= near(lim.SessionMax) {
		from, n = s.m.sessionsOf(s.rec.Principal), all-near(near(lim.PrincipalMax))
	}
	if s.m.relieve(from, n) < n {
		s.account.retry.Store(time.Now().Add(time.Second).UnixNano())
	}
}

// A server that ends so often in so short a time is left alone for as long.
const (
	breakerExits  = 5
	breakerWindow = 30 * time.Second
)

// breaker remembers how a session's children ended by themselves.
type breaker struct {
	mu   sync.Mutex
	at   []time.Time
	last *wire.Gone
}

func (b *breaker) ended(g *wire.Gone) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = g
	b.at = append(b.at, time.Now())
	if len(b.at) > breakerExits {
		b.at = b.at[1:]
	}
}

// open tells for how long no new child is to be started, and how the last ended.
func (b *breaker) open() (time.Duration, *wire.Gone) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.at) < breakerExits {
		return 0, nil
	}
	last := b.at[len(b.at)-1]
	if last.Sub(b.at[0]) > breakerWindow {
		return 0, nil
	}
	return time.Until(last.Add(breakerWindow)), b.last
}

// broken refuses calls while the server only ends and ends.
func (s *Session) broken() *Refusal {
	wait, last := s.breaker.open()
	if wait <= 0 {
		return nil
	}
	r := s.m.refuse("child-exits", wait, "the MCP server ended %d times within %v, last: %s", breakerExits, breakerWindow,
		notice.WithLastLine(last.Reason, last.Tail))
	r.Detail = last.Tail
	return r
}

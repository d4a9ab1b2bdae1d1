package session

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/wire"
)

// Upstream starts connections to the MCP server that sessions stand before.
type Upstream interface {
	// Connect starts one connection; label is the session's public id, for
	// logs. ctx bounds the start only.
	Connect(ctx context.Context, label string) (wire.Conn, error)
	// Fingerprint tells one upstream from another, so that a store is not used
	// for two.
	Fingerprint() string
}

// Options configure a Manager. Log and Upstream are needed.
type Options struct {
	Log      eventlog.Log // stays the caller's to close
	Upstream Upstream
	Limits   Limits
	Shared   bool   // one child for all sessions of a principal
	Instance string // four characters of [0-9a-z]; minted if empty
	Logger   *slog.Logger
	Meter    metric.Meter
	Tracer   Tracer
}

// Manager holds the sessions of one upstream. Sessions that nobody uses are in
// the log only. It must be closed.
type Manager struct {
	log    eventlog.Log
	up     Upstream
	lim    Limits
	shared bool
	inst   string
	logger *slog.Logger
	meter  metric.Meter
	tracer Tracer

	ctx      context.Context
	cancel   context.CancelFunc
	others   sync.WaitGroup
	draining chan struct{}

	mu       sync.Mutex
	idle     *sync.Cond // nobody writes to the log
	writing  int
	closed   bool
	drained  bool
	sessions map[string]*Session      // by name in the log
	inMemory int                      // of them, and of those being created
	loading  map[string]chan struct{} // names nobody else may load now
	accounts map[string]*account      // by principal
	children int
	commons  map[string]*child // shared children by principal
	parked   map[string]parked // by session name

	relieving sync.Mutex
	relieved  time.Time // when the store was; dueLoop's own
}

// New starts a Manager.
func New(o Options) (*Manager, error) {
	lim := o.Limits.WithDefaults()
	if err := lim.Check(); err != nil {
		return nil, err
	}
	m := &Manager{
		log: o.Log, up: o.Upstream, lim: lim, shared: o.Shared, inst: o.Instance,
		logger: o.Logger, meter: o.Meter, tracer: o.Tracer,
		draining: make(chan struct{}),
		sessions: map[string]*Session{}, loading: map[string]chan struct{}{},
		accounts: map[string]*account{}, commons: map[string]*child{}, parked: map[string]parked{},
	}
	m.idle = sync.NewCond(&m.mu)
	if m.inst == "" {
		m.inst = NewInstance()
	}
	if m.logger == nil {
		m.logger = slog.New(slog.DiscardHandler)
	}
	if m.meter == nil {
		m.meter = metric.None{}
	}
	if m.tracer == nil {
		m.tracer = noTracer{}
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	if err := m.rearm(); err != nil {
		m.cancel()
		return nil, err
	}
	m.run(m.dueLoop)
	return m, nil
}

// rearm gives every session that another process left behind its full time:
// nobody could reach it while that one was down.
func (m *Manager) rearm() error {
	at := m.lim.expiry(true)
	for after := ""; ; {
		names, err := m.log.Sessions(m.ctx, after, dueBatch)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if err := m.log.Arm(m.ctx, eventlog.Key{Session: name}, at); err != nil {
				return err
			}
		}
		after = names[len(names)-1]
	}
}

// run starts a goroutine that Close waits for; false once nothing may start.
func (m *Manager) run(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.others.Add(1)
	go func() {
		defer m.others.Done()
		f()
	}()
	return true
}

// enter counts one more writer to the log; false once nothing may start.
func (m *Manager) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.writing++
	}
	return !m.closed
}

func (m *Manager) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writing--; m.writing == 0 {
		m.idle.Broadcast()
	}
}

// waitWritten waits until nobody writes to the log, or ctx ends.
func (m *Manager) waitWritten(ctx context.Context) error {
	defer context.AfterFunc(ctx, m.idle.Broadcast)()
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.writing > 0 && ctx.Err() == nil {
		m.idle.Wait()
	}
	if m.writing > 0 {
		return errors.New("shutting down: the store did not take everything in time")
	}
	return nil
}

func (m *Manager) loaded(name string) *Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions[name]
}

// touched is loaded with a sign of life, which nobody who unloads can miss.
func (m *Manager) touched(name string) *Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[name]
	if s != nil {
		s.touch()
	}
	return s
}

// holdUnloaded keeps others from loading a session that is not in memory until
// free is called. nil: it is there, or somebody else holds it.
func (m *Manager) holdUnloaded(name string) (free func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[name] != nil || m.loading[name] != nil {
		return nil
	}
	return m.hold(name)
}

// hold is holdUnloaded with the lock held.
func (m *Manager) hold(name string) (free func()) {
	wait := make(chan struct{})
	m.loading[name] = wait
	return func() {
		m.mu.Lock()
		delete(m.loading, name)
		m.mu.Unlock()
		close(wait)
	}
}

// waitLoaded waits until nobody holds the session's name.
func (m *Manager) waitLoaded(ctx context.Context, name string) error {
	m.mu.Lock()
	wait := m.loading[name]
	m.mu.Unlock()
	if wait == nil {
		return nil
	}
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *Manager) all() []*Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*Session, 0, len(m.sessions))
	for _, s := range m.sessions {
		list = append(list, s)
	}
	return list
}

// sessionsOf lists a principal's sessions, the one that was idle longest first.
func (m *Manager) sessionsOf(principal string) []*Session {
	others := func(s *Session) bool { return s.rec.Principal != principal }
	return m.byIdleness(slices.DeleteFunc(m.all(), others))
}

func (m *Manager) byIdleness(list []*Session) []*Session {
	slices.SortFunc(list, func(a, b *Session) int { return cmp.Compare(a.lastPost.Load(), b.lastPost.Load()) })
	return list
}

// room counts one more session. At the principal's cap, its session that is
// idle longest goes; at the cap of all, nobody's does for somebody else.
func (m *Manager) room(principal string) (*account, error) {
	for {
		acc, full := m.tryRoom(principal)
		switch full {
		case "":
			return acc, nil
		case "drain":
			return nil, m.refuse(full, 5*time.Second, "segno is shutting down")
		}
		oldest := m.idlest(principal)
		if oldest == nil {
			return nil, m.refuse(full, 10*time.Second, "there are as many sessions as there may be (--%s)", full)
		}
		err := oldest.End(m.ctx, "pushed out by a newer session of the same principal")
		if err != nil && !errors.Is(err, eventlog.ErrNoSession) {
			return nil, err
		}
	}
}

// tryRoom returns the limit that leaves no room, if one does.
func (m *Manager) tryRoom(principal string) (acc *account, full string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.accounts[principal]
	switch {
	case m.drained:
		return nil, "drain"
	case m.inMemory >= m.lim.Sessions:
		return nil, "max-sessions"
	case a != nil && a.sessions >= m.lim.SessionsPerPrincipal:
		return nil, "max-sessions-per-principal"
	}
	return m.occupied(principal), ""
}

// idlest is the principal's session whose client said nothing for longest and
// for which nothing runs.
func (m *Manager) idlest(principal string) *Session {
	for _, s := range m.sessionsOf(principal) {
		if !s.busy() {
			return s
		}
	}
	return nil
}

// list enters the session into the table.
func (m *Manager) list(s *Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[s.name] = s
}

// remove takes the session out of the table and holds its name until free is
// called; nil if it was not there.
func (m *Manager) remove(s *Session) (free func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[s.name] != s {
		return nil
	}
	delete(m.sessions, s.name)
	return m.hold(s.name)
}

// Draining is closed when Drain was called.
func (m *Manager) Draining() <-chan struct{} { return m.draining }

// Drain makes the manager refuse new sessions and tells connections to end as
// soon as they have nothing to wait for.
func (m *Manager) Drain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.drained {
		m.drained = true
		close(m.draining)
	}
}

// Close stops every child, settles the calls that run, writes what is queued
// and returns when nothing of the manager is left, or with an error when the
// store would not take the rest before ctx ended.
func (m *Manager) Close(ctx context.Context) error {
	m.Drain()
	m.stopChildren()
	err := m.waitWritten(ctx)
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.stopChildren() // that a request of the last moment started; no more can be
	m.waitWritten(context.Background())
	m.others.Wait()
	for _, s := range m.all() {
		s.shut()
	}
	return err
}

func (m *Manager) stopChildren() {
	var stops sync.WaitGroup
	for _, s := range m.all() {
		stops.Go(func() { s.stopChild("segno was shut down") })
	}
	stops.Wait()
}

// shut leaves the session to the next process.
func (s *Session) shut() {
	if free := s.m.remove(s); free != nil {
		free()
		s.retire()
		for _, st := range s.liveStreams() {
			st.close()
		}
		s.over()
		s.m.log.Release(s.name)
	}
}

// childOf makes a child for the session, or hands out the one its principal
// shares. The session's lock is held.
func (m *Manager) childOf(s *Session) (*child, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shared {
		if ch := m.commons[s.rec.Principal]; ch != nil && ch.joined(s) {
			return ch, nil
		}
	}
	if full, n := m.noChild(s); full != "" {
		return nil, m.tooMany(full, n)
	}
	m.children++
	s.account.children++
	ch := newChild(m, s)
	if m.shared {
		m.commons[s.rec.Principal] = ch
	}
	return ch, nil
}

// childless returns the limit that lets the session have no child, if one does.
func (m *Manager) childless(s *Session) (full string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shared && m.commons[s.rec.Principal] != nil {
		return "", 0
	}
	return m.noChild(s)
}

// noChild is childless with the lock held.
func (m *Manager) noChild(s *Session) (full string, n int) {
	switch {
	case m.children >= m.lim.Children:
		return "max-children", m.lim.Children
	case s.account.children >= m.lim.ChildrenPerPrincipal:
		return "max-children-per-principal", m.lim.ChildrenPerPrincipal
	}
	return "", 0
}

func (m *Manager) tooMany(limit string, n int) error {
	return m.refuse(limit, 10*time.Second, "%d MCP server processes are running, which is all that may (--%s)", n, limit)
}

func (m *Manager) childGone(ch *child) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.children--
	ch.account.children--
	if m.commons[ch.first.rec.Principal] == ch {
		delete(m.commons, ch.first.rec.Principal)
	}
}

// Vitals is what only the process that runs a session knows of it.
type Vitals struct {
	Seen    time.Time // last sign of life
	Child   bool      // its server process runs
	Readers map[string][]Seat
}

// Seat is a connection to a stream, as it is shown.
type Seat struct {
	Place uint64
	Spare bool
}

// InMemory tells about the sessions in memory, by their name in the log.
func (m *Manager) InMemory() map[string]Vitals {
	all := map[string]Vitals{}
	for _, s := range m.all() {
		l := Vitals{Seen: time.Unix(0, s.lastSign.Load()), Readers: map[string][]Seat{}}
		s.mu.Lock()
		l.Child = s.child != nil
		s.mu.Unlock()
		for _, st := range s.liveStreams() {
			if seats := st.shown(); len(seats) > 0 {
				l.Readers[st.key.Stream] = seats
			}
		}
		all[s.name] = l
	}
	return all
}

package session

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/segno-mcp/segno/eventlog"
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
	Meter    Meter
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
	meter  Meter
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
	sessions map[string]*Session // by name in the log
	loading  map[string]chan struct{}
	accounts map[string]*account // by principal
	children int
	commons  map[string]*child // shared children by principal
	parked   map[string]parked // by session name
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
		m.meter = noMeter{}
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

// Instance names the process; session ids start with it.
func (m *Manager) Instance() string { return m.inst }

// Limits are the ones in force.
func (m *Manager) Limits() Limits { return m.lim }

// rearm gives every session that another process left behind its full time:
// nobody could reach it while that one was down.
func (m *Manager) rearm() error {
	at := time.Now().Add(m.lim.Grace + m.lim.Keep)
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

// run starts a goroutine that Close waits for.
func (m *Manager) run(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.others.Add(1)
	go func() {
		defer m.others.Done()
		f()
	}()
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

func (m *Manager) all() []*Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*Session, 0, len(m.sessions))
	for _, s := range m.sessions {
		list = append(list, s)
	}
	return list
}

// accountOf is the principal's account; the lock is held.
func (m *Manager) accountOf(principal string) *account {
	a := m.accounts[principal]
	if a == nil {
		a = &account{}
		m.accounts[principal] = a
	}
	return a
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
// and returns when nothing of the manager is left, or with ctx's error when
// the store would not take the rest in time.
func (m *Manager) Close(ctx context.Context) error {
	m.Drain()
	var stops sync.WaitGroup
	for _, s := range m.all() {
		stops.Go(func() { s.stopChild("Segno was shut down") })
	}
	stops.Wait()
	for _, s := range m.all() {
		m.unload(s, "shutdown")
	}
	err := m.waitWritten(ctx)
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	for _, s := range m.all() {
		s.held.Open()
	}
	m.waitWritten(context.Background())
	m.others.Wait()
	return err
}

// childOf makes a child for the session, or hands out the one its principal
// shares. The session's lock is held.
func (m *Manager) childOf(s *Session) (*child, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shared {
		if ch := m.commons[s.rec.Principal]; ch != nil {
			ch.mu.Lock()
			ch.members = append(ch.members, s)
			ch.mu.Unlock()
			return ch, nil
		}
	}
	if m.children >= m.lim.Children {
		return nil, m.tooMany("max-children", m.lim.Children)
	}
	if s.account.children >= m.lim.ChildrenPerPrincipal {
		return nil, m.tooMany("max-children-per-principal", m.lim.ChildrenPerPrincipal)
	}
	m.children++
	s.account.children++
	ch := newChild(m, s)
	if m.shared {
		m.commons[s.rec.Principal] = ch
	}
	return ch, nil
}

func (m *Manager) tooMany(limit string, n int) error {
	m.meter.Add(Refused, limit, 1)
	return refuse(limit, 10*time.Second, "%d MCP server processes are running, which is all that may (--%s)", n, limit)
}

func (m *Manager) childGone(ch *child) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.children--
	ch.first.account.children--
	if m.commons[ch.first.rec.Principal] == ch {
		delete(m.commons, ch.first.rec.Principal)
	}
}

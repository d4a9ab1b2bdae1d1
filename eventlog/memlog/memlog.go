// Package memlog keeps streams in memory. They are gone with the process; apart
// from that it does all that the contract asks for, so it serves where nothing
// has to outlive a restart, and as the log of tests.
package memlog

import (
	"context"
	"slices"
	"sync"

	"github.com/segno-mcp/segno/eventlog"
)

// Log is an eventlog.Log in memory. Appending and reading copy no payload, and
// reading allocates nothing.
type Log struct {
	mu       sync.RWMutex
	closed   bool
	fence    uint64
	size     int64
	sessions map[string]*session
	names    map[string]eventlog.Key
	due      dueIndex
	watchers map[eventlog.Key][]chan<- struct{}
}

type session struct {
	claim   eventlog.Claim
	record  []byte
	streams map[string]*stream
	memos   map[string][]byte
	dropped []string // streams with a memo, the one to forget first in front
}

var _ eventlog.Log = (*Log)(nil)

// New makes an empty log.
func New() *Log {
	return &Log{
		sessions: map[string]*session{},
		names:    map[string]eventlog.Key{},
		due:      dueIndex{of: map[eventlog.Key]*armed{}},
		watchers: map[eventlog.Key][]chan<- struct{}{},
	}
}

// Claim implements eventlog.Writer.
func (l *Log) Claim(ctx context.Context, name string, create bool) (eventlog.Claim, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(ctx); err != nil {
		return eventlog.Claim{}, err
	}
	probe := eventlog.Append{Key: eventlog.Key{Session: name}}
	if err := probe.Check(); err != nil {
		return eventlog.Claim{}, err
	}
	s := l.sessions[name]
	if s == nil {
		if !create {
			return eventlog.Claim{}, eventlog.ErrNoSession
		}
		s = &session{streams: map[string]*stream{}, memos: map[string][]byte{}}
		l.sessions[name] = s
	}
	l.fence++ // of the whole log: a session made anew must not take old fences
	s.claim = eventlog.Claim{Fence: l.fence, Term: eventlog.NewTerm()}
	return s.claim, nil
}

// Append implements eventlog.Writer. It takes the events' payloads without
// copying them.
func (l *Log) Append(ctx context.Context, a eventlog.Append) error {
	if err := a.Check(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.owned(ctx, a.Session, a.Fence)
	if err != nil {
		return err
	}
	st, err := s.target(&a)
	if err != nil {
		return err
	}
	if err := l.bind(&a, st); err != nil {
		return err
	}
	if len(a.Events) > 0 {
		s.streams[a.Stream] = st
		l.size += st.append(s.claim.Term, a.Events)
		l.wake(a.Key)
	}
	if a.Record != nil {
		s.record = slices.Clone(a.Record)
	}
	if !a.Due.IsZero() {
		l.due.arm(a.Key, a.Due.UnixNano())
	}
	return nil
}

// Release implements eventlog.Writer. There is nothing to forget here.
func (l *Log) Release(string) {}

// target finds the stream that an append is for, or makes it; nil if the append
// is for the session alone.
func (s *session) target(a *eventlog.Append) (*stream, error) {
	if a.Stream == "" {
		return nil, nil
	}
	st := s.streams[a.Stream]
	if st == nil {
		if _, dropped := s.memos[a.Stream]; dropped || a.After > 0 || len(a.Events) == 0 {
			return nil, eventlog.ErrNoStream
		}
		return &stream{}, nil
	}
	if a.After != st.top {
		return nil, &eventlog.AfterError{After: a.After, Top: st.top}
	}
	if st.ended && len(a.Events) > 0 {
		return nil, eventlog.ErrEnded
	}
	return st, nil
}

func (l *Log) bind(a *eventlog.Append, st *stream) error {
	if a.Bind == "" {
		return nil
	}
	holder, taken := l.names[a.Bind]
	if taken && holder != a.Key {
		return &eventlog.TakenError{Name: a.Bind, Holder: holder}
	}
	if !taken {
		l.names[a.Bind] = a.Key
		st.names = append(st.names, a.Bind)
	}
	return nil
}

func (l *Log) usable(ctx context.Context) error {
	if l.closed {
		return eventlog.ErrClosed
	}
	return ctx.Err()
}

// owned finds the session if the fence is its newest.
func (l *Log) owned(ctx context.Context, name string, fence uint64) (*session, error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	s := l.sessions[name]
	if s == nil {
		return nil, eventlog.ErrNoSession
	}
	if s.claim.Fence != fence {
		return nil, eventlog.ErrFenced
	}
	return s, nil
}

// Size implements eventlog.Closer.
func (l *Log) Size() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.size
}

// Close implements eventlog.Closer. The streams are gone.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return eventlog.ErrClosed
	}
	l.closed = true
	l.sessions, l.names, l.size = nil, nil, 0
	for k := range l.watchers {
		l.wake(k)
	}
	return nil
}

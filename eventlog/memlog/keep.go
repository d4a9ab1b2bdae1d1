package memlog

import (
	"context"
	"slices"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/internal/tail"
)

// Trim implements eventlog.Keeper.
func (l *Log) Trim(ctx context.Context, k eventlog.Key, fence, through uint64, keep eventlog.Kinds) (eventlog.Trimmed, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.owned(ctx, k.Session, fence)
	if err != nil {
		return eventlog.Trimmed{}, err
	}
	st := s.streams[k.Stream]
	if st == nil {
		return eventlog.Trimmed{}, eventlog.ErrNoStream
	}
	gone := st.trim(through, keep)
	l.size -= gone.Bytes + gone.Events*tail.Overhead
	return gone, nil
}

// Drop implements eventlog.Keeper.
func (l *Log) Drop(ctx context.Context, k eventlog.Key, fence uint64, memo []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.owned(ctx, k.Session, fence)
	if err != nil {
		return err
	}
	st := s.streams[k.Stream]
	if st == nil {
		return eventlog.ErrNoStream
	}
	l.forget(k, st)
	delete(s.streams, k.Stream)
	if memo != nil {
		s.remember(k.Stream, memo)
	}
	return nil
}

func (s *session) remember(stream string, memo []byte) {
	s.memos[stream] = slices.Clone(memo)
	s.dropped = append(s.dropped, stream)
	if len(s.dropped) > eventlog.Remembered {
		delete(s.memos, s.dropped[0])
		s.dropped = s.dropped[1:]
	}
}

// forget removes what points to a stream and tells its watchers.
func (l *Log) forget(k eventlog.Key, st *stream) {
	for _, name := range st.names {
		delete(l.names, name)
	}
	l.due.disarm(k)
	l.size -= st.bytes + st.events*tail.Overhead
	l.wake(k)
}

// DropSession implements eventlog.Keeper.
func (l *Log) DropSession(ctx context.Context, name string, fence uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.owned(ctx, name, fence)
	if err != nil {
		return err
	}
	for stream, st := range s.streams {
		l.forget(eventlog.Key{Session: name, Stream: stream}, st)
	}
	l.due.disarm(eventlog.Key{Session: name})
	delete(l.sessions, name)
	return nil
}

// Arm implements eventlog.Keeper.
func (l *Log) Arm(ctx context.Context, k eventlog.Key, at time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(ctx); err != nil {
		return err
	}
	s := l.sessions[k.Session]
	if s == nil {
		return eventlog.ErrNoSession
	}
	if k.Stream != "" && s.streams[k.Stream] == nil {
		return eventlog.ErrNoStream
	}
	if at.IsZero() {
		l.due.disarm(k)
		return nil
	}
	l.due.arm(k, at.UnixNano())
	return nil
}

// Due implements eventlog.Keeper.
func (l *Log) Due(ctx context.Context, now time.Time, max int) ([]eventlog.Key, error) {
	l.mu.Lock() // the index is reordered while it is read
	defer l.mu.Unlock()
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	return l.due.until(now.UnixNano(), max), nil
}

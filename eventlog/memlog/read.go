package memlog

import (
	"context"
	"slices"

	"github.com/segno-mcp/segno/eventlog"
)

// Read implements eventlog.Reader. A page is a part of a chunk of at most 256
// events, whatever max is.
func (l *Log) Read(ctx context.Context, k eventlog.Key, after uint64, max int) (eventlog.Page, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	st, err := l.stream(ctx, k)
	if err != nil {
		return eventlog.Page{}, err
	}
	events, term := st.read(after, max)
	if len(events) == 0 {
		term, _ = st.termOf(st.top)
	}
	return eventlog.Page{Term: term, Events: events, Top: st.top, Ended: st.ended}, nil
}

// Stat implements eventlog.Reader.
func (l *Log) Stat(ctx context.Context, k eventlog.Key) (eventlog.Info, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	st, err := l.stream(ctx, k)
	if err == nil {
		return st.info(), nil
	}
	if s := l.sessions[k.Session]; s != nil {
		if memo, dropped := s.memos[k.Stream]; dropped {
			return eventlog.Info{Dropped: true, Memo: memo}, nil
		}
	}
	return eventlog.Info{}, err
}

func (l *Log) stream(ctx context.Context, k eventlog.Key) (*stream, error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	if s := l.sessions[k.Session]; s != nil {
		if st := s.streams[k.Stream]; st != nil {
			return st, nil
		}
	}
	return nil, eventlog.ErrNoStream
}

// Watch implements eventlog.Reader.
func (l *Log) Watch(k eventlog.Key, hint chan<- struct{}) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers[k] = append(l.watchers[k], hint)
	stopped := false
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if stopped {
			return
		}
		stopped = true
		left := l.watchers[k]
		n := slices.Index(left, hint)
		if left = slices.Delete(left, n, n+1); len(left) == 0 {
			delete(l.watchers, k)
			return
		}
		l.watchers[k] = left
	}
}

// wake hints the watchers of a stream. A full channel has a hint already.
func (l *Log) wake(k eventlog.Key) {
	for _, hint := range l.watchers[k] {
		select {
		case hint <- struct{}{}:
		default:
		}
	}
}

// Record implements eventlog.Lister.
func (l *Log) Record(ctx context.Context, name string) ([]byte, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	s := l.sessions[name]
	if s == nil {
		return nil, eventlog.ErrNoSession
	}
	return s.record, nil
}

// Sessions implements eventlog.Lister.
func (l *Log) Sessions(ctx context.Context, after string, max int) ([]string, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	var names []string
	for name := range l.sessions {
		if name > after {
			names = append(names, name)
		}
	}
	return firsts(names, max), nil
}

// Streams implements eventlog.Lister.
func (l *Log) Streams(ctx context.Context, name, after string, max int) ([]string, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	s := l.sessions[name]
	if s == nil {
		return nil, nil
	}
	var names []string
	for name := range s.streams {
		if name > after {
			names = append(names, name)
		}
	}
	for name := range s.memos {
		if name > after {
			names = append(names, name)
		}
	}
	return firsts(names, max), nil
}

func firsts(names []string, max int) []string {
	slices.Sort(names)
	return names[:min(len(names), max)]
}

// Lookup implements eventlog.Lister.
func (l *Log) Lookup(ctx context.Context, name string) (eventlog.Key, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.usable(ctx); err != nil {
		return eventlog.Key{}, err
	}
	k, bound := l.names[name]
	if !bound {
		return eventlog.Key{}, eventlog.ErrNoStream
	}
	return k, nil
}

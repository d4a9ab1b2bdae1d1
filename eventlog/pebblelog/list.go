package pebblelog

import (
	"bytes"
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/segno-mcp/segno/eventlog"
)

// Arm implements eventlog.Keeper.
func (l *Log) Arm(ctx context.Context, k eventlog.Key, at time.Time) error {
	if !nameable(k) {
		return eventlog.ErrNoSession
	}
	o := &op{}
	o.add = func(g *group) error {
		if _, err := l.owner(k.Session); err != nil {
			return err
		}
		if k.Stream != "" && l.places.find(k) == nil {
			f, err := l.load(k)
			if err != nil {
				return err
			}
			if f.state == nil {
				return eventlog.ErrNoStream
			}
		}
		if at.IsZero() {
			return l.disarm(g, k)
		}
		return l.date(g, k, at, true)
	}
	return l.do(ctx, o)
}

// Due implements eventlog.Keeper.
func (l *Log) Due(ctx context.Context, now time.Time, max int) ([]eventlog.Key, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.gate.RUnlock()
	lower, upper := []byte{spaceDue}, dateKey(now.UnixNano()+1, eventlog.Key{})
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, l.damaged(err)
	}
	defer it.Close()
	var keys []eventlog.Key
	for ok := it.First(); ok && len(keys) < max; ok = it.Next() {
		keys = append(keys, pairOf(it.Key()[9:]))
	}
	return keys, l.damaged(it.Error())
}

// Record implements eventlog.Lister.
func (l *Log) Record(ctx context.Context, session string) ([]byte, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.gate.RUnlock()
	if !nameable(eventlog.Key{Session: session}) {
		return nil, eventlog.ErrNoSession
	}
	record, err := l.get(sessionKey(session, recordKey))
	if record != nil || err != nil {
		return record, err
	}
	own, err := l.get(sessionKey(session, ownKey))
	if own == nil && err == nil {
		err = eventlog.ErrNoSession
	}
	return nil, err
}

// get returns a copy of a value, nil if there is none.
func (l *Log) get(key []byte) ([]byte, error) {
	v, closer, err := l.db.Get(key)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, l.damaged(err)
	}
	defer closer.Close()
	return append([]byte{}, v...), nil
}

// Sessions implements eventlog.Lister.
func (l *Log) Sessions(ctx context.Context, from string, max int) ([]string, error) {
	return l.names(ctx, []byte{spaceSession}, from, max)
}

// Streams implements eventlog.Lister.
func (l *Log) Streams(ctx context.Context, session, from string, max int) ([]string, error) {
	if !nameable(eventlog.Key{Session: session}) {
		return nil, nil
	}
	return l.names(ctx, sessionKey(session, streamKeys), from, max)
}

// names lists the distinct names that follow a prefix and end with a zero byte,
// jumping from one to the next.
func (l *Log) names(ctx context.Context, prefix []byte, from string, max int) ([]string, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	defer l.gate.RUnlock()
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return nil, l.damaged(err)
	}
	defer it.Close()
	var names []string
	next := func(name string) []byte { return append(append(prefix[:len(prefix):len(prefix)], name...), 1) }
	ok := it.SeekGE(next(from))
	if from == "" {
		ok = it.First()
	}
	for ok && len(names) < max {
		name, _, _ := bytes.Cut(it.Key()[len(prefix):], []byte{0})
		names = append(names, string(name))
		ok = it.SeekGE(next(names[len(names)-1]))
	}
	return names, l.damaged(it.Error())
}

// Lookup implements eventlog.Lister.
func (l *Log) Lookup(ctx context.Context, name string) (eventlog.Key, error) {
	if err := l.enter(ctx); err != nil {
		return eventlog.Key{}, err
	}
	defer l.gate.RUnlock()
	v, err := l.get(nameKey(name))
	if err != nil {
		return eventlog.Key{}, err
	}
	if v == nil {
		return eventlog.Key{}, eventlog.ErrNoStream
	}
	return pairOf(v), nil
}

// Watch implements eventlog.Reader.
func (l *Log) Watch(k eventlog.Key, hint chan<- struct{}) (stop func()) {
	return l.places.watch(k, hint)
}

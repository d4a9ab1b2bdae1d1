package pebblelog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/segno-mcp/segno/eventlog"
)

// Drop implements eventlog.Keeper.
func (l *Log) Drop(ctx context.Context, k eventlog.Key, fence uint64, note []byte) error {
	if !nameable(k) {
		return eventlog.ErrNoSession
	}
	o := &op{alone: true}
	o.add = func(g *group) error {
		w, err := l.owned(k.Session, fence)
		if err != nil {
			return err
		}
		f, err := l.load(k)
		if err != nil {
			return err
		}
		if f.state == nil {
			return eventlog.ErrNoStream
		}
		if err := l.unbind(g.batch, k.Session, boundPrefix(k)); err != nil {
			return err
		}
		if err := l.disarm(g, k); err != nil {
			return err
		}
		prefix := streamPrefix(k)
		if err := l.erase(g.batch, prefix, after(prefix)); err != nil {
			return err
		}
		if note != nil {
			if err := l.remember(g.batch, k, note); err != nil {
				return err
			}
		}
		delete(w.streams, k.Stream)
		o.publish = func() { l.places.drop(k) }
		return nil
	}
	return l.do(ctx, o)
}

// remember keeps a memo, and forgets the session's oldest if it has too many.
func (l *Log) remember(b *pebble.Batch, k eventlog.Key, note []byte) error {
	prefix := sessionKey(k.Session, memoKeys)
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	defer it.Close()
	next := uint64(0)
	if it.Last() {
		next = seqOf(it.Key()) + 1
	}
	if err := it.Error(); err != nil { // the next seek forgets it
		return err
	}
	if it.First() && next-seqOf(it.Key()) >= eventlog.Remembered {
		oldest := eventlog.Key{Session: k.Session, Stream: string(it.Value())}
		if err := b.Delete(it.Key(), nil); err != nil {
			return err
		}
		if err := b.Delete(streamKey(oldest, memo), nil); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	if err := b.Set(memoKey(k.Session, next), []byte(k.Stream), nil); err != nil {
		return err
	}
	return b.Set(streamKey(k, memo), note, nil)
}

// unbind frees the names that are bound under a prefix of bound keys, which end
// with the name.
func (l *Log) unbind(b *pebble.Batch, session string, prefix []byte) error {
	skip := len(sessionKey(session, boundKeys))
	return l.scan(prefix, func(key, _ []byte) error {
		bound := pairOf(key[skip:]) // stream 0 name
		if err := b.Delete(nameKey(bound.Stream), nil); err != nil {
			return err
		}
		return b.Delete(key, nil)
	})
}

// scan calls use with each key under a prefix.
func (l *Log) scan(prefix []byte, use func(key, value []byte) error) error {
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		if err := use(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Error()
}

// DropSession implements eventlog.Keeper.
func (l *Log) DropSession(ctx context.Context, session string, fence uint64) error {
	o := &op{alone: true}
	o.add = func(g *group) error {
		if _, err := l.owned(session, fence); err != nil {
			return err
		}
		if err := l.unbind(g.batch, session, sessionKey(session, boundKeys)); err != nil {
			return err
		}
		prefix := sessionKey(session, dueKeys)
		err := l.scan(prefix, func(key, v []byte) error {
			k := eventlog.Key{Session: session, Stream: string(key[len(prefix):])}
			return g.batch.Delete(dateKey(int64(binary.BigEndian.Uint64(v)), k), nil)
		})
		if err != nil {
			return err
		}
		all := sessionPrefix(session)
		if err := l.erase(g.batch, all, after(all)); err != nil {
			return err
		}
		delete(l.owners, session)
		o.publish = func() { l.places.dropSession(session) }
		return nil
	}
	return l.do(ctx, o)
}

// Each range delete in the memtable makes every new iterator slower, so a few
// keys are deleted one by one, and a memtable with many range deletes is flushed.
const (
	fewKeys    = 100
	manyRanges = 256
)

// erase deletes all keys from lower up to upper.
func (l *Log) erase(b *pebble.Batch, lower, upper []byte) error {
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	defer it.Close()
	var keys [][]byte
	for ok := it.First(); ok; ok = it.Next() {
		if len(keys) == fewKeys {
			l.ranges++
			return b.DeleteRange(lower, upper, nil)
		}
		keys = append(keys, bytes.Clone(it.Key()))
	}
	for _, key := range keys {
		if err := b.Delete(key, nil); err != nil {
			return err
		}
	}
	return it.Error()
}

// settle flushes pebble's memtable if it has too many range deletes.
func (l *Log) settle() error {
	if l.ranges < manyRanges {
		return nil
	}
	l.ranges = 0
	_, err := l.db.AsyncFlush()
	return err
}

// dropSession removes the streams of a session, watched ones too.
func (p *places) dropSession(session string) {
	var gone []eventlog.Key
	p.mu.Lock()
	for k, lv := range p.live {
		if k.Session == session {
			p.forget(lv)
		}
	}
	for k := range p.watchers {
		if k.Session == session {
			gone = append(gone, k)
		}
	}
	p.mu.Unlock()
	for _, k := range gone {
		p.wake(k)
	}
}

// disarm takes a key out of the index of dates.
func (l *Log) disarm(g *group, k eventlog.Key) error {
	before, armed := g.dates[k]
	if armed {
		delete(g.dates, k)
		if err := g.batch.Delete(dateKey(before, k), nil); err != nil {
			return err
		}
	} else if err := l.undate(g, k); err != nil {
		return err
	}
	return g.batch.Delete(dueKey(k), nil)
}

func isMissing(err error) bool { return errors.Is(err, pebble.ErrNotFound) }

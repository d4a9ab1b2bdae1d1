package pebblelog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/segno-mcp/segno/eventlog"
)

// Append implements eventlog.Writer.
func (l *Log) Append(ctx context.Context, a eventlog.Append) error {
	if err := a.Check(); err != nil {
		return err
	}
	if a.After == 0 && len(a.Events) > 0 && l.low.Load() {
		return fmt.Errorf("%w: the disk is nearly full", eventlog.ErrUnavailable)
	}
	o := l.appends.Get().(*op)
	o.a, o.sync = a, a.Durable && l.sync == SyncOutcomes || l.sync == SyncAlways
	err := l.do(ctx, o)
	o.a, o.lv, o.to = eventlog.Append{}, nil, state{}
	l.appends.Put(o)
	return err
}

// add checks an append and puts it into the batch: all of it, or nothing.
func (l *Log) add(g *group, o *op) error {
	a := &o.a
	w, err := l.owned(a.Session, a.Fence)
	if err != nil {
		return err
	}
	lv, err := l.target(a)
	if err != nil {
		return err
	}
	if err := l.bind(g, a); err != nil {
		return err
	}
	if a.Record != nil {
		if err := g.batch.Set(sessionKey(a.Session, recordKey), a.Record, nil); err != nil {
			return err
		}
	}
	if !a.Due.IsZero() {
		if err := l.date(g, a.Key, a.Due, a.Stream == "" || a.After > 0 && (lv == nil || !lv.undated)); err != nil {
			return err
		}
	}
	if len(a.Events) == 0 {
		return nil
	}
	return l.write(g, o, w, lv)
}

// target finds the stream that an append is for, or makes it; nil if nothing is
// to be written to a stream.
func (l *Log) target(a *eventlog.Append) (*live, error) {
	if a.Stream == "" {
		return nil, nil
	}
	lv := l.places.find(a.Key)
	if lv == nil && a.New && a.After == 0 && len(a.Events) > 0 {
		return &live{key: a.Key, undated: true}, nil
	}
	if lv == nil {
		f, err := load(l.db, a.Key)
		if err != nil {
			return nil, err
		}
		switch {
		case f.state != nil:
			lv = &live{key: a.Key, ahead: *f.state, seen: *f.state}
		case f.memo != nil || a.After > 0 || len(a.Events) == 0:
			return nil, eventlog.ErrNoStream
		default:
			return &live{key: a.Key}, nil
		}
	}
	switch {
	case a.After != lv.ahead.top:
		return nil, &eventlog.AfterError{After: a.After, Top: lv.ahead.top}
	case lv.ahead.ended && len(a.Events) > 0:
		return nil, eventlog.ErrEnded
	}
	return lv, nil
}

func (l *Log) bind(g *group, a *eventlog.Append) error {
	if a.Bind == "" {
		return nil
	}
	holder, taken := g.names[a.Bind]
	if !taken {
		v, closer, err := l.db.Get(nameKey(a.Bind))
		switch {
		case err == nil:
			holder, taken = pairOf(v), true
			closer.Close()
		case !errors.Is(err, pebble.ErrNotFound):
			return err
		}
	}
	if taken && holder != a.Key {
		return &eventlog.TakenError{Name: a.Bind, Holder: holder}
	}
	if taken {
		return nil
	}
	g.names[a.Bind] = a.Key
	if err := g.batch.Set(nameKey(a.Bind), appendPair(nil, a.Key), nil); err != nil {
		return err
	}
	return g.batch.Set(append(boundPrefix(a.Key), a.Bind...), nil, nil)
}

// date arms a key within the group. old says that it may be armed already.
func (l *Log) date(g *group, k eventlog.Key, at time.Time, old bool) error {
	if before, armed := g.dates[k]; armed {
		if err := g.batch.Delete(dateKey(before, k), nil); err != nil {
			return err
		}
	} else if old {
		if err := l.undate(g, k); err != nil {
			return err
		}
	}
	if lv := l.places.find(k); lv != nil {
		lv.undated = false
	}
	n := at.UnixNano()
	g.dates[k] = n
	if err := g.batch.Set(dateKey(n, k), nil, nil); err != nil {
		return err
	}
	return g.batch.Set(dueKey(k), binary.BigEndian.AppendUint64(nil, uint64(n)), nil)
}

// undate takes the date that pebble knows out of the index.
func (l *Log) undate(g *group, k eventlog.Key) error {
	v, closer, err := l.db.Get(dueKey(k))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closer.Close()
	return g.batch.Delete(dateKey(int64(binary.BigEndian.Uint64(v)), k), nil)
}

// write adds the events, and sees to it that readers learn of them only when
// they count.
func (l *Log) write(g *group, o *op, w *owner, lv *live) error {
	a := &o.a
	st := &lv.ahead
	if name := w.claim.Term; len(st.terms) == 0 || st.terms[len(st.terms)-1].Name != name {
		terms := append(st.terms[:len(st.terms):len(st.terms)], eventlog.Term{Name: name, First: st.top + 1})
		if st.terms = terms; len(terms) > 1 {
			if err := g.batch.Set(streamKey(a.Key, meta), st.encode(), nil); err != nil {
				return err
			}
		}
	}
	if err := writeBlocks(g.batch, a.Key, w.claim.Term, st, a.After, a.Events); err != nil {
		return err
	}
	st.top += uint64(len(a.Events))
	st.ended = a.Events[len(a.Events)-1].Kind == eventlog.End
	if st.ended {
		delete(w.streams, a.Stream)
	} else {
		w.streams[a.Stream] = struct{}{}
	}
	// Before anything is in pebble: a reader that finds no live stream takes
	// for published whatever it finds there.
	o.sync = l.places.enlist(lv, o.sync)
	o.lv, o.to, o.term = lv, *st, w.claim.Term
	return nil
}

// publish moves the stream's top for readers.
func (l *Log) publish(o *op) {
	lv := o.lv
	lv.mu.Lock()
	lv.tail.Append(o.term, o.a.After, o.a.Events)
	lv.tail.Shrink(tailBytes)
	lv.seen.extend(&o.to)
	lv.inflight--
	if o.sync {
		lv.late--
	}
	last := lv.inflight == 0 && (lv.seen.ended || lv.leave)
	lv.mu.Unlock()
	l.places.tails.count(lv)
	l.places.wake(lv.key)
	if last {
		l.places.mu.Lock()
		l.places.maybeForget(lv)
		l.places.mu.Unlock()
	}
}

// extend takes over what an append changed, and nothing of what a trim did
// meanwhile.
func (st *state) extend(to *state) {
	st.top, st.ended, st.terms = to.top, to.ended, to.terms
	st.wroteLoose, st.wrotePinned = to.wroteLoose, to.wrotePinned
}

package pebblelog

import (
	"context"

	"github.com/cockroachdb/pebble/v2"
	"github.com/segno-mcp/segno/eventlog"
)

// eraseBytes is how much a trim leaves behind before it removes blocks from
// pebble. A range delete costs more than it frees if it is small.
const eraseBytes = 256 << 10

// Trim implements eventlog.Keeper. Where all loose events up to a place go, it
// only moves the floor; anything else rewrites the blocks it touches.
func (l *Log) Trim(ctx context.Context, k eventlog.Key, fence, through uint64, keep eventlog.Kinds) (eventlog.Trimmed, error) {
	if !nameable(k) {
		return eventlog.Trimmed{}, eventlog.ErrNoSession
	}
	var gone amount
	o := &op{alone: true}
	o.add = func(g *group) error {
		if _, err := l.owned(k.Session, fence); err != nil {
			return err
		}
		seen, lv, err := l.look(k)
		if err != nil {
			return err
		}
		st := *seen
		if lv != nil {
			st = lv.ahead
		}
		// The newest event stays: the newest one that readers know of.
		t := &trim{k: k, log: l, batch: g.batch, st: &st, through: min(through, seen.top-1), keep: keep}
		if err := t.run(); err != nil {
			return err
		}
		gone = t.gone
		if lv != nil {
			lv.ahead = st
			o.publish = func() { l.trimmed(lv, &st, t.through) }
		}
		return nil
	}
	if err := l.do(ctx, o); err != nil {
		return eventlog.Trimmed{}, err
	}
	return eventlog.Trimmed{Events: gone.events, Bytes: gone.bytes}, nil
}

// trimmed lets readers see what a trim changed, and nothing of what an append
// did that is not published yet.
func (l *Log) trimmed(lv *live, to *state, through uint64) {
	lv.mu.Lock()
	st := &lv.seen
	st.floor, st.sparseTo = to.floor, to.sparseTo
	st.goneLoose, st.gonePinned = to.goneLoose, to.gonePinned
	st.erasedTo, st.erasedBytes = to.erasedTo, to.erasedBytes
	lv.tail.Cut(through, func(eventlog.Event) {})
	lv.mu.Unlock()
	l.places.tails.count(lv)
}

// trim is one trim that is under way.
type trim struct {
	k       eventlog.Key
	log     *Log
	batch   *pebble.Batch
	st      *state
	through uint64 // less than the top: the newest event stays
	keep    eventlog.Kinds
	gone    amount
}

func (t *trim) run() error {
	looseKept := t.keep &^ eventlog.Pinned
	pinnedGone := eventlog.Pinned &^ t.keep
	var err error
	switch {
	case looseKept == 0 && t.through <= t.st.floor:
	case looseKept == 0 && t.through >= t.st.sparseTo:
		err = t.raiseFloor()
	case looseKept != eventlog.Of(eventlog.Progress, eventlog.Other):
		t.st.sparseTo = max(t.st.sparseTo, t.through)
		err = t.rewrite(loose, &t.st.goneLoose)
		if looseKept == 0 {
			t.st.floor = max(t.st.floor, t.through)
		}
	}
	if err == nil && pinnedGone != 0 {
		err = t.rewrite(pinned, &t.st.gonePinned)
	}
	if err != nil {
		return err
	}
	return t.batch.Set(streamKey(t.k, meta), t.st.encode(), nil)
}

// raiseFloor reads two blocks only. What was ever written up to the place is
// gone now, and the totals of the next block, or of the stream, tell how much
// that is: no block after the place was ever thinned.
func (t *trim) raiseFloor() error {
	it, err := t.iter(loose)
	if err != nil {
		return err
	}
	defer it.Close()
	st := t.st
	gone := st.wroteLoose
	if it.SeekGE(blockKey(t.k, loose, t.through+1)) {
		next, err := decodeBlock(seqOf(it.Key()), it.Value(), nil)
		if err != nil {
			return err
		}
		gone = next.loose.minus(amountOf(next.events))
	}
	if err := it.Error(); err != nil { // the next seek forgets it
		return err
	}
	eraseTo, inside := t.through+1, amount{}
	if it.SeekLT(blockKey(t.k, loose, t.through+1)) {
		bl, err := decodeBlock(seqOf(it.Key()), it.Value(), nil)
		if err != nil {
			return err
		}
		if left := bl.after(t.through); len(left) > 0 {
			gone = gone.minus(amountOf(left))
			eraseTo, inside = seqOf(it.Key()), amountOf(bl.events).minus(amountOf(left))
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	t.gone.add(gone.minus(st.goneLoose))
	all := gone == st.wroteLoose
	st.goneLoose, st.floor = gone, t.through
	return t.erase(eraseTo, gone.minus(inside).bytes, all)
}

// erase removes the blocks that begin before a seq, if that is worth it.
func (t *trim) erase(to uint64, bytes int64, all bool) error {
	st := t.st
	if to <= st.erasedTo || bytes-st.erasedBytes < eraseBytes && !all {
		return nil
	}
	from := st.erasedTo // not 0: ranges that overlap make pebble split them
	st.erasedTo, st.erasedBytes = to, bytes
	return t.log.erase(t.batch, blockKey(t.k, loose, from), blockKey(t.k, loose, to))
}

func (t *trim) iter(space byte) (*pebble.Iterator, error) {
	lower := streamKey(t.k, space)
	return t.log.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: after(lower)})
}

// rewrite goes through all blocks of a space up to the place.
func (t *trim) rewrite(space byte, total *amount) error {
	it, err := t.iter(space)
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok && seqOf(it.Key()) <= t.through; ok = it.Next() {
		bl, err := decodeBlock(seqOf(it.Key()), it.Value(), nil)
		if err != nil {
			return err
		}
		gone, err := t.thin(it.Key(), space, &bl)
		if err != nil {
			return err
		}
		total.add(gone)
		t.gone.add(gone)
	}
	return it.Error()
}

// thin removes from a block what the trim does not keep.
func (t *trim) thin(key []byte, space byte, bl *block) (gone amount, err error) {
	var left []eventlog.Event
	removed := false
	for _, e := range bl.events {
		under := space == loose && e.Seq <= t.st.floor // gone before
		switch {
		case !under && (e.Seq > t.through || t.keep.Has(e.Kind)):
			left = append(left, e)
			continue
		case !under:
			gone.add(amountOf([]eventlog.Event{e}))
		}
		removed = true
	}
	switch {
	case !removed:
		return gone, nil
	case len(left) == 0:
		return gone, t.batch.Delete(key, nil)
	}
	return gone, t.batch.Set(key, encodeSparse(bl, seqOf(key), left), nil)
}

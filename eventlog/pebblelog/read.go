package pebblelog

import (
	"context"

	"github.com/cockroachdb/pebble/v2"
	"github.com/segno-mcp/segno/eventlog"
)

// Read implements eventlog.Reader. A page from memory is a part of a chunk of at
// most 256 events, whatever max is.
func (l *Log) Read(ctx context.Context, k eventlog.Key, after uint64, max int) (eventlog.Page, error) {
	if err := l.enter(ctx); err != nil {
		return eventlog.Page{}, err
	}
	defer l.gate.RUnlock()
	st, lv, err := l.look(k)
	if err != nil {
		return eventlog.Page{}, err
	}
	p := eventlog.Page{Top: st.top, Ended: st.ended}
	p.Term, _ = st.termOf(st.top)
	if after >= st.top {
		return p, nil
	}
	if lv != nil && lv.page(&p, after, max) {
		return p, nil
	}
	if p.Events, err = l.stored(k, st, after, max); err != nil {
		return eventlog.Page{}, err
	}
	if len(p.Events) > 0 {
		p.Term, _ = st.termOf(p.Events[0].Seq)
	}
	return p, nil
}

// Stat implements eventlog.Reader.
func (l *Log) Stat(ctx context.Context, k eventlog.Key) (eventlog.Info, error) {
	if err := l.enter(ctx); err != nil {
		return eventlog.Info{}, err
	}
	defer l.gate.RUnlock()
	st, _, err := l.look(k)
	if err == nil {
		return st.info(), nil
	}
	f, loadErr := l.load(k)
	if loadErr != nil {
		return eventlog.Info{}, loadErr
	}
	if f.memo != nil {
		return eventlog.Info{Dropped: true, Memo: f.memo}, nil
	}
	return eventlog.Info{}, err
}

// look finds what a reader may know of a stream. If somebody writes it, what was
// published is the bound, as pebble shows events before they count. If nobody
// does, all that is stored was published, unless a writer came meanwhile.
func (l *Log) look(k eventlog.Key) (*state, *live, error) {
	for {
		if lv := l.places.find(k); lv != nil {
			st := lv.now()
			if st.top == 0 {
				return nil, nil, eventlog.ErrNoStream
			}
			return &st, lv, nil
		}
		f, err := l.load(k)
		if err != nil {
			return nil, nil, err
		}
		if l.places.find(k) != nil {
			continue
		}
		if f.state == nil {
			return nil, nil, eventlog.ErrNoStream
		}
		return f.state, nil, nil
	}
}

func (l *Log) load(k eventlog.Key) (found, error) {
	if !nameable(k) || k.Stream == "" {
		return found{}, nil
	}
	f, err := load(l.db, k)
	return f, l.damaged(err)
}

// page fills the page from memory, if it can be.
func (lv *live) page(p *eventlog.Page, after uint64, max int) bool {
	lv.mu.Lock()
	defer lv.mu.Unlock()
	if first := lv.tail.First(); first == 0 || first > after+1 {
		return false
	}
	p.Events, p.Term = lv.tail.Read(after, p.Top, max)
	return len(p.Events) > 0
}

// stored reads events of one term from pebble.
func (l *Log) stored(k eventlog.Key, st *state, after uint64, limit int) ([]eventlog.Event, error) {
	a, err := newRun(l.db, k, loose, max(after, st.floor), st.top)
	if err != nil {
		return nil, l.damaged(err)
	}
	defer a.it.Close()
	b, err := newRun(l.db, k, pinned, after, st.top)
	if err != nil {
		return nil, l.damaged(err)
	}
	defer b.it.Close()
	out := make([]eventlog.Event, 0, len(a.rest)+len(b.rest))
	end := uint64(0)
	for bytes := 0; len(out) == 0 || bytes < limit; {
		r := a
		if len(a.rest) == 0 || len(b.rest) > 0 && b.rest[0].Seq < a.rest[0].Seq {
			r = b
		}
		if len(r.rest) == 0 {
			break
		}
		e := r.rest[0]
		if len(out) == 0 {
			_, end = st.termOf(e.Seq)
		}
		if e.Seq >= end {
			break
		}
		out = append(out, e)
		bytes += len(e.Data)
		if err := r.next(); err != nil {
			return nil, l.damaged(err)
		}
	}
	return out, nil
}

// run goes through the events of one space of a stream that lie after a place
// and not beyond the top.
type run struct {
	it      *pebble.Iterator
	at, top uint64
	rest    []eventlog.Event // of the block it stands on
	block   []eventlog.Event // memory of rest
	arena   []byte           // blocks are copied to it: the iterator's go away
}

func newRun(db pebble.Reader, k eventlog.Key, space byte, at, top uint64) (*run, error) {
	lower := streamKey(k, space)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: after(lower)})
	if err != nil {
		return nil, err
	}
	r := &run{it: it, at: at, top: top}
	// The block that holds at+1 begins there or before.
	if !it.SeekLT(blockKey(k, space, at+2)) {
		if err := it.Error(); err != nil { // the next seek forgets it
			it.Close()
			return nil, err
		}
		it.First()
	}
	if err := r.load(); err != nil {
		it.Close()
		return nil, err
	}
	return r, nil
}

func (r *run) next() error {
	if r.rest = r.rest[1:]; len(r.rest) > 0 {
		return nil
	}
	r.it.Next()
	return r.load()
}

// load takes the events of the block that the iterator stands on, or of the next
// one that has any.
func (r *run) load() error {
	for ; r.it.Valid(); r.it.Next() {
		first := seqOf(r.it.Key())
		if first > r.top {
			break
		}
		v, err := r.it.ValueAndErr()
		if err != nil {
			return err
		}
		bl, err := decodeBlock(first, r.own(v), r.block)
		if err != nil {
			return err
		}
		r.block = bl.events
		from, to := 0, len(bl.events)
		for from < to && bl.events[from].Seq <= r.at {
			from++
		}
		for to > from && bl.events[to-1].Seq > r.top {
			to--
		}
		if r.rest = bl.events[from:to]; len(r.rest) > 0 {
			return nil
		}
	}
	r.rest = nil
	return r.it.Error()
}

// own copies a value to where it stays.
func (r *run) own(v []byte) []byte {
	if cap(r.arena)-len(r.arena) < len(v) {
		r.arena = make([]byte, 0, max(len(v), min(2*cap(r.arena), blockBytes)))
	}
	from := len(r.arena)
	r.arena = append(r.arena, v...)
	return r.arena[from:len(r.arena):len(r.arena)]
}

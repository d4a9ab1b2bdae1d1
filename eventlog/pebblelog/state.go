package pebblelog

import (
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/segno-mcp/segno/eventlog"
)

// state is what is known of a stream without its events. Most of it is told by
// the stream's newest block; the rest is kept under the meta key, which is
// written only by a trim and by the first append of a second term.
type state struct {
	top         uint64
	ended       bool
	wroteLoose  amount // ever
	wrotePinned amount

	terms       []eventlog.Term // never changed in place
	floor       uint64
	sparseTo    uint64 // up to here a trim may have taken some loose events
	goneLoose   amount
	gonePinned  amount
	erasedTo    uint64 // loose blocks that begin before this are erased
	erasedBytes int64  // loose bytes written before erasedTo
}

func (st *state) info() eventlog.Info {
	kept := st.wroteLoose
	kept.add(st.wrotePinned)
	kept = kept.minus(st.goneLoose).minus(st.gonePinned)
	return eventlog.Info{
		Top: st.top, Ended: st.ended, Terms: slices.Clip(st.terms), Floor: st.floor,
		Events: kept.events, Bytes: kept.bytes,
	}
}

// termOf names the term that wrote seq, and the seq at which the next begins.
func (st *state) termOf(seq uint64) (name string, next uint64) {
	n := len(st.terms) - 1
	for n > 0 && st.terms[n].First > seq {
		n--
	}
	next = ^uint64(0)
	if n+1 < len(st.terms) {
		next = st.terms[n+1].First
	}
	return st.terms[n].Name, next
}

func (st *state) encode() []byte {
	v := make([]byte, 0, 64+len(st.terms)*12)
	for _, n := range [...]uint64{
		st.floor, st.sparseTo, uint64(st.goneLoose.events), uint64(st.goneLoose.bytes),
		uint64(st.gonePinned.events), uint64(st.gonePinned.bytes), st.erasedTo, uint64(st.erasedBytes),
		uint64(len(st.terms)),
	} {
		v = binary.AppendUvarint(v, n)
	}
	for _, t := range st.terms {
		v = append(v, t.Name...)
		v = binary.AppendUvarint(v, t.First)
	}
	return v
}

func (st *state) decode(v []byte) error {
	d := decoder{b: v}
	st.floor, st.sparseTo = d.uvarint(), d.uvarint()
	st.goneLoose, st.gonePinned = d.amount(), d.amount()
	st.erasedTo, st.erasedBytes = d.uvarint(), int64(d.uvarint())
	for range d.uvarint() {
		st.terms = append(st.terms, eventlog.Term{Name: string(d.take(eventlog.TermLen)), First: d.uvarint()})
		if d.bad {
			break
		}
	}
	if d.bad {
		return errBlock
	}
	return nil
}

// found is what is stored of a stream: a state, a memo, or neither.
type found struct {
	state *state
	memo  []byte
}

// load reads what a stream's keys say.
func load(r pebble.Reader, k eventlog.Key) (found, error) {
	prefix := streamPrefix(k)
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return found{}, err
	}
	defer it.Close()
	if !it.First() {
		return found{}, it.Error()
	}
	st := &state{}
	var f found
	part := func(key []byte) byte { return key[len(prefix)] }
	if it.SeekGE(append(prefix, meta)) && part(it.Key()) == meta {
		if err := st.decode(it.Value()); err != nil {
			return found{}, err
		}
	}
	// After each seek: the next one forgets the error.
	if err := it.Error(); err != nil {
		return found{}, err
	}
	for _, space := range []byte{loose, pinned} {
		if it.SeekLT(append(prefix, space+1)) && part(it.Key()) == space {
			bl, err := decodeBlock(seqOf(it.Key()), it.Value(), nil)
			if err != nil {
				return found{}, err
			}
			st.newest(&bl)
			f.state = st
		}
		if err := it.Error(); err != nil {
			return found{}, err
		}
	}
	if f.state == nil && it.SeekGE(append(prefix, memo)) {
		f.memo = append([]byte{}, it.Value()...)
	}
	return f, it.Error()
}

// newest takes what the newest block of one space tells.
func (st *state) newest(bl *block) {
	if bl.last() <= st.top {
		return
	}
	st.top = bl.last()
	st.ended = bl.events[len(bl.events)-1].Kind == eventlog.End
	st.wroteLoose, st.wrotePinned = bl.loose, bl.pinned
	if len(st.terms) == 0 {
		st.terms = []eventlog.Term{{Name: string(bl.term), First: 1}}
	}
}

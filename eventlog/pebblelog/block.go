package pebblelog

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/segno-mcp/segno/eventlog"
)

// A block is a run of events of one space under one key, so that a batch of
// progress is one write. Its totals count all that was ever written to the
// stream, so the newest block tells how much that is.
//
//	flags, term, count, totals of loose and pinned (events, bytes),
//	per event: kind, time since the one before, length, if sparse also seq
//	since the one before; then the payloads
const (
	blockBytes  = 64 << 10 // a block is closed at
	blockEvents = 512

	sparse = 1 // flag: a trim took some of its events
)

var errBlock = errors.New("a block of events is damaged")

// amount is a number of events and the bytes of their payloads.
type amount struct{ events, bytes int64 }

func (a *amount) add(b amount) { a.events += b.events; a.bytes += b.bytes }
func (a amount) minus(b amount) amount {
	return amount{a.events - b.events, a.bytes - b.bytes}
}

func amountOf(events []eventlog.Event) (a amount) {
	for i := range events {
		a.bytes += int64(len(events[i].Data))
	}
	a.events = int64(len(events))
	return a
}

// block is the header of a decoded block; events holds its events, whose data
// lies in the value that it was read from.
type block struct {
	term          []byte
	loose, pinned amount // written up to here
	events        []eventlog.Event
}

func (b *block) last() uint64 { return b.events[len(b.events)-1].Seq }

func (b *block) after(seq uint64) []eventlog.Event {
	left := b.events
	for len(left) > 0 && left[0].Seq <= seq {
		left = left[1:]
	}
	return left
}

func spaceOf(k eventlog.Kind) byte {
	if eventlog.Pinned.Has(k) {
		return pinned
	}
	return loose
}

// writeBlocks cuts events, which are numbered, into blocks and adds them to the
// batch. st gets their totals.
func writeBlocks(b *pebble.Batch, k eventlog.Key, term string, st *state, after uint64, events []eventlog.Event) error {
	for len(events) > 0 {
		space := spaceOf(events[0].Kind)
		n, size := 0, amount{}
		for n < len(events) && n < blockEvents && size.bytes < blockBytes && spaceOf(events[n].Kind) == space {
			size.bytes += int64(len(events[n].Data))
			n++
		}
		size.events = int64(n)
		if space == loose {
			st.wroteLoose.add(size)
		} else {
			st.wrotePinned.add(size)
		}
		if err := writeBlock(b, k, space, term, st, after+1, events[:n], size.bytes); err != nil {
			return err
		}
		after += uint64(n)
		events = events[n:]
	}
	return nil
}

// writeBlock encodes straight into the batch.
func writeBlock(b *pebble.Batch, k eventlog.Key, space byte, term string, st *state, first uint64, events []eventlog.Event, bytes int64) error {
	var scratch [2048]byte
	head := appendHead(scratch[:0], 0, term, st.wroteLoose, st.wrotePinned, events)
	op := b.SetDeferred(blockKeyLen(k), len(head)+int(bytes))
	key := append(appendStream(op.Key[:0], k), space)
	binary.BigEndian.AppendUint64(key, first)
	n := copy(op.Value, head)
	for i := range events {
		n += copy(op.Value[n:], events[i].Data)
	}
	return op.Finish()
}

// encodeSparse encodes what a trim left of a block whose key says first.
func encodeSparse(bl *block, first uint64, left []eventlog.Event) []byte {
	v := appendHead(nil, sparse, bl.term, bl.loose, bl.pinned, left)
	for i := range left {
		v = binary.AppendUvarint(v, left[i].Seq-first)
		first = left[i].Seq
	}
	for i := range left {
		v = append(v, left[i].Data...)
	}
	return v
}

func appendHead[T string | []byte](v []byte, flags byte, term T, loose, pinned amount, events []eventlog.Event) []byte {
	v = append(v, flags)
	v = append(v, term...)
	for _, n := range [...]int64{int64(len(events)), loose.events, loose.bytes, pinned.events, pinned.bytes} {
		v = binary.AppendUvarint(v, uint64(n))
	}
	before := int64(0)
	for i := range events {
		e := &events[i]
		v = append(v, byte(e.Kind))
		v = binary.AppendVarint(v, e.Time-before)
		v = binary.AppendUvarint(v, uint64(len(e.Data)))
		before = e.Time
	}
	return v
}

// decodeBlock reads a block. Its events share v, and the memory of into if that
// is large enough.
func decodeBlock(first uint64, v []byte, into []eventlog.Event) (block, error) {
	if len(v) < 1+eventlog.TermLen {
		return block{}, errBlock
	}
	d := decoder{b: v[1+eventlog.TermLen:]}
	bl := block{term: v[1 : 1+eventlog.TermLen]}
	count := d.uvarint()
	bl.loose, bl.pinned = d.amount(), d.amount()
	if d.bad || count == 0 || count > uint64(len(v)) {
		return block{}, errBlock
	}
	bl.events = slices.Grow(into[:0], int(count))[:count]
	sizes := make([]int, 0, blockEvents)
	before := int64(0)
	for i := range bl.events {
		e := &bl.events[i]
		e.Seq = first + uint64(i)
		e.Kind = eventlog.Kind(d.byte())
		e.Time = before + d.varint()
		sizes = append(sizes, int(d.uvarint()))
		before = e.Time
	}
	if v[0]&sparse != 0 {
		for i := range bl.events {
			first += d.uvarint()
			bl.events[i].Seq = first
		}
	}
	for i, size := range sizes {
		bl.events[i].Data = d.take(size)
	}
	if d.bad {
		return block{}, errBlock
	}
	return bl, nil
}

// decoder reads numbers until one is not there; then bad is set.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	x, n := binary.Uvarint(d.b)
	return x * uint64(d.took(n))
}

func (d *decoder) varint() int64 {
	x, n := binary.Varint(d.b)
	return x * int64(d.took(n))
}

func (d *decoder) took(n int) int {
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return 1
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) amount() amount {
	return amount{int64(d.uvarint()), int64(d.uvarint())}
}

// Package tail keeps the dense newest part of a stream in memory, in chunks
// that readers share without copying.
package tail

import (
	"sort"

	"github.com/segno-mcp/segno/eventlog"
)

// A chunk is closed when it has as many events or bytes. Events that are
// trimmed stay in memory until the whole chunk is, hence the limit by bytes.
const (
	chunkEvents = 256
	chunkBytes  = 64 << 10
	firstEvents = 4
)

// Overhead is what an event takes beside its payload, in bytes.
const Overhead = 48

// Tail is a run of events without a jump. It is not safe for concurrent use;
// the slices that Read returns are, for as long as their holder likes: what was
// appended is never written again.
type Tail struct {
	chunks []*chunk
	bytes  int
}

// chunk is a part of a tail, of one term.
type chunk struct {
	term   string
	events []eventlog.Event
	bytes  int
}

// Bytes is what the tail takes, payload and overhead, with what was cut but
// shares a chunk with what is there.
func (t *Tail) Bytes() int { return t.bytes }

// First is the oldest seq in the tail, 0 if it is empty.
func (t *Tail) First() uint64 {
	if len(t.chunks) == 0 {
		return 0
	}
	return t.chunks[0].events[0].Seq
}

// Append adds events and numbers them on from after, which must be the newest
// seq in the tail unless it is empty.
func (t *Tail) Append(term string, after uint64, events []eventlog.Event) {
	for len(events) > 0 {
		c := t.open(term, len(events))
		for len(events) > 0 && len(c.events) < cap(c.events) && c.bytes < chunkBytes+chunkEvents*Overhead {
			after++
			e := events[0]
			e.Seq = after
			c.events = append(c.events, e)
			c.bytes += len(e.Data)
			t.bytes += len(e.Data)
			events = events[1:]
		}
	}
}

// open returns a chunk with room, a new one twice the size of the last.
func (t *Tail) open(term string, want int) *chunk {
	size := firstEvents
	if n := len(t.chunks); n > 0 {
		c := t.chunks[n-1]
		if c.term == term && len(c.events) < cap(c.events) && c.bytes < chunkBytes+chunkEvents*Overhead {
			return c
		}
		size = 2 * cap(c.events)
	}
	size = min(max(size, want), chunkEvents)
	c := &chunk{term: term, events: make([]eventlog.Event, 0, size)}
	c.bytes = size * Overhead
	t.bytes += c.bytes
	t.chunks = append(t.chunks, c)
	return c
}

// Read returns events after the place and up to through, about limit bytes of
// them and at least one, with their term. They are a part of one chunk.
func (t *Tail) Read(after, through uint64, limit int) ([]eventlog.Event, string) {
	n := sort.Search(len(t.chunks), func(i int) bool { return t.chunks[i].last() > after })
	if n == len(t.chunks) {
		return nil, ""
	}
	c := t.chunks[n]
	first := c.events[0].Seq
	from := int(max(after+1, first) - first)
	to := len(c.events)
	if c.last() > through {
		if through < first+uint64(from) {
			return nil, ""
		}
		to = int(through - first + 1)
	}
	return Bound(c.events[from:to:to], limit), c.term
}

// Bound cuts a run to about limit bytes of payload and at least one event.
func Bound(run []eventlog.Event, limit int) []eventlog.Event {
	bytes := 0
	for i := range run {
		bytes += len(run[i].Data)
		if bytes >= limit {
			return run[: i+1 : i+1]
		}
	}
	return run
}

func (c *chunk) last() uint64 { return c.events[len(c.events)-1].Seq }

// Cut removes the events up to and including through and hands each to gone.
// The memory of a payload is free when all of its chunk is gone.
func (t *Tail) Cut(through uint64, gone func(eventlog.Event)) {
	for len(t.chunks) > 0 {
		c := t.chunks[0]
		n := 0
		for n < len(c.events) && c.events[n].Seq <= through {
			gone(c.events[n])
			n++
		}
		if n < len(c.events) {
			c.events = c.events[n:]
			return
		}
		t.pop()
	}
}

// Shrink removes the oldest chunks until the tail takes no more than limit, but
// never the newest one.
func (t *Tail) Shrink(limit int) {
	for t.bytes > limit && len(t.chunks) > 1 {
		t.pop()
	}
}

func (t *Tail) pop() {
	t.bytes -= t.chunks[0].bytes
	t.chunks[0] = nil
	t.chunks = t.chunks[1:]
}

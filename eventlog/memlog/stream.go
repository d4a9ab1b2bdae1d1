package memlog

import (
	"slices"
	"sort"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/internal/tail"
)

// stream is what was spared by trims, then a dense tail. Readers share both:
// spared is only appended to, or replaced.
type stream struct {
	spared []eventlog.Event
	kinds  eventlog.Kinds // that spared holds
	tail   tail.Tail

	top    uint64
	floor  uint64
	ended  bool
	terms  []eventlog.Term
	events int64
	bytes  int64
	names  []string
}

// append returns the bytes that it takes.
func (s *stream) append(term string, events []eventlog.Event) int64 {
	if n := len(s.terms); n == 0 || s.terms[n-1].Name != term {
		// Info.Terms was handed out: never written again, only appended to.
		s.terms = append(s.terms, eventlog.Term{Name: term, First: s.top + 1})
	}
	s.tail.Append(term, s.top, events)
	s.top += uint64(len(events))
	s.ended = events[len(events)-1].Kind == eventlog.End
	bytes := int64(0)
	for i := range events {
		bytes += int64(len(events[i].Data))
	}
	s.events += int64(len(events))
	s.bytes += bytes
	return bytes + int64(len(events))*tail.Overhead
}

// read returns what comes after the place, of one term.
func (s *stream) read(after uint64, limit int) ([]eventlog.Event, string) {
	n := sort.Search(len(s.spared), func(i int) bool { return s.spared[i].Seq > after })
	if n == len(s.spared) {
		return s.tail.Read(after, s.top, limit)
	}
	run := s.spared[n:]
	name, next := s.termOf(run[0].Seq)
	end := sort.Search(len(run), func(i int) bool { return run[i].Seq >= next })
	return tail.Bound(run[:end:end], limit), name
}

// termOf names the term that wrote seq, and the seq at which the next begins.
func (s *stream) termOf(seq uint64) (name string, next uint64) {
	n := sort.Search(len(s.terms), func(i int) bool { return s.terms[i].First > seq })
	next = s.top + 1
	if n < len(s.terms) {
		next = s.terms[n].First
	}
	return s.terms[max(n-1, 0)].Name, next
}

func (s *stream) trim(through uint64, keep eventlog.Kinds) eventlog.Trimmed {
	through = min(through, s.top-1) // the newest stays
	var gone eventlog.Trimmed
	spare := func(e eventlog.Event) {
		if keep.Has(e.Kind) {
			s.spared = append(s.spared, e)
			s.kinds |= eventlog.Of(e.Kind)
			return
		}
		gone.Events++
		gone.Bytes += int64(len(e.Data))
	}
	if s.kinds&^keep != 0 {
		old := s.spared
		s.spared, s.kinds = make([]eventlog.Event, 0, len(old)), 0
		n := sort.Search(len(old), func(i int) bool { return old[i].Seq > through })
		for _, e := range old[:n] {
			spare(e)
		}
		s.kinds |= kindsOf(old[n:])
		s.spared = append(s.spared, old[n:]...)
	}
	s.tail.Cut(through, spare)
	if keep&^eventlog.Pinned == 0 {
		s.floor = max(s.floor, through)
	}
	s.events -= gone.Events
	s.bytes -= gone.Bytes
	return gone
}

func kindsOf(events []eventlog.Event) (k eventlog.Kinds) {
	for i := range events {
		k |= eventlog.Of(events[i].Kind)
	}
	return k
}

func (s *stream) info() eventlog.Info {
	return eventlog.Info{
		Top: s.top, Ended: s.ended, Terms: slices.Clip(s.terms), Floor: s.floor,
		Events: s.events, Bytes: s.bytes,
	}
}

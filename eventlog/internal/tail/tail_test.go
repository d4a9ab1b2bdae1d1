package tail

import (
	"slices"
	"testing"

	"github.com/segno-mcp/segno/eventlog"
	"pgregory.net/rapid"
)

// Whatever is appended and cut, a tail is the newest part of the list, and what
// was read from it stays as it was.
func TestTailIsTheEndOfTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tail Tail
		var all, held, copied []eventlog.Event
		var terms []string
		first, term := uint64(1), "a"
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				var events []eventlog.Event
				for range rapid.IntRange(1, 400).Draw(t, "events") {
					events = append(events, eventlog.Event{Data: make([]byte, rapid.SampledFrom([]int{0, 10, 3000}).Draw(t, "size"))})
				}
				tail.Append(term, uint64(len(all)), events)
				for n := range events {
					events[n].Seq = uint64(len(all)) + 1
					all, terms = append(all, events[n]), append(terms, term)
				}
			},
			"term": func(*rapid.T) { term += "a" },
			"cut": func(t *rapid.T) {
				through := rapid.Uint64Range(0, uint64(len(all))).Draw(t, "through")
				tail.Cut(through, func(e eventlog.Event) {
					if e.Seq != first {
						t.Fatalf("cut %d where %d is due", e.Seq, first)
					}
					first++
				})
				first = max(first, min(first, through+1))
			},
			"shrink": func(t *rapid.T) {
				limit := rapid.IntRange(0, 1<<20).Draw(t, "limit")
				tail.Shrink(limit)
				if tail.Bytes() > limit && len(tail.chunks) > 1 {
					t.Fatalf("%d bytes, limit %d", tail.Bytes(), limit)
				}
				first = max(first, tail.First())
			},
			"": func(t *rapid.T) {
				if got := tail.First(); got != 0 && got != first || got == 0 && first <= uint64(len(all)) {
					t.Fatalf("first %d, want %d of %d", got, first, len(all))
				}
				same := func(a, b eventlog.Event) bool { return a.Seq == b.Seq && len(a.Data) == len(b.Data) }
				if !slices.EqualFunc(held, copied, same) {
					t.Fatal("a slice that was read has changed")
				}
				after := rapid.Uint64Range(0, uint64(len(all))).Draw(t, "after")
				through := rapid.Uint64Range(0, uint64(len(all))).Draw(t, "upto")
				events, term := tail.Read(after, through, 5000)
				from := max(after+1, first)
				if (len(events) > 0) != (from <= through) {
					t.Fatalf("after %d through %d, from %d: %d events", after, through, from, len(events))
				}
				for n, e := range events {
					if e.Seq != from+uint64(n) || e.Seq > through || terms[e.Seq-1] != term {
						t.Fatalf("after %d: seq %d at %d, term %q", after, e.Seq, n, term)
					}
				}
				held, copied = events, slices.Clone(events)
			},
		})
	})
}

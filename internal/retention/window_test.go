package retention

import (
	"testing"

	"pgregory.net/rapid"
)

// TestTheWindowKeepsWhatItPromises: at least the bounds, at most a mark more,
// never the newest event, never beyond a reader's place; in bounded memory.
func TestTheWindowKeepsWhatItPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lim := Bounds{
			Events: rapid.Int64Range(1, 1000).Draw(t, "events"),
			Bytes:  rapid.Int64Range(1, 1<<16).Draw(t, "bytes"),
		}
		var w Window
		sizes := []int64{0} // by seq
		gone := uint64(0)
		kept := func(from uint64) (events, bytes int64) {
			for _, n := range sizes[from+1:] {
				events++
				bytes += n
			}
			return events, bytes
		}
		for range rapid.IntRange(1, 300).Draw(t, "appends") {
			for range rapid.IntRange(1, 10).Draw(t, "n") {
				n := rapid.Int64Range(0, 2*lim.Bytes/10).Draw(t, "size")
				sizes = append(sizes, n)
				w.Push(uint64(len(sizes)-1), n, lim)
			}
			top := uint64(len(sizes) - 1)
			bound := ^uint64(0)
			if rapid.Bool().Draw(t, "reader") {
				bound = rapid.Uint64Range(0, top).Draw(t, "place")
			}
			through := w.Excess(lim, bound)
			if through > 0 && (through <= gone || through > bound || through >= top) {
				t.Fatalf("with top %d, bound %d and all up to %d gone, events may go up to %d", top, bound, gone, through)
			}
			gone = max(gone, through)
			events, bytes := kept(gone)
			if w.events != events || w.bytes != bytes {
				t.Fatalf("it counts %d events, %d bytes; there are %d, %d", w.events, w.bytes, events, bytes)
			}
			if gone > 0 && events < lim.Events && bytes < lim.Bytes && through > 0 {
				t.Fatalf("of the bounds %+v only %d events, %d bytes are kept", lim, events, bytes)
			}
			if bound == ^uint64(0) && events > lim.Events+lim.Events/marksPerWindow+1 {
				t.Fatalf("of the bounds %+v %d events are kept", lim, events)
			}
			if bound == ^uint64(0) && len(w.marks) > 3*marksPerWindow+2 {
				t.Fatalf("%d marks", len(w.marks))
			}
		}
	})
}

func TestWhatIsTakenOutOfAWindow(t *testing.T) {
	lim := Bounds{Events: 100, Bytes: 1 << 20}
	fill := func() *Window {
		w := &Window{}
		for seq := range uint64(10) {
			w.Push(seq+1, 10, lim)
		}
		return w
	}
	if got := fill().Through(4); got != 4 {
		t.Errorf("up to 4: %d", got)
	}
	if got := fill().Through(0); got != 0 {
		t.Errorf("up to 0: %d", got)
	}
	w := fill()
	for _, want := range []uint64{5, 8, 9, 10, 0} {
		if got := w.Half(); got != want {
			t.Errorf("half: %d, want %d", got, want)
		}
	}
	if w.events != 0 || w.bytes != 0 {
		t.Errorf("%d events, %d bytes are left", w.events, w.bytes)
	}
	w = &Window{}
	w.Restore(50, 49, 4900)
	w.Restore(60, 0, 0)
	for seq := range uint64(100) {
		w.Push(51+seq, 10, lim)
	}
	if got := w.Excess(lim, ^uint64(0)); got != 50 {
		t.Errorf("what was restored goes up to %d", got)
	}
}

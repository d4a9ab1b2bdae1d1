// Package retention knows what of a stream may be forgotten, and bounds what is
// in memory on its way to the log.
package retention

// Window knows how much of a stream is kept that retention may drop, in marks
// of a few appends each, so that it costs little however long the stream is.
type Window struct {
	marks  []mark
	events int64
	bytes  int64
}

// mark stands for loose events up to and including last.
type mark struct {
	last   uint64
	events int64
	bytes  int64
}

// marksPerWindow bounds a window's memory: a mark grows until it holds this
// part of what may be kept.
const marksPerWindow = 64

// Push accounts for one loose event. Marks that are a small part of what may be
// kept grow, so there are never many.
func (w *Window) Push(seq uint64, bytes int64, lim Bounds) {
	w.events++
	w.bytes += bytes
	if n := len(w.marks) - 1; n >= 0 {
		m := &w.marks[n]
		if m.events < lim.Events/marksPerWindow && m.bytes+bytes <= lim.Bytes/marksPerWindow {
			m.last, m.events, m.bytes = seq, m.events+1, m.bytes+bytes
			return
		}
	}
	w.marks = append(w.marks, mark{seq, 1, bytes})
}

// Restore accounts for what an earlier process left: loose events up to last of
// which only the sum is known, so they can only go together.
func (w *Window) Restore(last uint64, events, bytes int64) {
	if events <= 0 {
		return
	}
	w.events += events
	w.bytes += bytes
	w.marks = append(w.marks, mark{last, events, bytes})
}

// Excess forgets the oldest marks as long as the limits are kept to without
// them, and returns up to where events may go; at most up to bound.
func (w *Window) Excess(lim Bounds, bound uint64) (through uint64) {
	n := 0
	for n < len(w.marks)-1 {
		m := w.marks[n]
		fits := w.events-m.events < lim.Events && w.bytes-m.bytes < lim.Bytes
		if fits || m.last > bound {
			break
		}
		w.events -= m.events
		w.bytes -= m.bytes
		through = m.last
		n++
	}
	w.marks = w.marks[n:]
	return through
}

// Bounds are what is kept of a stream at least, not counting what is pinned.
type Bounds struct {
	Events int64
	Bytes  int64
}

// Half forgets the older half of the marks and returns up to where events may
// go; 0 if there is nothing to forget.
func (w *Window) Half() (through uint64) {
	n := (len(w.marks) + 1) / 2
	for _, m := range w.marks[:n] {
		w.events -= m.events
		w.bytes -= m.bytes
		through = m.last
	}
	w.marks = w.marks[n:]
	return through
}

// Through forgets the marks that lie before the place or at it and returns up
// to where events may go; 0 if there are none.
func (w *Window) Through(place uint64) (through uint64) {
	n := 0
	for n < len(w.marks) && w.marks[n].last <= place {
		w.events -= w.marks[n].events
		w.bytes -= w.marks[n].bytes
		through = w.marks[n].last
		n++
	}
	w.marks = w.marks[n:]
	return through
}

package session

import "github.com/segno-mcp/segno/eventlog"

// OnYield sets what is called when a newer connection gets the events: this one
// may stand in a write. It must not block.
func (r *Reader) OnYield(f func(retired bool)) {
	r.st.mu.Lock()
	defer r.st.mu.Unlock()
	r.yields = f
}

// Unread takes the events of the last Delivery back: they were not written, and
// Next reads them again. Until then retention does not pass them.
func (r *Reader) Unread(d *Delivery) {
	r.follow.Close()
	r.follow = eventlog.Follow(r.st.s.m.log, r.st.key, d.Events[0].Seq-1, r.hint)
	r.rest, r.gaps, r.over = eventlog.Page{}, nil, false
	r.st.mu.Lock()
	r.given, r.waiting = r.passed, true
	r.st.mu.Unlock()
}

// Turn tells whether this is the connection that gets the events, or else what
// it gets, without reading any.
func (r *Reader) Turn() (d Delivery, served bool) { return r.seat() }

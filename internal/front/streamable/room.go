package streamable

import (
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/session"
)

// What connections hold of large pages while they write them counts together: a
// reader that takes nothing holds what it was to get. A page up to keepPage
// does not count. Who gets no room waits without the page.

// leastRate is how fast a large page must be taken, in bytes a second, besides
// the time of one write: nobody shall hold one for hours.
const leastRate = 64 << 10

// limit is when a write of n bytes must be over.
func (f *Front) limit(n int) time.Time {
	if n <= keepPage {
		return time.Now().Add(24 * time.Hour) // each piece has its own
	}
	return time.Now().Add(f.o.WriteTimeout + time.Duration(n)*time.Second/leastRate)
}

// deadline is the one of the next piece.
func (f *Front) deadline(limit time.Time) time.Time {
	if t := time.Now().Add(f.o.WriteTimeout); t.Before(limit) {
		return t
	}
	return limit
}

func sizeOf(events []eventlog.Event) (n int64) {
	for i := range events {
		n += int64(len(events[i].Data))
	}
	return n
}

// admit gives a page back to its reader if there is no room to hold it.
func (v *view) admit(d *session.Delivery) {
	n := sizeOf(d.Events)
	if n <= keepPage {
		v.letGo()
		return
	}
	if !v.takes(n) {
		v.rd.Unread(d)
		*d = session.Delivery{Wait: true}
	}
}

// takes makes room for n bytes in place of what is held. If there is none, needs
// and freed say what to wait for.
func (v *view) takes(n int64) bool {
	v.letGo()
	ok, freed := v.x.f.large.takeOrWait(v.x.who, n)
	if !ok {
		v.needs, v.freed = n, freed
		return false
	}
	v.needs, v.freed = 0, nil
	v.guard.hold(n)
	return true
}

func (v *view) letGo() {
	v.x.f.large.give(v.x.who.Principal, v.guard.hold(0))
}

// starved tells whether the next page has no room, and what to do meanwhile.
func (v *view) starved() (session.Delivery, bool) {
	if v.needs == 0 || v.takes(v.needs) {
		return session.Delivery{}, false
	}
	if d, served := v.rd.Turn(); !served {
		return d, true
	}
	return session.Delivery{Wait: true}, true
}

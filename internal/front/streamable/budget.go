package streamable

import (
	"sync"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/session"
)

// budget bounds the bytes that many hold in memory at once. One principal may
// hold at most half of what the others leave, so that nobody's room is ever all
// gone by another's doing; what is alone in memory may fill everything.
type budget struct {
	mu    sync.Mutex
	max   int64
	held  int64
	of    map[string]int64 // by principal
	one   bool             // each principal may hold one piece, however large
	freed chan struct{}    // closed when something is given back; nil if nobody waits for it
}

func (b *budget) init(max int64) { b.max, b.of = max, map[string]int64{} }

// take takes n bytes for one who holds own already.
func (b *budget) take(who Who, own, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fits(who, own, n)
}

// takeOrWait is take for a whole piece. If there is no room, freed is closed when
// there may be some.
func (b *budget) takeOrWait(who Who, n int64) (ok bool, freed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fits(who, 0, n) {
		return true, nil
	}
	if b.freed == nil {
		b.freed = make(chan struct{})
	}
	return false, b.freed
}

// over takes bytes that are in memory in any case.
func (b *budget) over(principal string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(principal, n)
}

// fits is take with the lock held.
func (b *budget) fits(who Who, own, n int64) bool {
	mine := b.of[who.Principal]
	share := b.max - (b.held - mine)
	if !who.Shared {
		share /= 2
	}
	alone := b.held == own && own+n <= b.max
	if mine+n > share && !alone && !(b.one && mine == 0) {
		return false
	}
	b.add(who.Principal, n)
	return true
}

// add counts without asking; the lock is held.
func (b *budget) add(principal string, n int64) {
	b.held += n
	if b.of[principal] += n; b.of[principal] == 0 {
		delete(b.of, principal)
	}
}

// give gives back what was taken.
func (b *budget) give(principal string, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(principal, -n)
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

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

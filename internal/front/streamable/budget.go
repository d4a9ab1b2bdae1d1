package streamable

import "sync"

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

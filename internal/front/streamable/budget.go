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
	freed chan struct{}    // closed when something is given back; nil if nobody waits for it
}

func (b *budget) init(max int64) { b.max, b.of = max, map[string]int64{} }

// take takes n bytes for one who holds own already.
func (b *budget) take(who Who, own, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	mine := b.of[who.Principal]
	share := b.max - (b.held - mine)
	if !who.Shared {
		share /= 2
	}
	if mine+n > share && (b.held > own || own+n > b.max) {
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

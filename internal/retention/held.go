package retention

import "sync"

// Held bounds what of a child's output is in memory and not yet in the log.
type Held struct {
	mu   sync.Mutex
	room *sync.Cond
	n    int64
	max  int64
	off  bool
}

// NewHeld makes one that lets max bytes be held.
func NewHeld(max int64) *Held {
	h := &Held{max: max}
	h.room = sync.NewCond(&h.mu)
	return h
}

// Add counts bytes that are held from now on.
func (h *Held) Add(n int64) {
	h.mu.Lock()
	h.n += n
	h.mu.Unlock()
}

// Done counts bytes that the log has taken, or never will.
func (h *Held) Done(n int64) {
	h.mu.Lock()
	h.n -= n
	if h.n <= h.max {
		h.room.Broadcast()
	}
	h.mu.Unlock()
}

// Wait blocks while too much is held.
func (h *Held) Wait() {
	h.mu.Lock()
	for h.n > h.max && !h.off {
		h.room.Wait()
	}
	h.mu.Unlock()
}

// Open lets everybody through from now on.
func (h *Held) Open() {
	h.mu.Lock()
	h.off = true
	h.room.Broadcast()
	h.mu.Unlock()
}

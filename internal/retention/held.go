package retention

import "sync"

// Held bounds what of a server's output is in memory and not yet in the log.
type Held struct {
	mu   sync.Mutex
	n    int64
	max  int64
	room chan struct{} // closed when there is room again; nil while nobody waits
}

// NewHeld makes one that lets max bytes be held.
func NewHeld(max int64) *Held { return &Held{max: max} }

// Add counts bytes that are held from now on. It never waits.
func (h *Held) Add(n int64) {
	h.mu.Lock()
	h.n += n
	h.mu.Unlock()
}

// Done counts bytes that the log has taken, or never will.
func (h *Held) Done(n int64) {
	h.mu.Lock()
	h.n -= n
	if h.n <= h.max && h.room != nil {
		close(h.room)
		h.room = nil
	}
	h.mu.Unlock()
}

// Wait blocks while more than the bound is held, but not beyond stop.
func (h *Held) Wait(stop <-chan struct{}) {
	for {
		h.mu.Lock()
		if h.n <= h.max {
			h.mu.Unlock()
			return
		}
		if h.room == nil {
			h.room = make(chan struct{})
		}
		room := h.room
		h.mu.Unlock()
		select {
		case <-room:
		case <-stop:
			return
		}
	}
}

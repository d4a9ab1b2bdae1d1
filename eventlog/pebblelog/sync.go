package pebblelog

import (
	"fmt"
	"sync"
	"time"

	"github.com/segno-mcp/segno/eventlog/internal/disk"
)

// Sync says when an append counts.
type Sync int

// The policies. Whatever the policy, the operating system has the events before
// anyone sees them, so a killed process loses nothing.
const (
	// SyncOutcomes syncs what is marked durable before it counts, and the rest
	// within 100 ms.
	SyncOutcomes Sync = iota
	// SyncAlways syncs each append before it counts.
	SyncAlways
	// SyncOS leaves it to the operating system.
	SyncOS
)

// ParseSync reads a policy by its name: outcomes, always or os.
func ParseSync(name string) (Sync, error) {
	switch name {
	case "outcomes":
		return SyncOutcomes, nil
	case "always":
		return SyncAlways, nil
	case "os":
		return SyncOS, nil
	}
	return 0, fmt.Errorf("sync policy %q: not one of outcomes, always, os", name)
}

// lag is how long events stay in the operating system's hands alone.
const lag = 100 * time.Millisecond

// syncer makes the log durable, for the steps that wait for it and, under
// SyncOutcomes, soon for the others. All that wait share the next sync.
type syncer struct {
	disk *disk.Disk
	end  func(*op)
	lazy bool // nothing is synced that does not wait

	mu      sync.Mutex
	waiting []*op
	dirty   bool // something is written that nobody waits for
	closed  bool
	more    chan struct{} // has room for one
}

// put hands over what was just written; late are the steps that wait.
func (s *syncer) put(late []*op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, late...)
	if len(late) == 0 {
		if s.dirty || s.lazy {
			return
		}
		s.dirty = true
	}
	s.wake()
}

func (s *syncer) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *syncer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wake()
}

// take returns the steps to sync for. What they wrote is with the operating
// system already, so a sync that begins now covers it.
func (s *syncer) take(soon bool) (ops []*op, sync, wait, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ops, s.waiting = s.waiting, nil
	sync = len(ops) > 0 || s.dirty && (soon || s.closed)
	if sync {
		s.dirty = false
	}
	return ops, sync, s.dirty, s.closed
}

// run syncs until it is closed and nothing waits.
func (s *syncer) run() {
	timer := time.NewTimer(lag)
	defer timer.Stop()
	for armed, soon := true, false; ; soon = false {
		select {
		case <-s.more:
		case <-timer.C:
			armed, soon = false, true
		}
		ops, sync, wait, closed := s.take(soon)
		if sync {
			err := s.disk.SyncWAL()
			for _, o := range ops {
				if err != nil {
					o.done <- err
					continue
				}
				s.end(o)
			}
		}
		if wait && !armed {
			timer.Reset(lag)
			armed = true
		}
		if closed {
			return
		}
	}
}

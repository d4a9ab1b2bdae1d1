package streamable

import (
	"context"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// seats are the open streams, and the requests that wait for a running call.
type seats struct {
	mu       sync.Mutex
	of       map[string]map[*seat]struct{} // by principal
	open     int
	waiting  map[*guard]struct{}
	max, one int           // in all, and of one principal
	closed   bool          // nothing is to stay open
	changed  chan struct{} // closed at the next change; nil if nobody waits for one
}

// seat is one stream's.
type seat struct {
	principal string
	guard     *guard
	at        atomic.Int64 // when it last had an event, Unix nanoseconds
	end       chan struct{}
	why       string // set before end is closed
	told      bool   // end is closed; guarded by seats.mu
}

// active notes that an event went out.
func (s *seat) active() { s.at.Store(time.Now().UnixNano()) }

func (s *seats) init(max, one int) {
	s.of, s.max, s.one = map[string]map[*seat]struct{}{}, max, one
	s.waiting = map[*guard]struct{}{}
}

// take gives a stream its seat. It is never refused: where there are too many,
// the same principal's stream that was idle longest ends in its favour, so
// nobody can push out somebody else's. full names the limit if that was so.
func (s *seats) take(principal string, g *guard) (mine *seat, full string) {
	mine = &seat{principal: principal, guard: g, end: make(chan struct{})}
	mine.active()
	s.mu.Lock()
	defer s.mu.Unlock()
	others := s.of[principal]
	switch {
	case len(others) >= s.one:
		full = "max-connections-per-principal"
	case s.open >= s.max:
		full = "max-connections"
	}
	if full != "" {
		longestIdle(others).tell(whyLimit)
	}
	if s.closed {
		mine.tell(whyDrained)
	}
	if others == nil {
		others = map[*seat]struct{}{}
		s.of[principal] = others
	}
	others[mine] = struct{}{}
	s.open++
	return mine, full
}

func longestIdle(of map[*seat]struct{}) (found *seat) {
	since := int64(math.MaxInt64)
	for s := range of {
		if at := s.at.Load(); !s.told && at < since {
			found, since = s, at
		}
	}
	return found
}

func (s *seat) tell(why string) {
	if s != nil && !s.told {
		s.told, s.why = true, why
		close(s.end)
	}
}

func (s *seats) leave(mine *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of[mine.principal], mine)
	if len(s.of[mine.principal]) == 0 {
		delete(s.of, mine.principal)
	}
	s.open--
	s.change()
}

// wait counts a request that waits for a running call.
func (s *seats) wait(g *guard) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[g] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting, g)
		s.change()
	}
}

// change wakes who waits for one. The caller holds mu.
func (s *seats) change() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

func (s *seats) calls() int { return len(s.waiting) }
func (s *seats) all() int   { return s.open + len(s.waiting) }

// settled waits until nothing of what is counted is left.
func (s *seats) settled(ctx context.Context, count func(*seats) int) error {
	for {
		s.mu.Lock()
		if count(s) == 0 {
			s.mu.Unlock()
			return nil
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// endAll tells every stream to end, and those still to come.
func (s *seats) endAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, of := range s.of {
		for one := range of {
			one.tell(whyDrained)
		}
	}
}

// cutAll ends what did not end when it was told, and returns how many those are.
func (s *seats) cutAll() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := maps.Clone(s.waiting)
	for _, of := range s.of {
		for one := range of {
			left[one.guard] = struct{}{}
		}
	}
	for g := range left {
		g.cut(whyDrained)
	}
	return len(left)
}

package session

import (
	"sync/atomic"

	"github.com/segno-mcp/segno/eventlog"
)

// eventOverhead is what an event costs besides its payload, roughly.
const eventOverhead = 48

// kept is what a session remembers of a call's stream as long as the log has
// it: to answer the same request again, and to know what may go first.
type kept struct {
	stream string
	id     string // the client's request id, its JSON text
	digest [32]byte
	born   chan struct{} // closed when the opening is in the log, or will never be

	events, bytes atomic.Int64
	idsOut        atomic.Bool // an event id of it may be with a client
	proven        atomic.Bool // the client has the outcome
	keyed         bool        // an idempotency key leads to it
	ended         bool        // guarded by the session's lock, like endedAt
	endedAt       int64       // Unix time in nanoseconds
	gone          bool
}

func (k *kept) add(events, bytes int64) {
	k.events.Add(events)
	k.bytes.Add(bytes)
}

func (k *kept) size() int64 { return k.bytes.Load() + k.events.Load()*eventOverhead }

// account sums up what one principal uses.
type account struct {
	bytes    atomic.Int64
	sessions int // guarded by the manager's lock, like children
	children int
}

// grew keeps the sums and lets go what goes first when one is over its bound.
func (s *Session) grew(n int64) {
	own := s.bytes.Add(n)
	all := s.account.bytes.Add(n)
	if n > 0 && (own > s.m.lim.SessionMax || all > s.m.lim.PrincipalMax) {
		s.relieve(max(own-s.m.lim.SessionMax, all-s.m.lim.PrincipalMax))
	}
}

// relieve frees about n bytes of the session: streams whose ids nobody ever
// got, then those proven received, then the progress of ended streams, then
// that of running ones, the oldest first in each.
func (s *Session) relieve(n int64) {
	if !s.relieving.CompareAndSwap(false, true) {
		return
	}
	defer s.relieving.Store(false)
	target := s.bytes.Load() - n
	over := func() bool { return s.bytes.Load() > target }
	for _, first := range []func(*kept) bool{
		func(k *kept) bool { return !k.idsOut.Load() && !k.keyed },
		func(k *kept) bool { return k.proven.Load() },
	} {
		for _, k := range s.endedStreams() {
			if !over() {
				return
			}
			if first(k) {
				s.drop(k)
			}
		}
	}
	for _, k := range s.endedStreams() {
		if !over() {
			return
		}
		s.trimEnded(k)
	}
	for _, st := range s.liveStreams() {
		if !over() {
			return
		}
		st.trimHalf(over)
	}
}

// trimHalf drops the older half of what may go, and again while more must.
func (st *stream) trimHalf(over func() bool) {
	for over() {
		st.mu.Lock()
		through := st.window.Half()
		st.mu.Unlock()
		if through == 0 {
			return
		}
		st.trim(through, eventlog.Pinned)
	}
}

// full refuses what needs room in the log when there is none.
func (s *Session) full() *Refusal {
	lim := s.m.lim
	switch {
	case s.bytes.Load() > lim.SessionMax:
		return refuse("session-max", s.m.lim.Repost, "the session's streams fill the %d bytes it may use", lim.SessionMax)
	case s.account.bytes.Load() > lim.PrincipalMax:
		return refuse("principal-max", s.m.lim.Repost, "the streams of all your sessions fill the %d bytes they may use", lim.PrincipalMax)
	case s.m.log.Size() > lim.StoreMax:
		return refuse("store-max", s.m.lim.Repost, "the store is full: it may use %d bytes", lim.StoreMax)
	}
	return nil
}

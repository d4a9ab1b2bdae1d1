package session

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/wire"
)

// kept is what a session knows of a call's stream in the log for as long as it
// may have to act on it: to answer the same request again, and to know what may
// go first. Some time after its end the log alone knows it.
type kept struct {
	stream string
	ids    string // the request's id, JSON text; of a batch an array of them
	digest [sha256.Size]byte

	events, bytes atomic.Int64
	idsOut        atomic.Bool // an event id of it may be with a client
	proven        atomic.Bool // the client has the outcome

	// The session's lock guards these.
	recorded bool          // the opening is in the log
	born     chan struct{} // closed when it is, or never will be; made by who waits
	awaited  int           // calls handed out that no connection came for yet
	keyed    bool          // an idempotency key leads to it
	ended    bool
	endedAt  int64 // Unix time in nanoseconds
	trimmed  bool  // only what outlives retain-age is left
	gone     bool  // nothing is to be done about it any more
}

func (k *kept) add(events, bytes int64) {
	k.events.Add(events)
	k.bytes.Add(bytes)
}

func (k *kept) size() int64 { return k.bytes.Load() + k.events.Load()*eventOverhead }

// memo is what stays of a stream that is dropped: the ids of its requests,
// behind a mark if the client has their outcomes. Nothing if no client can ask.
func (k *kept) memo() []byte {
	switch {
	case !k.idsOut.Load():
		return nil
	case k.proven.Load():
		return []byte(provenMark + k.ids)
	}
	return []byte(k.ids)
}

const provenMark = "-"

// remember notes a request by its id and bytes. first is false if it is a
// repost; then the stream of the first is returned. A client that was seen to
// use an id for different requests is never attached to anything.
func (s *Session) remember(c *call, raw []byte) (k *kept, first bool) {
	digest := sha256.Sum256(raw)
	id := string(c.id)
	s.mu.Lock()
	old := s.byID[id]
	switch {
	case old == nil || s.rec.ReusesIDs:
	case old.digest != digest:
		s.rec.ReusesIDs = true
		defer func() {
			s.own.add(nil, nil, true)
			s.log.Info("the client uses request ids again; reposts are not recognised from now on", "request", id)
		}()
	case s.answersAgain(old):
		old.awaited++
		s.mu.Unlock()
		return old, false
	}
	k = s.keep(newStreamName())
	k.ids, k.digest = id, digest
	s.byID[id] = k
	s.mu.Unlock()
	return k, true
}

// answersAgain tells whether a repost may attach: while the first runs, and
// for a while after its end unless the client proved that it has the outcome.
// The lock is held.
func (s *Session) answersAgain(k *kept) bool {
	if !k.ended {
		return true
	}
	return !k.proven.Load() && time.Since(time.Unix(0, k.endedAt)) <= s.m.lim.Repost
}

// rememberBatch notes a batch, which is not looked for again.
func (s *Session) rememberBatch(calls []*call) *kept {
	ids := make([]string, len(calls))
	for i, c := range calls {
		ids[i] = string(c.id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keep(newStreamName())
	k.ids = joinIDs(ids)
	return k
}

func joinIDs(ids []string) string { return "[" + strings.Join(ids, ",") + "]" }

// keep makes the note of a stream; the lock is held.
func (s *Session) keep(stream string) *kept {
	k := &kept{stream: stream, awaited: 1}
	s.kept[stream] = k
	return k
}

// recall notes a stream that is only in the log, as one that has ended. Whether
// a client has an id of it is not known, so it counts as if.
func (s *Session) recall(name string, opening []byte, info eventlog.Info) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keep(name)
	k.awaited, k.recorded = 0, true
	k.add(info.Events, info.Bytes)
	k.idsOut.Store(true)
	if info.Ended {
		k.ended, k.endedAt = true, time.Now().UnixNano()
		s.lasting = append(s.lasting, k)
	}
	ids := requestIDs(opening)
	if len(ids) == 1 && !wire.IsArray(opening) {
		k.ids, k.digest = ids[0], sha256.Sum256(opening)
		s.byID[k.ids] = k
		return k
	}
	k.ids = joinIDs(ids)
	return k
}

// requestIDs lists the ids of the requests in an opening.
func requestIDs(opening []byte) (ids []string) {
	for _, raw := range elements(opening) {
		if msg, err := wire.Parse(raw); err == nil && msg.Kind == wire.Request {
			ids = append(ids, string(msg.IDText()))
		}
	}
	return ids
}

func elements(text []byte) [][]byte {
	if !wire.IsArray(text) {
		return [][]byte{text}
	}
	list, err := wire.Split(text)
	if err != nil {
		return nil
	}
	return list
}

// recorded: the opening is in the log, and a name is bound to it if keyed.
func (s *Session) recorded(k *kept, keyed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.recorded, k.keyed = true, keyed
	k.tell()
}

// tell wakes who waits for the opening; the lock is held.
func (k *kept) tell() {
	if k.born != nil {
		close(k.born)
		k.born = nil
	}
}

// forget takes the note of a stream away that is not, or no longer, in the log,
// or that nothing more is to be known of.
func (s *Session) forget(k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strike(k)
}

// strike is forget with the lock held.
func (s *Session) strike(k *kept) {
	k.gone = true
	k.tell()
	delete(s.kept, k.stream)
	if s.byID[k.ids] == k {
		delete(s.byID, k.ids)
	}
}

// putBack makes the stream the first to be dropped when that works again: the
// log still has it, so it still counts.
func (s *Session) putBack(k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.gone = false
	s.kept[k.stream] = k
	if s.byID[k.ids] == nil {
		s.byID[k.ids] = k
	}
	s.past = slices.Insert(s.past, 0, k)
}

// attachTo waits for the opening of the request that is repeated.
func (s *Session) attachTo(ctx context.Context, k *kept) (*Call, error) {
	for {
		s.mu.Lock()
		switch {
		case k.gone:
			s.mu.Unlock()
			return nil, s.m.refuse("store", time.Second, "the request this one repeats could not be recorded; it was not executed")
		case k.recorded:
			s.mu.Unlock()
			s.m.meter.Add(metric.Dropped, "repost", 1)
			return &Call{Stream: k.stream}, nil
		}
		if k.born == nil {
			k.born = make(chan struct{})
		}
		born := k.born
		s.mu.Unlock()
		select {
		case <-born:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// streamEnded: the End of the stream is in the log.
func (s *Session) streamEnded(k *kept) {
	if k == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !k.ended && !k.gone {
		k.ended, k.endedAt = true, time.Now().UnixNano()
		s.past = append(s.past, k)
	}
}

func (s *Session) keptOf(stream string) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[stream]
}

// endedStreams lists the ended streams, those that may go soon first.
func (s *Session) endedStreams() []*kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := func(k *kept) bool { return k.gone }
	s.past = slices.DeleteFunc(s.past, gone)
	s.lasting = slices.DeleteFunc(s.lasting, gone)
	return slices.Concat(s.past, s.lasting)
}

// overdue returns the streams that ended before the time and that nobody can
// come back for.
func (s *Session) overdue(before int64) (due []*kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for ; n < len(s.past) && s.past[n].endedAt < before; n++ {
		switch k := s.past[n]; {
		case k.gone:
		case k.idsOut.Load() || k.keyed || s.inUse(k):
			s.lasting = append(s.lasting, k)
		default:
			due = append(due, k)
		}
	}
	clear(s.past[:n])
	s.past = s.past[n:]
	return due
}

// inUse tells whether somebody is connected to the stream, writes to it, or is
// about to come for it; the lock is held.
func (s *Session) inUse(k *kept) bool { return k.awaited > 0 || s.streams[k.stream] != nil }

// takeOut strikes out an ended stream that is to be dropped, unless somebody
// uses it.
func (s *Session) takeOut(k *kept) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.gone || s.inUse(k) {
		return false
	}
	s.strike(k)
	return true
}

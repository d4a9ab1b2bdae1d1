// Package session answers whose message it is. It holds the sessions of one
// upstream: which stream a message of the server goes to, which request an
// answer belongs to, what runs, what may be forgotten, and what a connection
// that comes back has missed.
//
// Everything that is said goes into the log first and is read back from there
// by the connections, so nothing here knows how a client is connected. The
// files: manager (the table of sessions), owner (opening, loading and ending
// one), call (from a request to its outcome), child (the server process),
// route (what the server says), asks (what it asks), stream (one stream's
// writer), reader and resume (connections), repost (the same request again),
// expiry and retain (what goes when), record (what survives a restart).
package session

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/retention"
	"github.com/segno-mcp/segno/internal/wire"
)

// Session is a client's session, in this process its owner. Methods may be
// called from any goroutine. Locks are taken in the order session, manager,
// child, stream.
type Session struct {
	m       *Manager
	id      string // with the secret; only in the process that made it
	name    string // in the log
	claim   eventlog.Claim
	account *account
	log     *slog.Logger
	own     *stream
	held    *retention.Held
	breaker breaker

	lastSign  atomic.Int64 // Unix time in nanoseconds
	lastPost  atomic.Int64
	bytes     atomic.Int64
	readers   atomic.Int64 // connections
	relieving atomic.Bool
	life      *time.Timer

	mu      sync.Mutex
	rec     record
	child   *child
	streams map[string]*stream // running, or with readers
	kept    map[string]*kept   // every call's stream in the log
	byID    map[string]*kept   // the newest stream for a request id
	past    []*kept            // ended streams that may go soon, oldest first
	lasting []*kept            // those that a client may come back for
	calls   map[*call]struct{}
	asks    map[string]*ask
	lastAsk int64
	ended   bool
	doomed  bool // initialize was refused
}

// ID is the session's id as the client knows it, of a session just created. It
// holds a secret.
func (s *Session) ID() string { return s.id }

// Public is the part of the id that may be shown.
func (s *Session) Public() string { return s.rec.Public }

// Asked is the protocol version that the client asked for in initialize.
func (s *Session) Asked() string { return s.rec.Asked }

// Principal is whose session it is.
func (s *Session) Principal() string { return s.rec.Principal }

// Version is what initialize was answered with, "" before that.
func (s *Session) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Negotiated
}

// Client is what the client says of itself.
func (s *Session) Client() (name, version, userAgent string) {
	return s.rec.ClientName, s.rec.ClientVer, s.rec.UserAgent
}

// Level is the log level that the client set, "" if it did not.
func (s *Session) Level() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Level
}

func (s *Session) addsLogging() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.AddLogging
}

func (s *Session) setLevel(level string) {
	s.change(func(r *record) { r.Level = level })
}

// change edits the session's record and writes it with the next append to the
// session's own stream.
func (s *Session) change(edit func(*record)) {
	s.mu.Lock()
	edit(&s.rec)
	raw := s.rec.encode()
	s.mu.Unlock()
	s.own.add(nil, nil, raw)
}

// append writes to the log. A store that takes nothing for the moment is asked
// again and again: what is on its way is held back, not lost.
func (s *Session) append(a *eventlog.Append) error {
	a.Fence = s.claim.Fence
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := s.m.log.Append(s.m.ctx, *a)
		if !errors.Is(err, eventlog.ErrUnavailable) {
			return err
		}
		s.m.meter.Add(Errors, "store", 1)
		select {
		case <-s.m.ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// Deliver takes a notification or a response of the client.
func (s *Session) Deliver(ctx context.Context, msg *wire.Message) error {
	s.posted()
	switch {
	case msg.Kind == wire.Result || msg.Kind == wire.Failure:
		return s.answerAsk(ctx, msg)
	case msg.Method == wire.Cancelled:
		s.cancelled(msg)
		return nil
	case msg.Method == wire.Initialized:
		s.change(func(r *record) { r.Initialized = true })
	}
	s.mu.Lock()
	ch := s.child
	s.mu.Unlock()
	if ch == nil || msg.Method == wire.Initialized && ch.first != s {
		return nil
	}
	select {
	case <-ch.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if ch.err != nil {
		return nil
	}
	s.m.meter.Add(MessagesOut, "server", 1)
	return ch.conn.Send(s.m.ctx, msg.Raw)
}

// cancelled: the client takes back a request. Its stream ends without a response.
func (s *Session) cancelled(msg *wire.Message) {
	at, err := msg.Find("params", "requestId")
	if err != nil || !at.Ok() {
		return
	}
	id := string(msg.Text(at))
	c := s.callWith(func(c *call) bool { return string(c.id) == id && !c.init })
	if c == nil {
		s.m.meter.Add(Dropped, "cancel for no call", 1)
		return
	}
	s.cancel(c, msg.StringAt("params", "reason"), nil, "cancelled")
}

// began counts the call among those that run.
func (s *Session) began(c *call, o CallOptions) {
	s.mu.Lock()
	s.calls[c] = struct{}{}
	s.mu.Unlock()
	s.m.meter.Add(StreamsOpen, "", 1)
	if c.trace == nil {
		c.trace = o.Trace
	}
	c.traced = s.m.tracer.Call(c.trace, s.rec.Public, c.st.key.Stream, c.method, c.tool)
}

func (s *Session) callsOf(st *stream) []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*call
	for c := range s.calls {
		if c.st == st {
			found = append(found, c)
		}
	}
	return found
}

// newStream makes a stream that calls are about to be written to.
func (s *Session) newStream(name string, k *kept, calls int) *stream {
	st := s.blankStream(name)
	st.kept, st.left = k, calls
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[name] = st
	return st
}

func (s *Session) blankStream(name string) *stream {
	return &stream{s: s, key: eventlog.Key{Session: s.name, Stream: name}, open: map[uint64]*ask{}}
}

// streamEnded: the End of the stream is in the log.
func (s *Session) streamEnded(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := st.kept; k != nil && !k.ended {
		k.ended, k.endedAt = true, time.Now().UnixNano()
		s.past = append(s.past, k)
	}
}

// release forgets a stream that nobody writes to or reads any more.
func (s *Session) release(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st != s.own && len(st.seats) == 0 && st.left <= 0 && !st.writing && len(st.queue) == 0 {
		delete(s.streams, st.key.Stream)
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
		case k.idsOut.Load() || k.keyed:
			s.lasting = append(s.lasting, k)
		default:
			due = append(due, k)
		}
	}
	clear(s.past[:n])
	s.past = s.past[n:]
	return due
}

func (s *Session) liveStreams() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []*stream{s.own}
	for _, st := range s.streams {
		if st != s.own {
			all = append(all, st)
		}
	}
	return all
}

// Tracer makes a span of each call. parent is the trace context that came with
// it; end is called once with how the call ended.
type Tracer interface {
	Call(parent map[string]string, session, stream, method, tool string) (end func(outcome string))
}

type noTracer struct{}

func (noTracer) Call(map[string]string, string, string, string, string) func(string) {
	return func(string) {}
}

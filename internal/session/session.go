// Package session answers whose message it is. It holds the sessions of one
// upstream: which stream a message of the server goes to, which request an
// answer belongs to, what runs, what may be forgotten, and what a connection
// that comes back has missed.
//
// Everything that is said goes into the log first and is read back from there
// by the connections, so nothing here knows how a client is connected. The
// files: manager (the table of sessions), limits (what may be how much), owner
// (opening, loading and ending one), call (from a request to its outcome),
// child (the server process), route (what the server says), asks (what it
// asks), stream (one stream's writer), reader and resume (connections), kept
// (what is known of streams that are in the log, and the same request again),
// idempotency (the same call again), expiry (what goes when), record (what
// survives a restart).
package session

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
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
	from    string // the instance that it was with when it was last resumed; mu guards it
	log     *slog.Logger
	own     *stream
	held    *retention.Held
	breaker breaker
	stock   stock

	lastSign atomic.Int64 // Unix time in nanoseconds
	lastPost atomic.Int64
	readers  atomic.Int64 // connections

	recording sync.Mutex // held while the record is encoded and written: no older one comes after a newer

	mu        sync.Mutex
	rec       record
	child     *child
	life      *time.Timer
	streams   map[string]*stream // written or read in this process
	kept      map[string]*kept   // calls' streams in the log that may be asked for again
	byID      map[string]*kept   // the newest stream for a request id
	past      []*kept            // ended streams that may go soon, oldest first
	lasting   []*kept            // those that a client may come back for
	calls     map[*call]struct{}
	accepting int // calls on their way there
	lastCall  int64
	asks      map[string]*ask
	lastAsk   int64
	ended     bool // out of the table: it starts nothing any more
	doomed    bool // initialize was not answered by a result
}

// newSession makes a session that is in no table yet. It counts for the account
// from now on.
func (m *Manager) newSession(name string, rec *record, acc *account) *Session {
	s := &Session{
		m: m, name: name, rec: *rec, account: acc, from: rec.owner(),
		log:     m.logger.With("session", rec.Public, "principal", rec.Principal),
		held:    retention.NewHeld(m.lim.HeldMax),
		streams: map[string]*stream{}, kept: map[string]*kept{}, byID: map[string]*kept{},
		calls: map[*call]struct{}{}, asks: map[string]*ask{},
	}
	s.own = s.blankStream(rec.Own)
	s.streams[rec.Own] = s.own
	s.posted()
	return s
}

// ID is the session's id as the client knows it, of a session just created. It
// holds a secret.
func (s *Session) ID() string { return s.id }

// Public is the part of the id that may be shown.
func (s *Session) Public() string { return s.rec.Public }

// Asked is the protocol version that the client asked for in initialize.
func (s *Session) Asked() string { return s.rec.Asked }

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

// change edits the session's record and lets it be written with the next append
// to the session's own stream.
func (s *Session) change(edit func(*record)) {
	s.mu.Lock()
	edit(&s.rec)
	s.mu.Unlock()
	s.own.add(nil, nil, true)
}

func (s *Session) encoded() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.encode()
}

// append writes to the log, with the session's record as it then is if record
// is set. A store that takes nothing for the moment is asked again and again:
// what is on its way is held back, not lost.
func (s *Session) append(a *eventlog.Append, record bool) error {
	if record {
		s.recording.Lock()
		defer s.recording.Unlock()
		a.Record = s.encoded()
	}
	a.Fence = s.claim.Fence
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := s.m.log.Append(s.m.ctx, *a)
		if !errors.Is(err, eventlog.ErrUnavailable) {
			return err
		}
		s.m.meter.Add(metric.Errors, "store", 1)
		select {
		case <-s.m.ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// Deliver takes a notification or a response of the client. That nobody waits
// for it any more is no error; ctx bounds the wait for a server that starts.
func (s *Session) Deliver(ctx context.Context, msg *wire.Message) error {
	s.posted()
	switch {
	case msg.Kind == wire.Result || msg.Kind == wire.Failure:
		s.answerAsk(msg)
		return nil
	case msg.Method == wire.Cancelled:
		s.cancelled(msg)
		return nil
	case msg.Method == wire.Initialized:
		s.change(func(r *record) { r.Initialized = true })
	}
	s.mu.Lock()
	ch := s.child
	s.mu.Unlock()
	if ch == nil {
		return nil
	}
	select {
	case <-ch.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if ch.err != nil || msg.Method == wire.Initialized && !ch.greet() {
		return nil
	}
	if err := ch.conn.Send(s.m.ctx, msg.Raw); err != nil {
		s.log.Info("a notification did not reach the MCP server", "method", msg.Method, "error", err)
		return nil
	}
	s.m.meter.Add(metric.MessagesOut, "server", 1)
	return nil
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
		s.m.meter.Add(metric.Dropped, "cancel for no call", 1)
		return
	}
	s.cancel(c, msg.StringAt("params", "reason"), nil, "cancelled")
}

// began counts the call among those that run.
func (s *Session) began(c *call, o CallOptions) {
	if c.trace == nil {
		c.trace = o.Trace
	}
	c.traced = s.m.tracer.Call(c.trace, s.rec.Public, c.st.key.Stream, c.method, c.tool)
	s.m.meter.Add(metric.StreamsOpen, "", 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastCall++
	c.n = s.lastCall
	s.calls[c] = struct{}{}
}

// callWith is the newest running call for which ok is true.
func (s *Session) callWith(ok func(*call) bool) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *call
	for c := range s.calls {
		if (found == nil || c.n > found.n) && ok(c) {
			found = c
		}
	}
	return found
}

// callsOf lists the running calls of a stream, or all if it is nil.
func (s *Session) callsOf(st *stream) []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*call
	for c := range s.calls {
		if st == nil || c.st == st {
			found = append(found, c)
		}
	}
	return found
}

// newStream makes a stream that calls are about to be written to.
func (s *Session) newStream(k *kept, calls int) *stream {
	st := s.blankStream(k.stream)
	st.kept, st.left = k, calls
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[k.stream] = st
	return st
}

func (s *Session) blankStream(name string) *stream {
	return &stream{s: s, key: eventlog.Key{Session: s.name, Stream: name}}
}

// streamFor is the live stream of a name, or one that stands for it while
// somebody reads.
func (s *Session) streamFor(name string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.kept[name]; k != nil && k.awaited > 0 {
		k.awaited--
	}
	st := s.streams[name]
	if st == nil {
		st = s.blankStream(name)
		st.kept = s.kept[name]
		st.closed, st.ended, st.gone = true, true, s.ended
		s.streams[name] = st
	}
	return st
}

// liveStream is the stream if it is written or read, else nil.
func (s *Session) liveStream(name string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[name]
}

// release forgets a stream that nobody writes to or reads any more.
func (s *Session) release(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	over := st.closed && !st.writing && len(st.queue) == 0 && len(st.seats) == 0
	if over && st != s.own && s.streams[st.key.Stream] == st {
		delete(s.streams, st.key.Stream)
	}
}

// discard takes back a stream whose opening could not be written.
func (s *Session) discard(st *stream) {
	s.forget(st.kept)
	st.close()
	s.release(st)
}

func (s *Session) liveStreams() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		all = append(all, st)
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

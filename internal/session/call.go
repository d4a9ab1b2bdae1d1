package session

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/notice"
	"github.com/segno-mcp/segno/internal/wire"
)

// Call is an accepted request: the stream that is its life, or an Answer that
// Segno gave by itself.
type Call struct {
	Stream string
	Answer []byte
	st     *stream
}

// CallOptions are what travels beside a request.
type CallOptions struct {
	IdempotencyKey string            // from the header; _meta is looked at too
	Trace          map[string]string // traceparent, tracestate, baggage: of _meta, or else of the HTTP request
}

// call is a request that is being answered.
type call struct {
	st      *stream
	n       int64  // rises with every call of the session
	id      []byte // the client's spelling of its id
	token   []byte // of its progress token; nil if it wants no progress
	tokenAt wire.Span
	method  string
	tool    string
	task    string // the task it speaks of (2025-11-25, tasks)
	set     string // what it sets at the server: a log level or a uri
	init    bool
	at      time.Time
	trace   map[string]string
	traced  func(how string)
	quit    chan struct{} // closed at its end; only of a call that waits for another's outcome

	// The child's lock guards these.
	heard   bool // something came for it
	refused bool // the child did not take it

	// The session's lock guards these.
	child  *child // that it was given to
	inner  int64  // its id there
	sent   bool   // the child has it
	recall bool   // it ended before it was sent: to be cancelled right after
	why    string // said with the cancel
	done   bool
	limit  *time.Timer
}

// Call accepts a request: its opening is in the log, and it goes to the server.
// A repost attaches to the stream that is there. The error is a *Refusal or a
// *wire.Error, both to be answered in-band, the context's, or if the session is
// over here eventlog.ErrNoSession or, where it can be opened again, ErrFenced.
func (s *Session) Call(ctx context.Context, msg *wire.Message, o CallOptions) (*Call, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.accepted()
	if a := s.answer(msg); a != nil {
		return &Call{Answer: a}, nil
	}
	c, err := newCall(msg)
	if err != nil {
		return nil, err
	}
	key, err := idempotencyKey(msg, o.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	k, first := s.remember(c, msg.Raw)
	if !first {
		return s.attachTo(ctx, k)
	}
	if err := s.admit(); err != nil {
		s.forget(k)
		return nil, err
	}
	c.st = s.newStream(k, 1)
	holder, err := s.accept(ctx, c.st, msg, s.bindName(msg, key))
	if err != nil {
		s.discard(c.st)
		return nil, err
	}
	if holder != nil {
		c.quit = make(chan struct{})
	}
	s.began(c, o)
	if holder != nil {
		s.m.run(func() { s.copyOutcome(c, *holder) })
	} else {
		s.dispatch(c, msg)
	}
	return &Call{Stream: k.stream, st: c.st}, nil
}

// newCall reads from a request what Segno needs to know of it.
func newCall(msg *wire.Message) (*call, error) {
	c := &call{id: append([]byte(nil), msg.IDText()...), method: msg.Method, at: time.Now(), init: msg.Method == wire.Initialize}
	if bytes.Contains(msg.Raw, []byte(`"traceparent"`)) {
		c.trace = map[string]string{}
		for _, name := range []string{"traceparent", "tracestate", "baggage"} {
			if v := msg.StringAt("params", "_meta", name); v != "" {
				c.trace[name] = v
			}
		}
	}
	token, err := msg.Find("params", "_meta", "progressToken")
	if err != nil {
		return nil, invalid(msg, err.Error())
	}
	if token.Ok() {
		if err := wire.ValidID(msg.Text(token)); err != nil {
			return nil, invalid(msg, "progressToken: "+err.Error())
		}
		c.token, c.tokenAt = append([]byte(nil), msg.Text(token)...), token
	}
	switch msg.Method {
	case wire.ToolsCall:
		c.tool = msg.StringAt("params", "name")
	case wire.TasksResult:
		c.task = msg.StringAt("params", "taskId")
	case wire.SetLevel:
		c.set = msg.StringAt("params", "level")
	case wire.Subscribe, wire.Unsubscribe:
		c.set = msg.StringAt("params", "uri")
	}
	return c, nil
}

func invalid(msg *wire.Message, why string) *wire.Error {
	return &wire.Error{Code: wire.CodeInvalid, Message: why, ID: append([]byte(nil), msg.IDText()...)}
}

// begin keeps the session in memory while a call is being accepted.
func (s *Session) begin(ctx context.Context) error {
	s.posted()
	s.mu.Lock()
	ended, doomed := s.ended, s.doomed
	if !ended && !doomed {
		s.accepting++
	}
	s.mu.Unlock()
	switch {
	case doomed:
		return eventlog.ErrNoSession
	case !ended:
		return nil
	}
	if _, err := s.m.log.Record(ctx, s.name); err != nil {
		return err
	}
	return eventlog.ErrFenced // it is to be opened again
}

func (s *Session) accepted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepting--
}

// admit refuses a call that could not be carried out now.
func (s *Session) admit() error {
	if r := s.full(); r != nil {
		return r
	}
	if r := s.broken(); r != nil {
		return r
	}
	return s.childRoom()
}

// accept writes the opening of a stream. If the name it is to be bound to is
// taken, the stream that holds it is returned: the call's outcome is that one's.
func (s *Session) accept(ctx context.Context, st *stream, msg *wire.Message, bind string) (*eventlog.Key, error) {
	// A client that leaves now does not cancel: the request may count already.
	ctx = context.WithoutCancel(ctx)
	a := eventlog.Append{
		Key:     st.key,
		Fence:   s.claim.Fence,
		Events:  []eventlog.Event{{Kind: eventlog.Opening, Time: time.Now().UnixNano(), Data: append([]byte(nil), msg.Raw...)}},
		Durable: msg.Method == wire.ToolsCall,
		New:     true,
		Bind:    bind,
	}
	err := s.m.log.Append(ctx, a)
	var taken *eventlog.TakenError
	if errors.As(err, &taken) {
		if err := s.sameArguments(ctx, taken.Holder, msg); err != nil {
			return nil, err
		}
		a.Bind = ""
		err = s.m.log.Append(ctx, a)
	}
	if err != nil {
		return nil, s.unavailable(err)
	}
	st.opened(&a)
	s.recorded(st.kept, a.Bind != "")
	if taken != nil {
		return &taken.Holder, nil
	}
	return nil, nil
}

// opened accounts for the opening, which is not queued like other events.
func (st *stream) opened(a *eventlog.Append) {
	n := int64(len(a.Events[0].Data))
	st.mu.Lock()
	st.top = 1
	st.mu.Unlock()
	if st.kept != nil {
		st.kept.add(1, n)
	}
	st.s.grew(1, n)
}

// unavailable turns what the log says of an append into what the client hears.
func (s *Session) unavailable(err error) error {
	if errors.Is(err, eventlog.ErrNoSession) {
		return err
	}
	if errors.Is(err, eventlog.ErrFenced) {
		s.lost(err)
	}
	s.log.Warn("accepting a request", "error", err)
	return s.m.refuse("store", time.Second, "the store cannot record the request now, so it was not executed")
}

// dispatch hands the call to the child, at once if there is one.
func (s *Session) dispatch(c *call, msg *wire.Message) {
	if ch := s.readyChild(); ch != nil {
		s.send(ch, c, msg)
		return
	}
	own := *msg
	own.Raw = append([]byte(nil), msg.Raw...)
	// At once, so that it is initialize that the first child is started for.
	ch, err := s.someChild(c.init)
	s.m.run(func() {
		if err == nil {
			err = s.await(ch, c.init)
		}
		switch {
		case err != nil:
			s.settle(c, notice.NotExecuted(c.id, err.Error(), tailOf(err)), "error")
		case c.init && ch.first != s:
			s.join(ch, c)
		default:
			s.send(ch, c, &own)
		}
	})
}

// join answers initialize for a session that shares a child whose handshake was
// made by another.
func (s *Session) join(ch *child, c *call) {
	ch.mu.Lock()
	raw := ch.initDone
	ch.mu.Unlock()
	if !s.finish(c, "result") {
		return
	}
	answer := s.initialized(ch, withID(raw, c.id))
	now := time.Now().UnixNano()
	c.st.lastOf(1)
	c.st.add([]eventlog.Event{
		{Kind: eventlog.Outcome, Time: now, Data: answer},
		{Kind: eventlog.End, Time: now},
	}, nil, true)
}

// send writes the call to the child with Segno's own id and token in it. One
// that has ended before does not reach the child any more.
func (s *Session) send(ch *child, c *call, msg *wire.Message) {
	inner, ok := s.enlist(ch, c)
	if !ok {
		gone := ch.ending()
		s.settle(c, notice.NotExecuted(c.id, gone.Error(), gone.Tail), "error")
		return
	}
	if err := ch.conn.Send(s.m.ctx, spliceCall(msg, c, inner)); err != nil {
		if !ch.refuses(inner, err) && ch.forget(inner) {
			s.settle(c, notice.NotExecuted(c.id, err.Error(), ""), "error")
		}
		return
	}
	s.m.meter.Add(metric.MessagesOut, "server", 1)
	s.m.meter.Add(metric.BytesOut, "server", float64(len(msg.Raw)))
	s.mu.Lock()
	c.sent = true
	if !c.done {
		s.limitTime(c)
	}
	recall, why := c.recall, c.why
	s.mu.Unlock()
	if recall {
		ch.cancel(inner, why)
	}
}

// enlist gives the call its id at the child. False: it has ended, or the child
// has.
func (s *Session) enlist(ch *child, c *call) (inner int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.done {
		return 0, false
	}
	if inner, ok = ch.enlist(c); ok {
		c.child, c.inner = ch, inner
	}
	return inner, ok
}

// spliceCall puts Segno's own integer in the place of the client's id and
// progress token; the rest stays as it is.
func spliceCall(msg *wire.Message, c *call, inner int64) []byte {
	n := strconv.AppendInt(nil, inner, 10)
	edits := []wire.Edit{{Span: msg.ID, With: n}}
	if c.token != nil {
		edits = append(edits, wire.Edit{Span: c.tokenAt, With: n})
	}
	return wire.AppendSplice(make([]byte, 0, len(msg.Raw)+24), msg.Raw, edits...)
}

// settle ends a call with its one outcome, or without one if it is nil (the
// client cancelled). Only the first to come does it.
func (s *Session) settle(c *call, outcome []byte, how string) bool {
	if !s.finish(c, how) {
		return false
	}
	now := time.Now().UnixNano()
	var events []eventlog.Event
	if outcome != nil {
		events = append(events, eventlog.Event{Kind: eventlog.Outcome, Time: now, Data: outcome})
	}
	if c.st.lastOf(1) {
		events = append(events, eventlog.Event{Kind: eventlog.End, Time: now})
	}
	c.st.add(events, nil, false)
	return true
}

// cancel ends a call, with the outcome or without any, and tells the server if
// it has the call; if it is just being given it, right after.
func (s *Session) cancel(c *call, why string, outcome []byte, how string) {
	if !s.settle(c, outcome, how) || c.init {
		return
	}
	s.mu.Lock()
	ch, inner, sent := c.child, c.inner, c.sent
	c.recall, c.why = ch != nil && !sent, why
	s.mu.Unlock()
	if sent {
		ch.cancel(inner, why)
	}
}

// finish takes the call out of what runs. It reports false if that was done
// before, by whoever decided the outcome.
func (s *Session) finish(c *call, how string) bool {
	s.mu.Lock()
	if c.done {
		s.mu.Unlock()
		return false
	}
	c.done = true
	delete(s.calls, c)
	ch, inner := c.child, c.inner
	s.mu.Unlock()
	if ch != nil {
		ch.forget(inner)
	}
	if c.limit != nil {
		c.limit.Stop()
	}
	if c.quit != nil {
		close(c.quit)
	}
	if c.init && how != "result" {
		s.doom()
		if ch != nil && !s.m.shared {
			ch.settleReady(errNoInit)
		}
	}
	s.touch()
	c.traced(how)
	s.m.meter.Add(metric.StreamsOpen, "", -1)
	s.m.meter.Add(metric.Outcomes, how, 1)
	s.m.meter.Observe(metric.OutcomeSeconds, "", time.Since(c.at).Seconds())
	return true
}

// lastOf tells whether the stream has no call left once n more have ended.
func (st *stream) lastOf(n int) bool {
	st.mu.Lock()
	st.left -= n
	last := st.left <= 0
	if last {
		st.disarmAlone()
	}
	st.mu.Unlock()
	if last {
		st.s.dropAsksOf(st)
	}
	return last
}

// Batch accepts an array of messages (2025-03-26, Base Protocol, Batching): one
// stream with an outcome for each request in it. Notifications and responses
// are delivered. The Call is nil if the batch holds no request. raw is the
// whole array, msgs its elements.
func (s *Session) Batch(ctx context.Context, raw []byte, msgs []wire.Message, o CallOptions) (*Call, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.accepted()
	if len(msgs) > s.m.lim.MaxBatch {
		return nil, &wire.Error{Code: wire.CodeInvalid, Message: "the batch holds too many messages"}
	}
	calls, requests, err := sortBatch(msgs)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		if msgs[i].Kind == wire.Request {
			continue
		}
		if err := s.Deliver(ctx, &msgs[i]); err != nil {
			return nil, err
		}
	}
	if len(calls) == 0 {
		return nil, nil
	}
	return s.openBatch(ctx, raw, calls, requests, o)
}

// sortBatch finds the requests in a batch.
func sortBatch(msgs []wire.Message) (calls []*call, requests []*wire.Message, err error) {
	for i := range msgs {
		msg := &msgs[i]
		if msg.Kind != wire.Request {
			continue
		}
		if msg.Method == wire.Initialize {
			return nil, nil, invalid(msg, "initialize must not be part of a batch")
		}
		c, err := newCall(msg)
		if err != nil {
			return nil, nil, err
		}
		calls, requests = append(calls, c), append(requests, msg)
	}
	return calls, requests, nil
}

func (s *Session) openBatch(ctx context.Context, raw []byte, calls []*call, requests []*wire.Message, o CallOptions) (*Call, error) {
	if err := s.admit(); err != nil {
		return nil, err
	}
	k := s.rememberBatch(calls)
	st := s.newStream(k, len(calls))
	whole := wire.Message{Raw: raw, Method: wire.ToolsCall}
	if _, err := s.accept(ctx, st, &whole, ""); err != nil {
		s.discard(st)
		return nil, err
	}
	for _, c := range calls {
		c.st = st
		s.began(c, o)
	}
	for i, c := range calls {
		if a := s.answer(requests[i]); a != nil {
			s.settle(c, a, "result")
			continue
		}
		s.dispatch(c, requests[i])
	}
	return &Call{Stream: k.stream, st: st}, nil
}

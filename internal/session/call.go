package session

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/segno-mcp/segno/eventlog"
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
	st     *stream
	id     []byte // the client's spelling of its id
	token  []byte // of its progress token; nil if it wants no progress
	method string
	tool   string
	task   string // the task it speaks of (2025-11-25, tasks)
	set    string // what it sets at the server: a log level or a uri
	init   bool
	at     time.Time
	limit  *time.Timer
	trace  map[string]string
	traced func(how string)
	heard  bool // something came for it; guarded by the child's lock, like inner

	inner int64 // its id at the child
	child *child
	done  bool // guarded by the session's lock
}

// Call accepts a request: its opening is in the log, and it goes to the server.
// A repost attaches to the stream that is there. The error is a *Refusal or a
// *wire.Error, both to be answered in-band, or the context's.
func (s *Session) Call(ctx context.Context, msg *wire.Message, o CallOptions) (*Call, error) {
	s.posted()
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
		<-k.born
		return s.attachTo(k)
	}
	if err := s.admit(); err != nil {
		s.forget(k)
		return nil, err
	}
	c.st = s.newStream(k.stream, k, 1)
	holder, err := s.accept(ctx, c.st, msg, s.bindName(msg, key))
	if err != nil {
		s.forget(k)
		return nil, err
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
		c.token = append([]byte(nil), msg.Text(token)...)
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

// answer is Segno's own answer to what needs no server: ping, and the log level
// where the server has no logging.
func (s *Session) answer(msg *wire.Message) []byte {
	switch msg.Method {
	case wire.Ping:
		return wire.AppendResponse(nil, msg.IDText(), []byte("{}"))
	case wire.SetLevel:
		if !s.addsLogging() {
			return nil
		}
		level := msg.StringAt("params", "level")
		if notice.Rank(level) < 0 {
			return wire.AppendError(nil, msg.IDText(), wire.CodeParams, "unknown log level: the levels are debug to emergency", nil)
		}
		s.setLevel(level)
		return wire.AppendResponse(nil, msg.IDText(), []byte("{}"))
	}
	return nil
}

// admit refuses a call that could not be carried out now.
func (s *Session) admit() error {
	if r := s.full(); r != nil {
		return s.refused(r)
	}
	if r := s.broken(); r != nil {
		return s.refused(r)
	}
	return nil
}

func (s *Session) refused(r *Refusal) error {
	s.m.meter.Add(Refused, r.Limit, 1)
	return r
}

// accept writes the opening of a stream. If the name it is to be bound to is
// taken, the stream that holds it is returned: the call's outcome is that one's.
func (s *Session) accept(ctx context.Context, st *stream, msg *wire.Message, bind string) (*eventlog.Key, error) {
	defer close(st.kept.born)
	a := eventlog.Append{
		Key:     st.key,
		Fence:   s.claim.Fence,
		Events:  []eventlog.Event{{Kind: eventlog.Opening, Time: time.Now().UnixNano(), Data: append([]byte(nil), msg.Raw...)}},
		Durable: msg.Method == wire.ToolsCall,
		Bind:    bind,
	}
	// A client that leaves now does not cancel: the request may count already.
	err := s.m.log.Append(context.WithoutCancel(ctx), a)
	var taken *eventlog.TakenError
	if errors.As(err, &taken) {
		if err := s.sameArguments(ctx, taken.Holder, msg); err != nil {
			return nil, err
		}
		a.Bind = ""
		if err := s.m.log.Append(context.WithoutCancel(ctx), a); err != nil {
			return nil, s.unavailable(err)
		}
		st.opened(&a)
		return &taken.Holder, nil
	}
	if err != nil {
		return nil, s.unavailable(err)
	}
	st.kept.keyed = bind != ""
	st.opened(&a)
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
	st.s.m.meter.Add(RetainedEvents, "", 1)
	st.s.grew(n + eventOverhead)
}

// unavailable turns what the log says of an append into what the client hears.
func (s *Session) unavailable(err error) error {
	if errors.Is(err, eventlog.ErrFenced) {
		s.lost(err)
	}
	s.log.Warn("accepting a request", "error", err)
	return s.refused(refuse("store", time.Second, "the store cannot record the request now, so it was not executed"))
}

// dispatch hands the call to the child, at once if there is one.
func (s *Session) dispatch(c *call, msg *wire.Message) {
	if ch := s.readyChild(); ch != nil {
		s.send(ch, c, msg)
		return
	}
	own := *msg
	own.Raw = append([]byte(nil), msg.Raw...)
	s.m.run(func() {
		ch, err := s.childFor(c.init)
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
	answer, record := s.initialized(ch, c, withID(raw, c.id))
	if !s.finish(c, "result") {
		return
	}
	now := time.Now().UnixNano()
	c.st.lastOf(1)
	c.st.add([]eventlog.Event{
		{Kind: eventlog.Outcome, Time: now, Data: answer},
		{Kind: eventlog.End, Time: now},
	}, nil, record)
}

// send writes the call to the child with Segno's own id and token in it.
func (s *Session) send(ch *child, c *call, msg *wire.Message) {
	inner, ok := ch.enlist(c)
	if !ok {
		s.settle(c, notice.NotExecuted(c.id, "the MCP server just ended", ""), "error")
		return
	}
	if err := ch.conn.Send(s.m.ctx, spliceCall(msg, c, inner)); err != nil {
		if ch.forget(c) {
			s.settle(c, notice.NotExecuted(c.id, "the MCP server takes no more requests: "+err.Error(), tailOf(err)), "error")
		}
		return
	}
	s.m.meter.Add(MessagesOut, "server", 1)
	s.m.meter.Add(BytesOut, "server", float64(len(msg.Raw)))
	s.limitTime(c)
}

// spliceCall puts Segno's own integer in the place of the client's id and
// progress token; the rest stays as it is.
func spliceCall(msg *wire.Message, c *call, inner int64) []byte {
	n := strconv.AppendInt(nil, inner, 10)
	edits := []wire.Edit{{Span: msg.ID, With: n}}
	if c.token != nil {
		at, _ := msg.Find("params", "_meta", "progressToken")
		edits = append(edits, wire.Edit{Span: at, With: n})
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
	c.st.add(events, nil, nil)
	return true
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
	s.mu.Unlock()
	if c.child != nil {
		c.child.forget(c)
	}
	if c.limit != nil {
		c.limit.Stop()
	}
	c.traced(how)
	s.m.meter.Add(StreamsOpen, "", -1)
	s.m.meter.Add(Outcomes, how, 1)
	s.m.meter.Observe(OutcomeSeconds, "", time.Since(c.at).Seconds())
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
	s.posted()
	if len(msgs) > s.m.lim.MaxBatch {
		return nil, &wire.Error{Code: wire.CodeInvalid, Message: "the batch holds too many messages"}
	}
	var calls []*call
	var requests []*wire.Message
	for i := range msgs {
		msg := &msgs[i]
		switch {
		case msg.Kind != wire.Request:
			if err := s.Deliver(ctx, msg); err != nil {
				return nil, err
			}
		case msg.Method == wire.Initialize:
			return nil, invalid(msg, "initialize must not be part of a batch")
		default:
			c, err := newCall(msg)
			if err != nil {
				return nil, err
			}
			calls, requests = append(calls, c), append(requests, msg)
		}
	}
	if len(calls) == 0 {
		return nil, nil
	}
	return s.openBatch(ctx, raw, calls, requests, o)
}

func (s *Session) openBatch(ctx context.Context, raw []byte, calls []*call, requests []*wire.Message, o CallOptions) (*Call, error) {
	if err := s.admit(); err != nil {
		return nil, err
	}
	k := s.rememberBatch()
	st := s.newStream(k.stream, k, len(calls))
	whole := wire.Message{Raw: raw, Method: wire.ToolsCall}
	if _, err := s.accept(ctx, st, &whole, ""); err != nil {
		s.forget(k)
		return nil, err
	}
	for i, c := range calls {
		c.st = st
		s.began(c, o)
		if a := s.answer(requests[i]); a != nil {
			s.settle(c, a, "result")
			continue
		}
		s.dispatch(c, requests[i])
	}
	return &Call{Stream: k.stream, st: st}, nil
}

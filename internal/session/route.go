package session

import (
	"strconv"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/wire"
)

// builder turns what the server says into events, each on exactly one stream.
// Events for one stream that come together are added together, and the payloads
// of those that retention may drop share one piece of memory.
type builder struct {
	ch     *child
	now    int64
	arena  []byte
	st     *stream // the stream that events and asks are for
	events []eventlog.Event
	asks   []*ask
	record bool
}

// route takes a batch of messages, which are valid until it returns.
func (b *builder) route(msgs []wire.Message) {
	b.now = time.Now().UnixNano()
	size := 0
	for i := range msgs {
		size += len(msgs[i].Raw) + 8
	}
	b.arena = make([]byte, 0, size)
	for i := range msgs {
		b.one(&msgs[i])
	}
	b.flush()
	m := b.ch.m.meter
	m.Add(metric.MessagesIn, "server", float64(len(msgs)))
	m.Add(metric.BytesIn, "server", float64(size))
}

func (b *builder) one(msg *wire.Message) {
	switch msg.Kind {
	case wire.Result, wire.Failure:
		b.response(msg)
	case wire.Request:
		b.request(msg)
	case wire.Notification:
		switch msg.Method {
		case wire.ProgressNote:
			b.progress(msg)
		case wire.Cancelled:
			b.cancelled(msg)
		default:
			b.notification(msg)
		}
	}
}

// add puts an event behind the others of the same stream.
func (b *builder) add(st *stream, kind eventlog.Kind, data []byte) {
	if b.st != st {
		b.flush()
		b.st = st
	}
	b.events = append(b.events, eventlog.Event{Kind: kind, Time: b.now, Data: data})
}

func (b *builder) flush() {
	if b.st == nil {
		return
	}
	if !b.st.add(b.events, b.asks, b.record) {
		b.drop("stream ended", len(b.events))
	}
	clear(b.events)
	b.st, b.events, b.asks, b.record = nil, b.events[:0], nil, false
}

func (b *builder) drop(why string, n int) {
	b.ch.m.meter.Add(metric.Dropped, why, float64(n))
}

// copied is the message in the shared piece of memory, with the edits made.
func (b *builder) copied(raw []byte, edits ...wire.Edit) []byte {
	from := len(b.arena)
	b.arena = wire.AppendSplice(b.arena, raw, edits...)
	return b.arena[from:len(b.arena):len(b.arena)]
}

// progress goes to the call whose token it names, with the client's own token.
func (b *builder) progress(msg *wire.Message) {
	at, err := msg.Find("params", "progressToken")
	if err != nil || !at.Ok() {
		b.drop("progress without token", 1)
		return
	}
	c := b.ch.callOf(msg.Text(at))
	if c == nil || c.token == nil {
		b.drop("progress for no call", 1)
		return
	}
	b.add(c.st, eventlog.Progress, b.copied(msg.Raw, wire.Edit{Span: at, With: c.token}))
}

// callOf is the running call that the server means by an id or a token of ours.
func (ch *child) callOf(text []byte) *call {
	n, ok := wire.IntID(text)
	if !ok {
		return nil
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	c := ch.calls[n]
	if c != nil && !c.heard {
		c.heard = true
		ch.m.meter.Observe(metric.FirstEvent, "", time.Since(c.at).Seconds())
	}
	return c
}

// response goes to its call and ends it. What the server wrote before stands
// before it in the same stream.
func (b *builder) response(msg *wire.Message) {
	if !msg.ID.Ok() {
		b.ch.first.log.Warn("the MCP server reports an error without saying for what", "message", string(msg.Raw))
		b.drop("response without id", 1)
		return
	}
	if b.ch.shook(msg) {
		return
	}
	c := b.ch.callOf(msg.IDText())
	if c == nil {
		if msg.Kind == wire.Result && b.ch.isHello(msg) {
			b.ch.met(append([]byte(nil), msg.Raw...))
			b.ch.settleReady(nil)
		}
		b.drop("late response", 1)
		return
	}
	s := c.st.s
	how := "result"
	if msg.Kind == wire.Failure {
		how = "error"
	}
	if !s.finish(c, how) {
		b.drop("late response", 1)
		return
	}
	raw := wire.AppendSplice(nil, msg.Raw, wire.Edit{Span: msg.ID, With: c.id})
	if c.init {
		raw = s.initialized(b.ch, raw)
	}
	s.learn(c, msg.Kind)
	b.add(c.st, eventlog.Outcome, raw)
	b.record = b.record || c.init
	if c.st.lastOf(1) {
		b.add(c.st, eventlog.End, nil)
	}
}

// shook tells whether the response answers a handshake request of Segno's own.
func (ch *child) shook(msg *wire.Message) bool {
	n, ok := wire.IntID(msg.IDText())
	if !ok {
		return false
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	answer, there := ch.shaking[n]
	if there {
		answer <- append([]byte(nil), msg.Raw...)
		delete(ch.shaking, n)
	}
	return there
}

// request asks the client. The server hears at once if nobody can be asked.
func (b *builder) request(msg *wire.Message) {
	switch {
	case msg.Method == wire.Ping:
		b.ch.say(wire.AppendResponse(nil, msg.IDText(), []byte("{}")))
		return
	case b.ch.m.shared:
		b.ch.say(wire.AppendError(nil, msg.IDText(), wire.CodeNoMethod,
			"the server is shared by several sessions, so it cannot ask a client", nil))
		return
	}
	st := b.destination(msg)
	a := st.s.newAsk(b.ch, st, msg)
	raw := wire.AppendSplice(nil, msg.Raw, wire.Edit{Span: msg.ID, With: a.id})
	b.add(st, eventlog.Request, raw)
	b.asks = append(b.asks, a)
}

// cancelled: the server takes back a request of its own.
func (b *builder) cancelled(msg *wire.Message) {
	at, err := msg.Find("params", "requestId")
	if err != nil || !at.Ok() {
		b.drop("cancel for no request", 1)
		return
	}
	a := b.ch.first.askOfServer(b.ch, msg.Text(at))
	if a == nil {
		b.drop("cancel for no request", 1)
		return
	}
	a.settle()
	b.add(a.st, eventlog.Other, b.copied(msg.Raw, wire.Edit{Span: at, With: a.id}))
}

// notification goes where destination says; of a shared server, to every
// session that it may concern.
func (b *builder) notification(msg *wire.Message) {
	if !b.ch.m.shared {
		b.add(b.destination(msg), eventlog.Other, b.copied(msg.Raw))
		return
	}
	if c := b.ch.onlyCall(); c != nil && !ofSession(msg.Method) && !c.st.mute() {
		b.add(c.st, eventlog.Other, b.copied(msg.Raw))
		return
	}
	b.flush()
	data := b.copied(msg.Raw)
	for _, s := range b.ch.sessions() {
		b.add(s.own, eventlog.Other, data)
	}
}

// ofSession tells which notifications belong to no call by their nature.
func ofSession(method string) bool {
	switch method {
	case wire.ToolsChanged, wire.ResourcesChanged, wire.PromptsChanged, wire.ResourceUpdated:
		return true
	}
	return false
}

// destination is the stream of a message that names no call: the one of its
// related task, or of the only running call, or the session's own if it is
// connected, or the newest connected call's, or the session's own. On stdio
// nothing says what a message belongs to. A call that is waited for by somebody
// who takes nothing but its outcome is passed over: what went there would never
// be seen.
func (b *builder) destination(msg *wire.Message) *stream {
	s := b.ch.first
	if ofSession(msg.Method) {
		return s.own
	}
	if task := msg.StringAt("params", "_meta", "io.modelcontextprotocol/related-task", "taskId"); task != "" {
		if c := s.callWith(func(c *call) bool { return c.task == task }); c != nil && !c.st.mute() {
			return c.st
		}
	}
	if c := b.ch.onlyCall(); c != nil && !c.st.mute() {
		return c.st
	}
	if s.own.connected() {
		return s.own
	}
	if c := s.callWith(func(c *call) bool { return c.st.connected() }); c != nil {
		return c.st
	}
	return s.own
}

// onlyCall is the one running call, nil if there are none or several.
func (ch *child) onlyCall() *call {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(ch.calls) != 1 {
		return nil
	}
	for _, c := range ch.calls {
		return c
	}
	return nil
}

func (ch *child) sessions() []*Session {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return append([]*Session(nil), ch.members...)
}

func askID(fence uint64, n int64) []byte {
	b := append([]byte(`"segno-`), strconv.FormatUint(fence, 10)...)
	b = append(b, '-')
	b = strconv.AppendInt(b, n, 10)
	return append(b, '"')
}

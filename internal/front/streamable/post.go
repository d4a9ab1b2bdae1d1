package streamable

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/wire"
)

// post takes a message of the client (MCP 2025-11-25, Transports, Sending
// Messages to the Server).
func (x *exchange) post() error {
	x.beforehand()
	text, release, err := x.body()
	defer func() { release() }()
	if err != nil {
		return err
	}
	if wire.IsArray(text) {
		return x.postBatch(text)
	}
	m, bad := wire.Parse(text)
	if bad != nil {
		x.f.meter.Add(metric.Errors, "malformed", 1)
		return &problem{status: http.StatusBadRequest, code: bad.Code, id: bad.ID, message: bad.Message}
	}
	x.id = idOf(&m)
	x.f.meter.Add(metric.MessagesIn, "client", 1)
	want, err := x.wants(&m)
	if err != nil {
		return err
	}
	hasSession := x.r.Header.Get("Mcp-Session-Id") != ""
	way, err := judge(&m, x.r.Header.Get("Mcp-Protocol-Version"), hasSession)
	if err != nil {
		return err
	}
	switch way {
	case steers:
		return x.direct(steer(&m), want)
	case opens:
		return x.open(&m, want)
	case ignored:
		x.w.WriteHeader(http.StatusAccepted)
		return nil
	}
	return x.message(&m, want)
}

// wants are the forms that the client takes. Only a request has an answer.
func (x *exchange) wants(m *wire.Message) (forms, error) {
	want := accepted(x.r.Header)
	if m.Kind == wire.Request && !want.json && !want.sse {
		return want, invalid(http.StatusNotAcceptable, "the client must accept application/json or text/event-stream")
	}
	return want, nil
}

// message is one of a session.
func (x *exchange) message(m *wire.Message, want forms) error {
	s, err := x.session()
	if err != nil {
		return err
	}
	if m.Kind != wire.Request {
		if err := s.Deliver(x.r.Context(), m); err != nil {
			return err
		}
		x.w.WriteHeader(http.StatusAccepted)
		return nil
	}
	o, err := x.beside()
	if err != nil {
		return err
	}
	c, err := s.Call(x.r.Context(), m, o)
	if err != nil {
		return err
	}
	token, err := m.Find("params", "_meta", "progressToken")
	return x.answer(s, c, want, err == nil && token.Ok())
}

// open is an initialize. A session that the client offers is never adopted.
func (x *exchange) open(m *wire.Message, want forms) error {
	select {
	case <-x.f.closed:
		return x.refused("drain", "the server is about to stop", 5*time.Second)
	default:
	}
	if given := x.r.Header.Get("Mcp-Session-Id"); given != "" {
		_, err := x.session()
		if err == nil {
			return invalid(http.StatusBadRequest, "the session is initialized already")
		}
		if !errors.Is(err, eventlog.ErrNoSession) {
			return err
		}
	}
	info := session.ClientInfo{UserAgent: x.r.UserAgent()}
	s, c, err := x.f.o.Sessions.Create(x.r.Context(), x.who.Principal, m, info)
	if err != nil {
		return err
	}
	x.opens = true
	x.s = s
	x.w.Header().Set("Mcp-Session-Id", s.ID())
	return x.answer(s, c, want, false)
}

// postBatch takes an array, which only 2025-03-26 has. All of it is checked
// before any of it counts.
func (x *exchange) postBatch(text []byte) error {
	s, err := x.session()
	if err != nil {
		return err
	}
	x.live = false // a bad array is no call of the session
	if s.Version() != wire.Rev2025March {
		return invalid(http.StatusBadRequest, "batches are part of "+wire.Rev2025March+" alone")
	}
	if err := checkVersion(x.r.Header.Get("Mcp-Protocol-Version"), nil); err != nil {
		return err
	}
	want := accepted(x.r.Header)
	if !want.json && !want.sse {
		return invalid(http.StatusNotAcceptable, "the client must accept application/json or text/event-stream")
	}
	msgs, err := readBatch(text)
	if err != nil {
		return err
	}
	x.f.meter.Add(metric.MessagesIn, "client", float64(len(msgs)))
	o, err := x.beside()
	if err != nil {
		return err
	}
	c, err := s.Batch(x.r.Context(), text, msgs, o)
	if err != nil {
		return err
	}
	if c == nil {
		x.w.WriteHeader(http.StatusAccepted)
		return nil
	}
	x.batch = true
	return x.answer(s, c, want, false)
}

// readBatch reads the messages of an array.
func readBatch(text []byte) ([]wire.Message, error) {
	parts, bad := wire.Split(text)
	if bad != nil {
		return nil, &problem{status: http.StatusBadRequest, code: bad.Code, message: bad.Message}
	}
	if len(parts) > maxBatch {
		return nil, invalid(http.StatusBadRequest, fmt.Sprintf("a batch must not hold more than %d messages", maxBatch))
	}
	msgs := make([]wire.Message, len(parts))
	ids := map[string]bool{}
	for i, part := range parts {
		m, bad := wire.Parse(part)
		if bad != nil {
			return nil, &problem{status: http.StatusBadRequest, code: bad.Code, id: bad.ID,
				message: fmt.Sprintf("message %d of the batch: %s", i+1, bad.Message)}
		}
		msgs[i] = m
		if m.Kind != wire.Request {
			continue
		}
		if m.Method == wire.Initialize || ids[string(m.IDText())] {
			return nil, &problem{status: http.StatusBadRequest, code: wire.CodeInvalid, id: m.IDText(),
				message: "in a batch initialize must not be, nor an id twice"}
		}
		ids[string(m.IDText())] = true
	}
	return msgs, nil
}

// maxBatch is the most messages taken in one array.
const maxBatch = 100

// beside is what travels beside a request, in headers.
func (x *exchange) beside() (session.CallOptions, error) {
	o := session.CallOptions{IdempotencyKey: x.r.Header.Get("Idempotency-Key")}
	if len(o.IdempotencyKey) > wire.MaxName {
		return o, &wire.Error{Code: wire.CodeInvalid, Message: fmt.Sprintf("an idempotency key must not be longer than %d bytes", wire.MaxName)}
	}
	for _, name := range [...]string{"traceparent", "tracestate", "baggage"} {
		if value := x.r.Header.Get(name); value != "" {
			if o.Trace == nil {
				o.Trace = map[string]string{}
			}
			o.Trace[name] = value
		}
	}
	return o, nil
}

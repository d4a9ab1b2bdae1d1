package streamable

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/wire"
)

// problem is a refusal with an HTTP status and the JSON-RPC error that says why.
type problem struct {
	status  int
	code    int
	id      []byte // of the request it answers; nil if there is none or it could not be read
	message string
	data    []byte
	after   time.Duration // when it may be tried again
	unread  bool          // the body was not read to its end
	kind    string        // for errors_total, if it is worth counting
}

func (p *problem) Error() string { return p.message }

// errGone says that the client went away before it was answered.
var errGone = errors.New("the client is gone")

// problemOf turns any error into what the client is told. In a live session a
// request is answered in-band: to clients a status of an error means that the
// server, not the call, is broken.
func (x *exchange) problemOf(err error) *problem {
	var p *problem
	var refusal *session.Refusal
	var bad *wire.Error
	switch {
	case errors.As(err, &p):
		if p.id == nil {
			p.id = x.id
		}
		return p
	case errors.As(err, &refusal):
		return x.limited(refusal)
	case errors.As(err, &bad):
		return &problem{status: x.status(http.StatusBadRequest), code: bad.Code, id: firstID(bad.ID, x.id), message: bad.Message}
	case errors.Is(err, eventlog.ErrNoSession):
		return &problem{status: http.StatusNotFound, code: wire.CodeInvalid, id: x.id,
			message: "no such session; open one with initialize"}
	case errors.Is(err, eventlog.ErrUnavailable):
		return x.refused("store", "the store takes nothing at the moment", time.Second)
	case errors.Is(err, eventlog.ErrFenced), errors.Is(err, eventlog.ErrClosed):
		return x.refused("owner", "the session is moving to another instance", time.Second)
	}
	return &problem{status: x.status(http.StatusInternalServerError), code: wire.CodeInternal, id: x.id,
		message: "internal error", kind: "internal"}
}

// refused is a limit of the front's own that was reached: nothing was executed.
func (x *exchange) refused(limit, message string, after time.Duration) *problem {
	x.f.meter.Add(metric.Refused, limit, 1)
	return x.limited(&session.Refusal{Limit: limit, Message: message, RetryAfter: after})
}

// replaced answers who waits for a call that newer connections wait for: the
// call goes on, so it is no refusal.
func (x *exchange) replaced() *problem {
	const why = "another connection waits for this call"
	return &problem{status: x.status(http.StatusServiceUnavailable), code: wire.CodeInternal, id: x.id,
		message: "outcome unknown: " + why, data: []byte(`{"outcome":"unknown","reason":"` + why + `"}`)}
}

// limited is what the client is told of a limit that was reached.
func (x *exchange) limited(r *session.Refusal) *problem {
	data := append(append([]byte(`{"limit":`), wire.AppendQuoted(nil, r.Limit)...), `,"retryAfterMs":`...)
	data = strconv.AppendInt(data, r.RetryAfter.Milliseconds(), 10)
	if r.Detail != "" {
		data = wire.AppendQuoted(append(data, `,"stderr":`...), r.Detail)
	}
	return &problem{status: x.status(http.StatusServiceUnavailable), code: wire.CodeRefused, id: x.id,
		message: r.Message, data: append(data, '}'), after: r.RetryAfter}
}

// status is 200 for a request in a live session, else the given one.
func (x *exchange) status(otherwise int) int {
	if x.live && x.id != nil {
		return http.StatusOK
	}
	return otherwise
}

func firstID(a, b []byte) []byte {
	if a != nil {
		return a
	}
	return b
}

// fail is the one place where an error becomes an answer.
func (x *exchange) fail(err error) {
	if errors.Is(err, errGone) || x.r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		x.log().Debug("the client left before its answer", "why", err)
		return
	}
	p := x.problemOf(err)
	if p.kind != "" {
		x.f.meter.Add(metric.Errors, p.kind, 1)
		x.log().Error("a request failed", "error", err, "status", p.status)
	} else {
		x.log().Debug("a request was refused", "error", err, "status", p.status)
	}
	h := x.w.Header()
	if p.after > 0 && p.status != http.StatusOK {
		h.Set("Retry-After", strconv.Itoa(int((p.after+time.Second-1)/time.Second)))
	}
	if p.status == http.StatusMethodNotAllowed {
		h.Set("Allow", "GET, POST, DELETE")
	}
	if p.unread && x.r.ProtoMajor == 1 {
		// The rest of the body is not worth reading.
		h.Set("Connection", "close")
	}
	x.json(p.status, wire.AppendError(nil, p.id, p.code, p.message, p.data))
}

func invalid(status int, message string) error {
	return &problem{status: status, code: wire.CodeInvalid, message: message}
}

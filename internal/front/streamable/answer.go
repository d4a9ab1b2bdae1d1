package streamable

import (
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/wire"
)

// answer gives a call its answer: JSON if the client takes nothing else or the
// outcome comes at once and alone, else a stream.
func (x *exchange) answer(s *session.Session, c *session.Call, want forms, now bool) error {
	if c.Answer != nil {
		return x.direct(c.Answer, want)
	}
	attach := s.AttachCall
	if !want.sse {
		attach = s.AttachOutcome
	}
	v := x.read(s, attach(c, x.policy()), "post")
	v.waits()
	if !want.sse {
		return x.whole(v.rd)
	}
	if want.json && !now && x.f.o.JSONWithin > 0 {
		first, alone, err := x.early(v.rd)
		if err != nil {
			return err
		}
		if alone {
			return x.outcome(v.rd, first.Events)
		}
		v.first = &first
	}
	x.flows = true
	return nil
}

// direct gives an answer that Segno gave by itself and that is in no stream.
func (x *exchange) direct(answer []byte, want forms) error {
	if want.json {
		x.json(http.StatusOK, answer)
		return nil
	}
	return x.single(answer)
}

// early waits a little for the outcome. alone says that it is there and nothing
// came before it; else first is what came instead, if anything did.
func (x *exchange) early(rd *session.Reader) (first session.Delivery, alone bool, err error) {
	wait := time.NewTimer(x.f.o.JSONWithin)
	defer wait.Stop()
	for {
		d, err := rd.Next(x.r.Context())
		switch {
		case err != nil:
			return d, false, err
		case d.Notice != nil || d.Retired || d.Spare:
			return d, false, nil
		case len(d.Events) > 0:
			one := len(d.Events) == 1 && d.Events[0].Kind == eventlog.Outcome
			return d, one && (d.Ended || !x.batch), nil
		case d.Ended:
			return d, true, nil
		}
		select {
		case <-rd.C():
		case <-wait.C:
			return session.Delivery{}, false, nil
		case <-x.r.Context().Done():
			return d, false, errGone
		}
	}
}

// whole waits for the outcome however long that takes, for a client that takes
// JSON alone. What comes before the outcome such a client cannot be told, and
// nothing keeps a proxy from giving up on the connection.
func (x *exchange) whole(rd *session.Reader) error {
	var outcomes []eventlog.Event
	for {
		d, err := rd.Next(x.r.Context())
		if err != nil {
			return err
		}
		for _, e := range d.Events {
			if e.Kind == eventlog.Outcome {
				outcomes = append(outcomes, e)
			}
		}
		switch {
		case d.Ended:
			return x.outcome(rd, outcomes)
		case d.Retired:
			return x.replaced()
		case len(d.Events) > 0 || d.Notice != nil:
			continue
		}
		select {
		case <-rd.C():
		case <-x.who.Revoked:
			return invalid(http.StatusUnauthorized, "the key is no longer valid")
		case <-x.r.Context().Done():
			return errGone
		}
	}
}

// outcome writes outcomes as JSON. No event ids go out with them. A call that
// was cancelled has none.
func (x *exchange) outcome(rd *session.Reader, outcomes []eventlog.Event) error {
	if len(outcomes) == 0 {
		x.w.WriteHeader(http.StatusAccepted)
		return nil
	}
	if x.opens && isInitError(outcomes) {
		x.w.Header().Del("Mcp-Session-Id")
	}
	body := outcomes[0].Data
	if x.batch {
		body = append([]byte{'['}, body...)
		for _, e := range outcomes[1:] {
			body = append(append(body, ','), e.Data...)
		}
		body = append(body, ']')
	}
	if len(body) > keepPage {
		x.f.large.over(x.who.Principal, int64(len(body)))
		defer x.f.large.give(x.who.Principal, int64(len(body)))
	}
	if x.json(http.StatusOK, body) {
		rd.Sent(outcomes[len(outcomes)-1].Seq, false)
	}
	return nil
}

// json writes a whole JSON answer and tells whether the connection took it.
func (x *exchange) json(status int, body []byte) bool {
	h := x.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	x.wrote = true
	x.w.WriteHeader(status)
	if err := x.send(body); err != nil {
		x.log().Info("an answer did not get through", "error", err)
		return false
	}
	x.f.meter.Add(metric.MessagesOut, "client", 1)
	x.f.meter.Add(metric.BytesOut, "client", float64(len(body)))
	return true
}

// piece is the most that one write deadline is for, in bytes: a client that
// takes 4 KiB a second is slow, not dead.
const piece = 128 << 10

// send writes and flushes, with a deadline for each piece. That both work was
// checked before; only the error that says they do not goes out without.
func (x *exchange) send(b []byte) error {
	until, limit := x.rc.SetWriteDeadline, x.f.limit(len(b))
	if x.v != nil {
		until = x.v.guard.until
	}
	for len(b) > 0 {
		n := min(len(b), piece)
		if err := until(x.f.deadline(limit)); unless(err, http.ErrNotSupported) {
			return err
		}
		if _, err := x.w.Write(b[:n]); err != nil {
			return err
		}
		if err := x.rc.Flush(); unless(err, http.ErrNotSupported) {
			return err
		}
		b = b[n:]
	}
	if x.r.ProtoMajor >= 2 {
		// There a deadline that passes ends the stream, idle or not.
		return until(time.Time{})
	}
	return nil
}

func unless(err, but error) bool { return err != nil && !errors.Is(err, but) }

// isInitError tells whether an initialize was answered by an error.
func isInitError(events []eventlog.Event) bool {
	if len(events) == 0 {
		return false
	}
	m, err := wire.Parse(events[0].Data)
	return err == nil && m.Kind == wire.Failure
}

// forms are the ways of answering that a client takes.
type forms struct{ json, sse bool }

// accepted reads Accept (RFC 9110, 12.5.1). A client that sends none takes
// everything.
func accepted(h http.Header) forms {
	values := h.Values("Accept")
	if len(values) == 0 {
		return forms{true, true}
	}
	var f forms
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, params, _ := strings.Cut(part, ";")
		if refused(params) {
			continue
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "*/*":
			return forms{true, true}
		case "application/json", "application/*":
			f.json = true
		case "text/event-stream", "text/*":
			f.sse = true
		}
	}
	return f
}

// refused tells whether the parameters hold a weight of zero.
func refused(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(name, "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return err == nil && q == 0
		}
	}
	return false
}

// isJSON tells whether the body says to be JSON in UTF-8. Browsers send any
// other type to any site without asking first.
func isJSON(h http.Header) bool {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return false
	}
	charset, given := params["charset"]
	return !given || strings.EqualFold(charset, "utf-8")
}

// plain tells whether the body is not compressed.
func plain(h http.Header) bool {
	coding := h.Get("Content-Encoding")
	return coding == "" || strings.EqualFold(coding, "identity")
}

package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// verdict is what became of a message that was posted.
type verdict uint8

const (
	streams   verdict = iota + 1 // the answer is an event stream
	whole                        // the answer is JSON
	taken                        // the server took it and answered nothing
	unsent                       // certainly not carried out; to be tried again
	unclear                      // nobody knows whether it was carried out
	broken                       // the same, and trying again is useless
	noSession                    // not carried out: the session is unknown
	refused                      // not carried out, and trying again is useless
)

// reply is how the server took a message. Of streams and whole the response is
// still to be read, and cancel called after that.
type reply struct {
	verdict verdict
	resp    *http.Response
	cancel  context.CancelFunc
	after   time.Duration // the server asks to wait so long
	why     error
	answer  []byte // a JSON-RPC error that came with a refusal
}

// post sends a message (MCP 2025-11-25, Transports, Sending Messages to the
// Server). written is called when all of it is on the way.
func (c *conn) post(ctx context.Context, to *url.URL, l *life, raw []byte, key string, written func()) reply {
	ctx, cancel := context.WithCancel(ctx)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) {
		if i.Err == nil {
			written()
		}
	}})
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	l.head(h)
	if key != "" && l != nil && l.segno {
		h.Set("Idempotency-Key", key)
		// A stream has event ids, so that its outcome can be acknowledged: one
		// that cannot be is kept as long as the session.
		h.Set("Accept", "text/event-stream")
	}
	late := c.awaitHead(l, cancel)
	resp, wrote, err := c.link.do(ctx, http.MethodPost, to, h, raw)
	if late.stop() {
		err = errSilent
	}
	if err != nil {
		cancel()
		return reply{verdict: failed(err, wrote), why: fmt.Errorf("%w%s", err, c.link.via(to))}
	}
	r := reply{verdict: ofType(resp), resp: resp, cancel: cancel}
	if r.verdict == streams || r.verdict == whole {
		return r
	}
	defer cancel()
	c.judge(&r, l)
	return r
}

// deadline of an answer's first byte.
type headTimer struct {
	t     *time.Timer
	fired chan struct{}
}

// awaitHead cuts an exchange off whose answer does not begin. Only a Segno is
// known to begin its answers at once.
func (c *conn) awaitHead(l *life, cancel func()) headTimer {
	if l == nil || !l.segno {
		return headTimer{}
	}
	return afterHead(c.pulse.limit(true), cancel)
}

func afterHead(d time.Duration, cancel func()) headTimer {
	h := headTimer{fired: make(chan struct{})}
	h.t = time.AfterFunc(d, func() {
		close(h.fired)
		cancel()
	})
	return h
}

// stop tells whether the time had run out.
func (h headTimer) stop() bool {
	if h.t == nil || h.t.Stop() {
		return false
	}
	<-h.fired
	return true
}

// failed judges an exchange without an answer.
func failed(err error, wrote bool) verdict {
	var f *final
	switch {
	case errors.As(err, &f):
		return refused
	case wrote:
		return unclear
	}
	return unsent
}

func ofType(resp *http.Response) verdict {
	if resp.StatusCode/100 != 2 {
		return 0
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case kind == "text/event-stream":
		return streams
	case kind == "application/json" && resp.StatusCode == http.StatusOK:
		return whole
	}
	return taken
}

// refusalMax is how much of a refusal is read.
const refusalMax = 64 << 10

// judge reads a status that carries no answer.
func (c *conn) judge(r *reply, l *life) {
	late := time.AfterFunc(closeTime, r.cancel)
	defer late.Stop()
	body, _ := io.ReadAll(io.LimitReader(r.resp.Body, refusalMax))
	r.resp.Body.Close()
	if r.verdict == taken {
		r.why = fmt.Errorf("%w: %s", errNoAnswer, described(r.resp, nil))
		return
	}
	to := r.resp.Request.URL
	status := r.resp.StatusCode
	session := l != nil && (l.id != "" || l.door != nil)
	m, bad := wire.Parse(body)
	if bad == nil && m.Kind == wire.Failure {
		r.answer = m.Raw
	}
	switch {
	case status == http.StatusProxyAuthRequired:
		if p, _ := c.link.proxyFor(to); p != nil {
			r.verdict, r.why, r.answer = refused, wantsCredentials(p), nil
			return
		}
		r.verdict = refused
	case session && (status == http.StatusNotFound || status == http.StatusGone || status == http.StatusBadRequest && ofSession(body)):
		r.verdict, r.answer = noSession, nil
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == http.StatusRequestTimeout:
		r.verdict, r.after = unsent, retryAfter(r.resp)
	case status == http.StatusBadGateway || status == http.StatusGatewayTimeout:
		r.verdict = unclear
	case status >= 500:
		r.verdict = broken
	default:
		r.verdict = refused
	}
	r.why = fmt.Errorf("%s%s", described(r.resp, body), c.link.via(to))
}

// ofSession tells whether a 400 is about the session: many servers answer an
// unknown one so, where the specification has 404.
func ofSession(body []byte) bool { return bytes.Contains(bytes.ToLower(body), []byte("session")) }

// described is a refusal in words.
func described(resp *http.Response, body []byte) string {
	text := "the server answered " + resp.Status
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		text += ": it wants credentials, such as --header 'Authorization: Bearer …'"
	case http.StatusForbidden:
		text += ": the credentials given are not enough"
	}
	if kind := resp.Header.Get("Content-Type"); kind != "" && resp.StatusCode/100 == 2 {
		text += " with " + kind
	}
	if m, bad := wire.Parse(body); bad == nil && m.Kind == wire.Failure {
		return text + ": " + m.StringAt("error", "message")
	}
	if line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n"); line != "" && !strings.HasPrefix(line, "<") && len(line) < 200 {
		text += ": " + line
	}
	return text
}

// retryAfter is what the header of that name asks for, in seconds or as a date
// (RFC 9110, section 10.2.3), at most a quarter of an hour.
func retryAfter(resp *http.Response) time.Duration {
	text := resp.Header.Get("Retry-After")
	d := time.Duration(0)
	if n, err := strconv.Atoi(text); err == nil {
		d = time.Duration(min(n, 3600)) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = time.Until(at)
	}
	return max(0, min(d, 15*time.Minute))
}

// tell posts what needs no answer, again and again until the server has it. It
// may arrive twice, which does no harm: a cancelled request is cancelled, an
// answer is taken once.
func (c *conn) tell(ctx context.Context, l *life, raw []byte) bool {
	deadline := time.Now().Add(c.o.GiveUp)
	for {
		epoch, err := c.gate.wait(ctx, deadline)
		if err != nil {
			return false
		}
		r := c.post(ctx, c.where(l), l, raw, "", func() {})
		if ctx.Err() != nil && r.verdict != streams && r.verdict != whole {
			return false
		}
		switch r.verdict {
		case streams, whole:
			r.cancel()
			r.resp.Body.Close()
			c.gate.passed(epoch)
			return true
		case taken:
			c.gate.passed(epoch)
			return true
		case unsent, unclear:
			c.gate.failed(epoch, r.after, r.why)
			continue
		case noSession:
			c.gate.passed(epoch)
			c.lost(l, r.why.Error())
		default:
			c.log.Warn("the server did not take a message", "error", r.why)
		}
		return false
	}
}

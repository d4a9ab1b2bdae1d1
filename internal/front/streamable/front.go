// Package streamable is the front for Streamable HTTP of the revisions
// 2025-03-26 to 2025-11-25: POST, GET and DELETE on one endpoint, and the ack
// beside it. A response stream is a view of a log: the loop that writes live
// events is the one that replays.
package streamable

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/wire"
)

// Who speaks in a request.
type Who struct {
	Principal string
	Revoked   <-chan struct{} // closed when it may speak no more; nil: never
	Shared    bool            // everybody has this name, so no room is kept for others
}

// Options configure a front. Zero fields mean the defaults named; Sessions and
// Who are needed.
type Options struct {
	Sessions *session.Manager
	Who      func(*http.Request) Who

	JSONWithin   time.Duration // wait so long for an outcome alone, to answer as JSON; 50 ms; negative: not at all
	Heartbeat    time.Duration // between two comments on a stream; 15 s
	Retry        time.Duration // least time after which a client shall reconnect; 2 s
	Rotate       time.Duration // end connections older than this cleanly; 0: never
	WriteTimeout time.Duration // for each write; 30 s
	BodyTimeout  time.Duration // for a whole body; 30 s
	DrainSpread  time.Duration // idle connections end within this when draining; 0: at once
	OnGap        session.Policy

	MaxMessage              int   // bytes; 64 MiB
	InflightMax             int64 // bytes of bodies in memory beyond 64 KiB of each; 256 MiB; one principal: half of what the others leave
	Connections             int   // streams in all; 10,000
	ConnectionsPerPrincipal int   // 1,000

	Logger *slog.Logger
	Meter  metric.Meter
}

func (o Options) withDefaults() Options {
	o.JSONWithin = cmp.Or(o.JSONWithin, 50*time.Millisecond)
	o.Heartbeat = cmp.Or(o.Heartbeat, 15*time.Second)
	o.Retry = cmp.Or(o.Retry, 2*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*time.Second)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 30*time.Second)
	o.OnGap = cmp.Or(o.OnGap, session.Oldest)
	o.MaxMessage = cmp.Or(o.MaxMessage, 64<<20)
	o.InflightMax = cmp.Or(o.InflightMax, 256<<20)
	o.Connections = cmp.Or(o.Connections, 10000)
	o.ConnectionsPerPrincipal = cmp.Or(o.ConnectionsPerPrincipal, 1000)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Meter == nil {
		o.Meter = metric.None{}
	}
	return o
}

// Front serves one endpoint. Its methods may be called from anywhere.
type Front struct {
	o      Options
	log    *slog.Logger
	meter  metric.Meter
	bodies budget
	large  budget // pages that are being written
	seats  seats
	pages  sync.Pool
	closed chan struct{} // closed by Refuse
	refuse sync.Once
}

// New makes a front.
func New(o Options) (*Front, error) {
	if o.Sessions == nil || o.Who == nil {
		return nil, errors.New("making the front: Sessions and Who are needed")
	}
	o = o.withDefaults()
	f := &Front{o: o, log: o.Logger, meter: o.Meter, closed: make(chan struct{})}
	f.bodies.init(o.InflightMax)
	f.large.init(o.InflightMax / 4)
	f.large.one = true
	f.seats.init(o.Connections, o.ConnectionsPerPrincipal)
	return f, nil
}

// Refuse makes initialize answer 503 from now on. What is there goes on.
func (f *Front) Refuse() { f.refuse.Do(func() { close(f.closed) }) }

// Settled waits until no connection waits for a running call, or for ctx.
func (f *Front) Settled(ctx context.Context) error { return f.seats.settled(ctx, (*seats).calls) }

// Empty waits until no stream is open, or for ctx.
func (f *Front) Empty(ctx context.Context) error { return f.seats.settled(ctx, (*seats).all) }

// exchange is one request and its answer.
type exchange struct {
	f     *Front
	w     http.ResponseWriter
	rc    *http.ResponseController
	r     *http.Request
	who   Who
	s     *session.Session // as far as one is known
	id    []byte           // of the request in the body, once it is read
	live  bool             // the session was found
	lost  error            // it was looked for before the body, in vain
	opens bool             // it opened one
	batch bool             // it holds an array
	wrote bool             // the head of the answer is out
	v     *view            // the stream that is read for the answer
	flows bool             // the answer is that stream
}

// ServeHTTP serves the endpoint.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.serve(w, r, func(x *exchange) error {
		switch r.Method {
		case http.MethodPost:
			return x.post()
		case http.MethodGet:
			return x.get()
		case http.MethodDelete:
			return x.delete()
		}
		return invalid(http.StatusMethodNotAllowed, "only GET, POST and DELETE are served here")
	})
}

// ServeAck serves the endpoint's /ack: a POST of {"lastEventId": "…"} renews the
// session and proves that what is before the id was received.
func (f *Front) ServeAck(w http.ResponseWriter, r *http.Request) {
	f.serve(w, r, (*exchange).ack)
}

func (f *Front) serve(w http.ResponseWriter, r *http.Request, do func(*exchange) error) {
	x := &exchange{f: f, w: w, rc: http.NewResponseController(w), r: r, who: f.o.Who(r)}
	defer x.recovered()
	defer x.close()
	err := x.able()
	if err == nil {
		err = do(x)
	}
	if err == nil && x.flows {
		// Here, and not within: a stream may be open for long, and what stands
		// on the stack below it is held all the time.
		err = x.v.serve()
	}
	if err != nil {
		x.fail(err)
	}
}

// log has the keys of what the request is about. It is made when there is
// something to say: most requests have nothing, and a stream waits for long.
func (x *exchange) log() *slog.Logger {
	l := x.f.log.With("principal", x.who.Principal)
	if x.s != nil {
		l = l.With("session", x.s.Public())
	}
	if x.id != nil {
		l = l.With("request", string(x.id))
	}
	if x.v != nil {
		l = l.With("stream", x.v.rd.Stream(), "kind", x.v.kind)
	}
	return l
}

func (x *exchange) close() {
	if x.v != nil {
		x.v.close()
	}
}

// recovered keeps a panic within its request.
func (x *exchange) recovered() {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { // a recovered value, compared as net/http does
		panic(v)
	}
	x.f.meter.Add(metric.Errors, "panic", 1)
	x.log().Error("a request panicked", "panic", v, "stack", string(debug.Stack()))
	if x.wrote {
		// Half an answer must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
	x.fail(&problem{status: http.StatusInternalServerError, code: wire.CodeInternal, id: x.id, message: "internal error"})
}

// able checks that streams can be written through whatever stands between the
// server and this handler: without deadlines and Flush they would hang or
// never leave, and nobody would know why.
func (x *exchange) able() error {
	if err := x.rc.SetWriteDeadline(time.Time{}); err != nil {
		return x.hidden(err)
	}
	for w := x.w; ; {
		switch t := w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return nil
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return x.hidden(http.ErrNotSupported)
		}
	}
}

func (x *exchange) hidden(err error) error {
	x.log().Error("a handler around this one hides Flush or the deadlines of the ResponseWriter: it must have a method Unwrap", "error", err)
	return &problem{status: http.StatusInternalServerError, code: wire.CodeInternal, id: x.id, kind: "unsupported_writer",
		message: "the server cannot stream: a handler hides Flush or the write deadline"}
}

// session finds the session that the request's header names.
func (x *exchange) session() (*session.Session, error) {
	given := x.r.Header.Values("Mcp-Session-Id")
	if len(given) == 0 || given[0] == "" {
		return nil, missingSession(x.id)
	}
	if len(given) > 1 {
		return nil, invalid(http.StatusBadRequest, "the header Mcp-Session-Id is there twice")
	}
	if x.lost != nil {
		return nil, x.lost
	}
	s, err := x.f.o.Sessions.Open(x.r.Context(), x.who.Principal, given[0])
	if err != nil {
		return nil, err
	}
	x.live = true
	x.s = s
	return s, nil
}

// beforehand looks for the session before the body is read: what is refused then
// is refused as in a session. It is looked for again after, as a body may take
// long. An error is told when the request is known that it answers.
func (x *exchange) beforehand() {
	if given := x.r.Header.Values("Mcp-Session-Id"); len(given) == 1 && given[0] != "" {
		_, x.lost = x.session()
	}
}

// policy is what the client wants after a gap. A value that is no policy is
// said in the log and counted, and the default holds: a stream of a live session
// is not refused, as clients would take the session for dead.
func (x *exchange) policy() session.Policy {
	switch p := session.Policy(x.r.Header.Get("Segno-On-Gap")); p {
	case session.Oldest, session.Live, session.Fail:
		return p
	case "":
	default:
		x.f.meter.Add(metric.Errors, "on_gap", 1)
		x.log().Warn("Segno-On-Gap is none of oldest, live and error: the default holds",
			"value", p[:min(len(p), wire.MaxName)], "default", x.f.o.OnGap)
	}
	return x.f.o.OnGap
}

// lastMoment is for connections to end that were cut.
const lastMoment = time.Second

// Close ends every stream that is still open and waits until all are. Those that
// are not when ctx ends are cut, which is no error: their clients do not read.
func (f *Front) Close(ctx context.Context) error {
	f.Refuse()
	f.seats.endAll()
	if f.Empty(ctx) == nil {
		return nil
	}
	f.log.Warn("connections whose clients do not read were cut", "connections", f.seats.cutAll())
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastMoment)
	defer cancel()
	return f.Empty(last)
}

// Package session answers whose message it is.
package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/wire"
)

// Upstream starts connections to the MCP server that sessions stand in front of.
type Upstream interface {
	// Connect starts one connection; label is the session's public id, for logs.
	Connect(ctx context.Context, label string) (wire.Conn, error)
	// Fingerprint tells one upstream from another, so that a store is not used for two.
	Fingerprint() string
}

// Manager holds the sessions of one upstream.
type Manager struct{}

// Options configure a Manager. Zero values mean the defaults of Limits.
type Options struct {
	Log      eventlog.Log
	Upstream Upstream
	Limits   Limits
	Shared   bool   // one child per principal
	Instance string // four characters
	Logger   *slog.Logger
	Meter    Meter
}

// Limits are the bounds and clocks of design: zero means default.
type Limits struct {
	Grace, Keep, RetainAge, Orphan, AskTimeout, Repost, CallTimeout, StartTimeout time.Duration
	RetainEvents                                                                  int64
	RetainBytes, SessionMax, PrincipalMax, StoreMax, InflightMax                  int64
	Sessions, SessionsPerPrincipal, Children, ChildrenPerPrincipal                int
	MaxMessage                                                                    int
}

// Refusal is a request that was refused and not executed. In a live session it
// is answered in-band: 200, error -32000, data {limit, retryAfterMs}.
type Refusal struct {
	Limit      string
	Message    string
	RetryAfter time.Duration
}

func (r *Refusal) Error() string { return r.Message }

func New(o Options) (*Manager, error) { panic("") }

// Create opens a session for an initialize request and dispatches it. The
// session's id is in s.ID(). err is a *Refusal (503 for initialize).
func (m *Manager) Create(ctx context.Context, principal string, msg *wire.Message, client ClientInfo) (*Session, *Call, error) {
	panic("")
}

// ClientInfo is what is known of a client besides its initialize params.
type ClientInfo struct{ UserAgent string }

// Open finds a session by the id the client sent. eventlog.ErrNoSession if it
// is unknown, ended or another principal's: no difference can be told.
func (m *Manager) Open(ctx context.Context, principal, id string) (*Session, error) { panic("") }

// Drain makes Draining's channel close: idle connections end, new sessions are refused.
func (m *Manager) Drain()                    {}
func (m *Manager) Draining() <-chan struct{} { panic("") }

// Close ends every child, settles running calls and waits. The log stays open.
func (m *Manager) Close(ctx context.Context) error { panic("") }

type Session struct{}

func (s *Session) ID() string                                { panic("") } // for the Mcp-Session-Id header
func (s *Session) Public() string                            { panic("") } // for logs
func (s *Session) Asked() string                             { panic("") } // protocol version the client asked for
func (s *Session) Version() string                           { panic("") } // negotiated; empty before initialize is answered
func (s *Session) Client() (name, version, userAgent string) { panic("") }

// Touch is a sign of life that is not a POST (bytes taken on a connection).
func (s *Session) Touch() {}

// CallOptions are what travels beside a request.
type CallOptions struct {
	IdempotencyKey string // from the header; _meta is looked at too
	Trace          map[string]string
}

// Call accepts a request: its opening is in the log and it goes to the server.
// A repost attaches to the stream that is there. err: *Refusal, *wire.Error
// (in-band), or context's.
func (s *Session) Call(ctx context.Context, msg *wire.Message, o CallOptions) (*Call, error) {
	panic("")
}

// Batch accepts an array of 2025-03-26: one stream, an outcome for each request in it.
// Notifications and responses in it are delivered. nil Call: it holds no request.
func (s *Session) Batch(ctx context.Context, raw []byte, msgs []wire.Message, o CallOptions) (*Call, error) {
	panic("")
}

// Deliver takes a notification or a response of the client (then 202).
func (s *Session) Deliver(ctx context.Context, msg *wire.Message) error { panic("") }

// Call is an accepted request and the stream that is its life.
type Call struct {
	Stream string
	Answer []byte // if not nil: answered by Segno itself (ping, setLevel), no stream
}

// Ack proves receipt up to the cursor and renews the session.
func (s *Session) Ack(ctx context.Context, lastEventID string) error { panic("") }

// End ends the session: child, streams, record. Running calls get no answer.
func (s *Session) End(ctx context.Context, why string) error { panic("") }

// Policy is what a connection wants after a gap (--on-gap, Segno-On-Gap).
type Policy string

const (
	Oldest Policy = "oldest"
	Live   Policy = "live"
	Fail   Policy = "error"
)

// Resumption is how a resume was understood.
type Resumption struct {
	Result    string  // exact current evicted diverged gone unknown; dead: an .x id (204)
	Reader    *Reader // nil for gone, unknown, dead and for current of an ended call (204)
	Ended     bool    // with current: nothing will come any more: 204
	Notice    []byte  // gone, unknown: the notice to send, a whole JSON-RPC message
	NoticeID  string  // and its event id
	Answer    []byte  // gone: the JSON-RPC error for the call's id
	AnswerID  string
	PrimingID string // id for the first event
}

// Resume attaches a connection at the cursor. It never fails for a bad cursor.
func (s *Session) Resume(ctx context.Context, lastEventID string, p Policy) (*Resumption, error) {
	panic("")
}

// AttachCall attaches a connection to a call's stream from its start; AttachOwn
// to the session's own stream at what was not handed out yet.
func (s *Session) AttachCall(ctx context.Context, c *Call, p Policy) (*Reader, error) { panic("") }
func (s *Session) AttachOwn(ctx context.Context, p Policy) (*Reader, error)           { panic("") }

// Reader is a connection's place in a stream and its seat among the
// connections to it. It belongs to one goroutine.
type Reader struct{}

// Delivery is what a connection writes next.
type Delivery struct {
	Notice   []byte // a gap notice: write it with NoticeID, before anything else
	NoticeID string
	Term     string
	Events   []eventlog.Event // rising; all are to be written, in order
	Ended    bool             // nothing will come any more: end the response
	Wait     bool             // nothing there now: wait for C
	Spare    bool             // another connection gets the events: heartbeats only
	Retired  bool             // end cleanly, somebody else took over twice
}

// Next returns what comes next and does not wait. Events of kinds that are not
// for clients are left out; Place moves over them.
func (r *Reader) Next(ctx context.Context) (Delivery, error) { panic("") }

// C gets a value when Next may have something new to say.
func (r *Reader) C() <-chan struct{} { panic("") }
func (r *Reader) Stream() string     { panic("") }

// PrimingID is a fresh event id for the reader's own place.
func (r *Reader) PrimingID(ctx context.Context) (string, error) { panic("") }

// AppendID appends the event id of an event of this stream.
func (r *Reader) AppendID(dst []byte, term string, seq uint64) []byte { panic("") }

// Sent tells that bytes up to the event were taken by the connection within the
// write deadline; ids went out with them if ids is set (SSE, not plain JSON).
func (r *Reader) Sent(seq uint64, ids bool) {}

// Beat tells that a heartbeat was written: what was sent before it counts as
// handed over, and it is a sign of life.
func (r *Reader) Beat() {}

// Running tells whether the stream's call has no outcome yet.
func (r *Reader) Running() bool { panic("") }
func (r *Reader) Close()        {}

// Package remote is the client side of MCP over HTTP: a wire.Conn to a server
// behind a URL, on raw bytes. It speaks Streamable HTTP of 2025-03-26,
// 2025-06-18 and 2025-11-25, and HTTP with SSE of 2024-11-05.
//
// Streams that break are resumed, calls outlive outages, and whatever happens
// each request gets exactly one answer: the server's, or an error that says
// whether it was executed, or that nobody knows. A tools/call that the server
// may have is never sent again, unless the server is known to run it once only
// or the options allow it.
package remote

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// What becomes of a call of which events are lost, see Options.OnGap.
const (
	Continue = "continue" // a warning, then what follows
	Fail     = "fail"     // the call is cancelled and ends with an error
	Reissue  = "reissue"  // the call is cancelled and made again if that is safe, else Fail
)

// Options describe the server and how it is dealt with. Only URL is needed;
// zero values mean the defaults named here.
type Options struct {
	URL string // the endpoint, http or https
	// Header goes with every request to the server's own origin.
	Header http.Header
	// UserAgent names the client; "segno".
	UserAgent string

	// GiveUp is how long a request waits for a server that cannot be reached,
	// from the last sign of life; 10 min.
	GiveUp time.Duration
	// Heartbeat is how often the server says something on a silent stream. A
	// stream silent for two and a half times that is dead. 0: learned from what
	// the server sends.
	Heartbeat time.Duration
	// OnGap is Continue, Fail or Reissue; Continue.
	OnGap string
	// ReplaySafe allows to send a tools/call twice if tools/list calls the tool
	// read-only or idempotent.
	ReplaySafe bool
	MaxMessage int // longest message taken, in bytes; 64 MiB

	TLS   *tls.Config                                                   // nil: the system's roots
	Proxy func(*url.URL) (*url.URL, error)                              // nil: none; see Proxies
	Dial  func(ctx context.Context, net, addr string) (net.Conn, error) // nil: TCP

	Logger *slog.Logger // nil: nothing is logged
	Trace  Trace        // nil: nobody is told
}

// Trace is told what a client should watch of its streams. It is called from
// several goroutines and must not block.
type Trace interface {
	// Event: an event with a message arrived.
	Event(Event)
	// Reconnect: a connection that was made to resume a stream has ended.
	Reconnect(Reconnect)
	// Gap: events of a stream are lost.
	Gap(Gap)
}

// Event is one event as it arrived.
type Event struct {
	Stream    string // the request's id as JSON text; empty: the session's own stream
	ID        string
	At        time.Time
	Duplicate bool // it was seen before, and dropped
}

// Reconnect is one attempt to go on with a stream.
type Reconnect struct {
	Stream  string
	Cursor  string // Last-Event-ID that was sent
	At      time.Time
	Status  int // of the answer; 0: none
	Events  int // new ones that it brought
	Running bool
}

// Gap is a hole in a stream.
type Gap struct {
	Stream string
	Reason string
	After  uint64 // the last place before it, if the ids tell
	Lost   uint64
}

// Server is an MCP server behind a URL.
type Server struct {
	o   Options
	url *url.URL
}

// New checks the options. It connects to nothing.
func New(o Options) (*Server, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("%q is no URL of an MCP server: it must begin with http:// or https://", o.URL)
	case o.GiveUp < 0 || o.Heartbeat < 0:
		return nil, fmt.Errorf("a time must not be negative")
	}
	u.Fragment = ""
	if o.OnGap == "" {
		o.OnGap = Continue
	}
	if o.OnGap != Continue && o.OnGap != Fail && o.OnGap != Reissue {
		return nil, fmt.Errorf("on-gap must be %s, %s or %s, not %q", Continue, Fail, Reissue, o.OnGap)
	}
	if err := checkHeader(o.Header); err != nil {
		return nil, err
	}
	if o.UserAgent == "" {
		o.UserAgent = "segno"
	}
	if o.GiveUp == 0 {
		o.GiveUp = 10 * time.Minute
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Trace == nil {
		o.Trace = noTrace{}
	}
	return &Server{o: o, url: u}, nil
}

// Connect makes a connection of its own: nothing is sent before the first
// message. label is for logs.
func (s *Server) Connect(_ context.Context, label string) (wire.Conn, error) {
	return newConn(s, label), nil
}

// Fingerprint tells the server from others by its URL, without credentials. It
// can be a file's name.
func (s *Server) Fingerprint() string {
	u := *s.url
	u.User = nil
	sum := sha256.Sum256([]byte(u.String()))
	return "url-" + hex.EncodeToString(sum[:8])
}

// own are the headers that the transport itself decides on.
var own = map[string]bool{
	"Accept": true, "Content-Type": true, "Content-Length": true, "Transfer-Encoding": true, "Connection": true,
	"Last-Event-Id": true, "Mcp-Session-Id": true, "Mcp-Protocol-Version": true, "Idempotency-Key": true,
}

func checkHeader(h http.Header) error {
	for name, values := range h {
		if own[http.CanonicalHeaderKey(name)] {
			return fmt.Errorf("the header %s is part of the protocol: it cannot be set", name)
		}
		for _, v := range values {
			if !headerText(v) {
				return fmt.Errorf("the value of the header %s has a control character in it", name)
			}
		}
	}
	return nil
}

// headerText tells whether a text can be a header's value (RFC 9110, section
// 5.5).
func headerText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

type noTrace struct{}

func (noTrace) Event(Event)         {}
func (noTrace) Reconnect(Reconnect) {}
func (noTrace) Gap(Gap)             {}

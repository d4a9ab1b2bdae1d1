package segno

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/access"
	"github.com/segno-mcp/segno/internal/front/streamable"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/session"
)

// Identity is who speaks in a request, and until when.
type Identity = access.Identity

// Meter takes what is counted and measured.
type Meter = metric.Meter

// Metric names one thing that a Meter takes.
type Metric = metric.Name

// Tracer is told when calls begin and end.
type Tracer = session.Tracer

// What a client gets after a gap, see Options.OnGap.
const (
	Oldest = "oldest" // the notice, everything kept, then what comes new
	Live   = "live"   // the notice, then only what comes new, and always the outcome
	Fail   = "error"  // the notice; a running call is cancelled and ends with an error
)

// Which children there are, see Options.Process.
const (
	PerSession = "session"
	Shared     = "shared"
)

// Options say how a server behaves. The zero value is a good one: each zero
// field stands for the default named with it. Durations and sizes that must
// not be negative are checked by New.
type Options struct {
	// Path of the endpoint; "/mcp". The ack is below it.
	Path string
	// PublicURL is the endpoint as clients see it, behind a proxy. Its host
	// and its origin are allowed.
	PublicURL string
	// Listen is the address that the server listens on, if that is known: on a
	// loopback one only loopback names are taken as Host. Empty: the local
	// address of each connection is looked at.
	Listen string
	// AllowOrigin are the web pages that may call besides those of an allowed
	// host, each exactly SCHEME://HOST[:PORT].
	AllowOrigin []string
	// AllowHost are values of Host to take besides loopback names.
	AllowHost []string
	// TrustProxy are the addresses or CIDRs whose X-Forwarded-* are believed.
	TrustProxy []string
	// TokenFile names the clients and their bearer tokens, one NAME:TOKEN or
	// NAME:sha256:HEX a line. Without it and Authenticate everybody is let in,
	// as one principal.
	TokenFile string
	// Authenticate says who speaks, instead of the TokenFile; an error means
	// 401. A principal sees only its own sessions.
	Authenticate func(*http.Request) (Identity, error)
	// Insecure lets ListenAndServe listen on other addresses than loopback
	// although nobody has to say who they are.
	Insecure bool

	JSONWithin   time.Duration // an outcome that is there within this is answered as JSON; 50 ms; negative: always a stream
	Heartbeat    time.Duration // between comments on a silent stream; 15 s
	Retry        time.Duration // least time after which a client reconnects; 2 s
	Rotate       time.Duration // connections older than this end cleanly; 0: never
	WriteTimeout time.Duration // for each write to a client; 30 s
	BodyTimeout  time.Duration // for a request's whole body; 30 s
	OnGap        string        // Oldest, Live or Fail, unless the client says; Oldest

	// Clocks. Negative: never.
	Grace        time.Duration // without a sign of life for this long, a session's child is stopped; 5 min
	Keep         time.Duration // the session is kept for this long after that; 1 h; not below RetainAge
	Orphan       time.Duration // a call nobody was connected to for this long is cancelled; 1 h
	AskTimeout   time.Duration // the server's own requests wait this long for an absent client; 10 min
	Repost       time.Duration // the same request again gets the same outcome this long after its end; 1 min
	CallTimeout  time.Duration // longest time of a call; 0: no limit
	StartTimeout time.Duration // a child must have answered initialize by then; 1 min
	DrainTimeout time.Duration // for running calls when ListenAndServe ends; 30 s
	Process      string        // PerSession, or Shared by all sessions of a principal; PerSession

	// Log holds the streams and stays the caller's to close; nil: in memory.
	Log eventlog.Log
	// SharedLog says that other replicas serve the same Log.
	SharedLog bool
	// What is kept.
	RetainEvents int64         // of a stream; 10,000
	RetainBytes  int64         // of a stream; 16 MiB
	RetainAge    time.Duration // progress, after its stream's end; 15 min
	SessionMax   int64         // bytes of a session; 256 MiB
	PrincipalMax int64         // bytes of a principal; 1 GiB; see Bounds
	StoreMax     int64         // bytes of the log; 4 GiB

	// Bounds. Those of a principal count where clients say who they are; else
	// all are one, and only the bounds on all count.
	MaxMessage                 int   // bytes of a message; 64 MiB
	InflightMax                int64 // bytes of bodies in memory; 256 MiB; see the flag --inflight-max
	MaxSessions                int   // in memory; 10,000
	MaxSessionsPerPrincipal    int   // 1,000
	MaxChildren                int   // 256
	MaxChildrenPerPrincipal    int   // 128
	MaxConnections             int   // open streams; 10,000
	MaxConnectionsPerPrincipal int   // 1,000

	// Instance is four characters of [0-9a-z] that name this process and begin
	// the ids of its sessions. With a Log that outlives the process keep it
	// with the log: sessions under another name count as another instance's.
	// Minted, and added to the log, if empty.
	Instance string

	Logger *slog.Logger // nil: nothing is logged
	Meter  Meter        // nil: nothing is counted
	Tracer Tracer       // nil: nothing is traced
}

// complete fills in the defaults that this package decides on, and checks what
// was given.
func (o Options) complete() (Options, error) {
	o.Path = cmp.Or(o.Path, "/mcp")
	o.OnGap = cmp.Or(o.OnGap, Oldest)
	o.Process = cmp.Or(o.Process, PerSession)
	o.Heartbeat = cmp.Or(o.Heartbeat, 15*time.Second)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 30*time.Second)
	o.MaxSessions = cmp.Or(o.MaxSessions, 10000)
	o.MaxChildren = cmp.Or(o.MaxChildren, 256)
	o.MaxConnections = cmp.Or(o.MaxConnections, 10000)
	o.StoreMax = cmp.Or(o.StoreMax, 4<<30)
	if o.anonymous() {
		o.MaxSessionsPerPrincipal = max(o.MaxSessionsPerPrincipal, o.MaxSessions)
		o.MaxChildrenPerPrincipal = max(o.MaxChildrenPerPrincipal, o.MaxChildren)
		o.MaxConnectionsPerPrincipal = max(o.MaxConnectionsPerPrincipal, o.MaxConnections)
		o.PrincipalMax = max(o.PrincipalMax, o.StoreMax)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Instance == "" {
		o.Instance = session.NewInstance()
		o.Logger = o.Logger.With("instance", o.Instance)
	}
	return o, o.check()
}

// anonymous tells whether all clients are one principal.
func (o Options) anonymous() bool { return o.TokenFile == "" && o.Authenticate == nil }

func (o Options) check() error {
	switch {
	case !strings.HasPrefix(o.Path, "/") || strings.HasSuffix(o.Path, "/") || strings.ContainsAny(o.Path, "?# {}"):
		return fmt.Errorf("the path %q must begin with /, and not end with one", o.Path)
	case o.OnGap != Oldest && o.OnGap != Live && o.OnGap != Fail:
		return fmt.Errorf("on-gap must be %s, %s or %s, not %q", Oldest, Live, Fail, o.OnGap)
	case o.Process != PerSession && o.Process != Shared:
		return fmt.Errorf("process must be %s or %s, not %q", PerSession, Shared, o.Process)
	case o.TokenFile != "" && o.Authenticate != nil:
		return fmt.Errorf("a token file and a function that authenticates are given: one must go")
	case o.Instance != "" && !instanceName(o.Instance):
		return fmt.Errorf("the instance %q must be four characters of 0-9 and a-z", o.Instance)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"heartbeat", o.Heartbeat}, {"retry", o.Retry}, {"rotate", o.Rotate}, {"write timeout", o.WriteTimeout},
		{"body timeout", o.BodyTimeout}, {"drain timeout", o.DrainTimeout}, {"call timeout", o.CallTimeout},
	} {
		if d.value < 0 {
			return fmt.Errorf("%s must not be negative: %v", d.name, d.value)
		}
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"retain-events", o.RetainEvents}, {"retain-bytes", o.RetainBytes}, {"session-max", o.SessionMax},
		{"principal-max", o.PrincipalMax}, {"store-max", o.StoreMax}, {"max-message", int64(o.MaxMessage)},
		{"inflight-max", o.InflightMax}, {"max-sessions", int64(o.MaxSessions)}, {"max-children", int64(o.MaxChildren)},
		{"max-connections", int64(o.MaxConnections)}, {"max-sessions-per-principal", int64(o.MaxSessionsPerPrincipal)},
		{"max-children-per-principal", int64(o.MaxChildrenPerPrincipal)}, {"max-connections-per-principal", int64(o.MaxConnectionsPerPrincipal)},
	} {
		if n.value < 0 {
			return fmt.Errorf("%s must not be negative: %d", n.name, n.value)
		}
	}
	return nil
}

func instanceName(s string) bool {
	return len(s) == 4 && strings.Trim(s, "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

func (o Options) access(keys *access.Keys) access.Options {
	return access.Options{
		Listen: o.Listen, PublicURL: o.PublicURL, AllowHost: o.AllowHost, AllowOrigin: o.AllowOrigin,
		TrustProxy: o.TrustProxy, Keys: keys, Verify: o.Authenticate, Logger: o.Logger,
	}
}

func (o Options) limits() session.Limits {
	return session.Limits{
		Grace: o.Grace, Keep: o.Keep, RetainAge: o.RetainAge, Orphan: o.Orphan, AskTimeout: o.AskTimeout,
		Repost: o.Repost, CallTimeout: o.CallTimeout, StartTimeout: o.StartTimeout, WriteTimeout: o.WriteTimeout,
		RetainEvents: o.RetainEvents, RetainBytes: o.RetainBytes,
		SessionMax: o.SessionMax, PrincipalMax: o.PrincipalMax, StoreMax: o.StoreMax,
		Sessions: o.MaxSessions, SessionsPerPrincipal: o.MaxSessionsPerPrincipal,
		Children: o.MaxChildren, ChildrenPerPrincipal: o.MaxChildrenPerPrincipal,
	}
}

func (o Options) streamable(m *session.Manager) streamable.Options {
	spread := time.Duration(0)
	if o.SharedLog {
		spread = drainSpread
	}
	return streamable.Options{
		Sessions: m, Who: o.who, JSONWithin: o.JSONWithin, Heartbeat: o.Heartbeat, Retry: o.Retry, Rotate: o.Rotate,
		WriteTimeout: o.WriteTimeout, BodyTimeout: o.BodyTimeout, DrainSpread: spread, OnGap: session.Policy(o.OnGap),
		MaxMessage: o.MaxMessage, InflightMax: o.InflightMax, Connections: o.MaxConnections,
		ConnectionsPerPrincipal: o.MaxConnectionsPerPrincipal, Logger: o.Logger, Meter: o.Meter,
	}
}

func (o Options) who(r *http.Request) streamable.Who {
	id := access.Who(r)
	return streamable.Who{Principal: id.Principal, Revoked: id.Revoked, Shared: o.anonymous()}
}

package admin

import (
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/segno-mcp/segno/internal/telemetry"
)

// Server is one MCP server that is served.
type Server struct {
	Name     string // as in the configuration file; empty if it is the only one
	Instance string // begins the ids of its sessions
	URL      string
	Source   Source
}

// Options say what is shown, and to whom.
type Options struct {
	Servers      []Server
	Meter        *telemetry.Meter
	Listen       string // the address that is listened on
	Key          string // empty: none
	ShowPayloads bool
	Shared       bool // the store is shared by several instances
	RetainEvents int64
	RetainBytes  int64
	Version      string
	Logger       *slog.Logger
}

// Admin serves the admin listener.
type Admin struct {
	o       Options
	since   time.Time
	history history
	mux     *http.ServeMux
}

// New makes the handler. It starts nothing and need not be closed.
func New(o Options) *Admin {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Admin{o: o, since: time.Now(), mux: http.NewServeMux()}
	g := newGuard(o.Listen, o.Key)
	for path, h := range map[string]http.Handler{
		"/metrics": o.Meter.Handler(),
		"/healthz": http.HandlerFunc(a.alive),
		"/readyz":  http.HandlerFunc(a.ready),
	} {
		a.mux.Handle(path, g.open(h))
	}
	for path, h := range map[string]http.HandlerFunc{
		"/streams":             a.status,
		"/streams/{stream}":    a.window,
		"/debug/pprof/":        pprof.Index,
		"/debug/pprof/cmdline": pprof.Cmdline,
		"/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":  pprof.Symbol,
		"/debug/pprof/trace":   pprof.Trace,
		"/{$}":                 dashboard("index.html"),
		"/dashboard.css":       dashboard("dashboard.css"),
		"/dashboard.js":        dashboard("dashboard.js"),
	} {
		a.mux.Handle(path, g.closed(h))
	}
	a.mux.Handle("/", g.open(http.NotFoundHandler()))
	return a
}

// ServeHTTP answers with nothing a browser could run or keep.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	a.mux.ServeHTTP(w, r)
}

package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/segno-mcp/segno"
	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/admin"
	"github.com/segno-mcp/segno/internal/config"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/shelf"
	"github.com/segno-mcp/segno/internal/upstream/process"
)

// served is one MCP server, its log, and what puts it on the network.
type served struct {
	target
	upstream segno.Upstream
	instance string // begins the ids of its sessions
	log      eventlog.Log
	server   *segno.Server
	draining atomic.Bool
}

// find looks the command up: one that is not there is found now and not by the
// first client.
func (s *site) find(t target) error {
	one := &served{target: t}
	up, err := s.upstreamOf(one)
	if err != nil {
		return err
	}
	if c, ok := up.(*process.Command); ok {
		if _, err := c.Find(); err != nil {
			return err
		}
	}
	one.upstream = up
	s.servers = append(s.servers, one)
	return nil
}

// upstreamOf is the way to a server; what it logs says so.
func (s *site) upstreamOf(one *served) (segno.Upstream, error) {
	if one.url != "" {
		return s.behindURL(one.target, s.loggerOf(one))
	}
	return process.New(process.Options{
		Argv: one.argv, Env: one.env, Dir: one.dir, StateDir: s.children(), Logger: s.loggerOf(one),
		MaxMessage: int(s.settings.MaxMessage),
		Hooks:      process.Hooks{Garbage: func(int) { s.meter.Add(metric.Errors, "stdout", 1) }},
	}), nil
}

// prepare finds the folder for what outlives the process, and ends what a
// killed Segno left running.
func (s *site) prepare() (err error) {
	if s.state, err = shelf.StateDir(s.getenv); err == nil {
		s.sweep()
		return nil
	}
	if s.settings.Store == "" {
		return config.Faultf("name a place for the log with --store pebble:DIR, or --store memory:", "%v", err)
	}
	s.logger.Warn("processes are not written down, and not found if segno is killed", "error", err)
	return nil
}

// children is the folder where running processes are written down.
func (s *site) children() string {
	if s.state == "" {
		return ""
	}
	return filepath.Join(s.state, "children")
}

func (s *site) sweep() {
	switch n, err := process.Sweep(s.children()); {
	case err != nil:
		s.logger.Warn("leftover processes may still run", "error", err)
	case n > 0:
		s.logger.Warn("leftover processes of a killed segno ended", "processes", n)
	}
}

// start opens the log of a server and puts it on the network.
func (s *site) start(one *served) (err error) {
	if one.log, err = s.openLog(one); err != nil {
		return err
	}
	if one.upstream, err = s.upstreamOf(one); err != nil {
		return err
	}
	o := options(s.settings)
	o.Path, o.Log, o.Instance = one.path, one.log, one.instance
	o.Logger, o.Meter, o.Tracer = s.loggerOf(one), s.meter, s.tracer
	one.server, err = segno.New(one.upstream, o)
	return err
}

// loggerOf says which of several servers a line is about, and its instance as
// soon as that is known.
func (s *site) loggerOf(one *served) *slog.Logger {
	switch {
	case one.name == "":
		return s.logger
	case one.instance == "":
		return s.logger.With("server", one.name)
	}
	return s.logger.With("server", one.name, "instance", one.instance)
}

// options are the settings in the words of the library, where zero means the
// default.
func options(c *config.Serve) segno.Options {
	return segno.Options{
		PublicURL: c.PublicURL, Listen: c.Listen, AllowOrigin: c.AllowOrigin, AllowHost: c.AllowHost,
		TrustProxy: c.TrustProxy, TokenFile: c.TokenFile, Insecure: c.Insecure,

		JSONWithin: orNever(c.JSONWithin), Heartbeat: c.Heartbeat, Retry: c.Retry, Rotate: c.Rotate, OnGap: c.OnGap,

		Grace: c.Grace, Keep: c.Keep, Orphan: orNever(c.Orphan), AskTimeout: orNever(c.AskTimeout),
		Repost: orNever(c.Repost), CallTimeout: c.CallTimeout, StartTimeout: c.StartTimeout, Process: c.Process,

		RetainEvents: c.RetainEvents, RetainBytes: int64(c.RetainBytes), RetainAge: max(c.RetainAge, 1),
		SessionMax: int64(c.SessionMax), PrincipalMax: int64(c.PrincipalMax), StoreMax: int64(c.StoreMax),

		MaxMessage: int(c.MaxMessage), InflightMax: int64(c.InflightMax),
		MaxSessions: c.MaxSessions, MaxSessionsPerPrincipal: c.MaxSessionsPrincipal,
		MaxChildren: c.MaxChildren, MaxChildrenPerPrincipal: c.MaxChildrenPrincipal,
		MaxConnections: c.MaxConnections, MaxConnectionsPerPrincipal: c.MaxConnectionsPrincipal,
	}
}

// orNever is for settings of which 0 means never, or not at all.
func orNever(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

var errDraining = errors.New("draining: no new sessions are taken")

func (one *served) view() admin.Source {
	return &admin.View{Log: one.log, Live: one.server.Live, Why: func() error {
		if one.draining.Load() {
			return errDraining
		}
		return nil
	}}
}

// refuse makes the server not ready, so that whoever probes it sends nobody
// here any more, and takes no new sessions.
func (one *served) refuse() {
	one.draining.Store(true)
	one.server.Refuse()
}

func (one *served) close(ctx context.Context) (err error) {
	if one.server != nil {
		err = one.server.Close(ctx)
	}
	if one.log != nil {
		err = errors.Join(err, one.log.Close())
	}
	return err
}

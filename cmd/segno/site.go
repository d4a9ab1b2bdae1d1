package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/segno-mcp/segno/internal/access"
	"github.com/segno-mcp/segno/internal/admin"
	"github.com/segno-mcp/segno/internal/config"
	"github.com/segno-mcp/segno/internal/listen"
	"github.com/segno-mcp/segno/internal/telemetry"
)

// site is one running segno serve: its listeners, and the servers behind them.
type site struct {
	settings *config.Serve
	where    func(string) string
	getenv   func(string) string
	logger   *slog.Logger
	meter    *telemetry.Meter
	tracer   *telemetry.Tracer

	state    string // the folder for what outlives the process; empty: there is none
	servers  []*served
	listener net.Listener
	admin    net.Listener // nil: off
	web      *http.Server
	watch    *http.Server
}

func newSite(settings *config.Serve, sys system, logger *slog.Logger, tracer *telemetry.Tracer) *site {
	return &site{
		settings: settings, getenv: sys.getenv, logger: logger, tracer: tracer,
		where: func(name string) string { return "--" + name },
		meter: telemetry.NewMeter(version()),
	}
}

// open makes everything ready, in an order in which the likely mistakes are
// found before anything is changed: a command that is not there, a port that is
// taken, a log that is in use.
func (s *site) open(ctx context.Context, targets []target) (err error) {
	if err := s.prepare(); err != nil {
		return err
	}
	for _, t := range targets {
		if err := s.find(t); err != nil {
			return err
		}
	}
	if s.settings.TokenFile != "" {
		if _, err = access.OpenKeys(s.settings.TokenFile, s.logger); err != nil {
			return config.Faultf("a line is NAME:KEY or NAME:sha256:HEX, and only its owner may read the file (chmod 600)", "%v", err)
		}
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	for _, one := range s.servers {
		if err := s.start(one); err != nil {
			return err
		}
	}
	s.meter.Gauge("store_bytes", "Bytes that the logs take.", s.size)
	s.handlers()
	return nil
}

func (s *site) size() (sum float64) {
	for _, one := range s.servers {
		sum += float64(one.log.Size())
	}
	return sum
}

// listen opens both sockets.
func (s *site) listen(ctx context.Context) (err error) {
	s.listener, err = listen.Open(ctx, s.settings.Listen, listen.Options{
		Cert: s.settings.TLSCert, Key: s.settings.TLSKey, Unacknowledged: 3 * s.settings.Heartbeat, Logger: s.logger,
	})
	if taken(err) {
		return config.Faultf("another program, or another Segno, listens there: stop it, or give another --listen; port 0 takes any free one", "%v", err)
	}
	if err != nil || s.settings.Admin == "off" {
		return err
	}
	s.admin, err = listen.Open(ctx, s.settings.Admin, listen.Options{Logger: s.logger})
	if !taken(err) {
		return err
	}
	host, _, _ := net.SplitHostPort(s.settings.Admin)
	s.admin, err = listen.Open(ctx, net.JoinHostPort(host, "0"), listen.Options{Logger: s.logger})
	if err == nil {
		s.logger.Warn("the admin address is taken, another port is used", "wanted", s.settings.Admin, "admin", "http://"+reachable(s.admin.Addr()))
	}
	return err
}

// taken tells whether somebody else listens there; Windows has a number of its
// own for that (WSAEADDRINUSE).
func taken(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.Errno(10048))
}

// handlers puts the servers at their paths, and all that is seen of them on
// the admin address.
func (s *site) handlers() {
	mux := http.NewServeMux()
	for _, one := range s.servers {
		mux.Handle(one.path, one.server)
		mux.Handle(one.path+"/", one.server)
	}
	s.web = listen.NewServer(mux, s.logger)
	if s.admin == nil {
		return
	}
	o := admin.Options{
		Meter: s.meter, Listen: s.settings.Admin, Key: s.settings.AdminKey, ShowPayloads: s.settings.ShowPayloads,
		RetainEvents: s.settings.RetainEvents, RetainBytes: int64(s.settings.RetainBytes), Version: version(), Logger: s.logger,
	}
	for _, one := range s.servers {
		o.Servers = append(o.Servers, admin.Server{Name: one.name, Instance: one.instance, URL: s.url(one), Source: one.view()})
	}
	s.watch = listen.NewServer(admin.New(o), s.logger)
}

// public is the endpoint as clients see it, where --public-url says so.
func (s *site) public(one *served) string {
	u, err := url.Parse(s.settings.PublicURL)
	switch {
	case s.settings.PublicURL == "" || err != nil:
		return s.url(one)
	case one.name == "" && strings.Trim(u.Path, "/") != "":
		return s.settings.PublicURL
	}
	// Of several servers each has its path where the common one is.
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), s.settings.Path) + one.path
	return u.String()
}

// url is the endpoint as a client on this machine reaches it.
func (s *site) url(one *served) string {
	scheme := "http"
	if s.settings.TLSCert != "" {
		scheme = "https"
	}
	return scheme + "://" + reachable(s.listener.Addr()) + one.path
}

// reachable is an address that can be connected to: the unspecified one can't.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}
	return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
}

// announce says where to connect, once everything answers.
func (s *site) announce(ctx context.Context) {
	var urls, local []string
	for _, one := range s.servers {
		urls, local = append(urls, s.public(one)), append(local, s.url(one))
	}
	args := []any{"url", strings.Join(urls, " ")}
	if s.settings.PublicURL != "" {
		args = append(args, "local", strings.Join(local, " "))
	}
	if s.admin != nil {
		args = append(args, "admin", "http://"+reachable(s.admin.Addr()))
	}
	telemetry.Announce(ctx, s.logger, "listening", append(args, "version", version())...)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"github.com/segno-mcp/segno/internal/access"
	"github.com/segno-mcp/segno/internal/admin"
	"github.com/segno-mcp/segno/internal/config"
	"github.com/segno-mcp/segno/internal/listen"
	"github.com/segno-mcp/segno/internal/telemetry"
	"github.com/segno-mcp/segno/internal/wire"
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
	return s.handlers()
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
func (s *site) handlers() error {
	elsewhere, err := s.elsewhere()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", elsewhere)
	for _, one := range s.servers {
		mux.Handle(one.path, one.server)
		mux.Handle(one.path+"/", one.server)
	}
	s.web = listen.NewServer(mux, s.logger)
	if s.admin == nil {
		return nil
	}
	o := admin.Options{
		Meter: s.meter, Listen: s.settings.Admin, Key: s.settings.AdminKey, ShowPayloads: s.settings.ShowPayloads,
		RetainEvents: s.settings.RetainEvents, RetainBytes: int64(s.settings.RetainBytes), Version: version(), Logger: s.logger,
	}
	for _, one := range s.servers {
		o.Servers = append(o.Servers, admin.Server{Name: one.name, Instance: one.instance, URL: s.url(one), Source: one.view()})
	}
	s.watch = listen.NewServer(admin.New(o), s.logger)
	return nil
}

// elsewhere answers requests for what is not there, among them those of clients
// that look for an authorization server first: it asks for no key, and names the
// servers only where none is needed.
func (s *site) elsewhere() (http.Handler, error) {
	door, err := access.New(access.Options{
		Listen: s.settings.Listen, PublicURL: s.settings.PublicURL, AllowHost: s.settings.AllowHost,
		AllowOrigin: s.settings.AllowOrigin, TrustProxy: s.settings.TrustProxy, Logger: s.logger,
	})
	if err != nil {
		return nil, err
	}
	text := "nothing is served here; "
	var paths []string
	for _, one := range s.servers {
		paths = append(paths, one.path)
	}
	switch {
	case len(paths) == 1 && s.servers[0].name == "":
		text += "the MCP endpoint is " + paths[0]
	case s.settings.TokenFile != "":
		text += "each MCP server is at /servers/NAME" + s.settings.Path
	default:
		text += "the MCP endpoints are " + strings.Join(paths, " ")
	}
	body := wire.AppendError(nil, nil, wire.CodeInvalid, text, nil)
	return door.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusNotFound)
		// The client has the status; that it went away is no concern of ours.
		_, _ = w.Write(body)
	})), nil
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
func (s *site) url(one *served) string { return s.at(reachable(s.listener.Addr()), one) }

func (s *site) at(address string, one *served) string {
	scheme := "http"
	if s.settings.TLSCert != "" {
		scheme = "https"
	}
	return scheme + "://" + address + one.path
}

// outward is where other machines reach the listener, if it listens on all
// addresses: the first of this machine's that is not for itself alone.
func outward(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return ""
	}
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return net.JoinHostPort(n.IP.String(), strconv.Itoa(tcp.Port))
		}
	}
	return ""
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
	each := func(url func(*served) string) string {
		var all []string
		for _, one := range s.servers {
			all = append(all, url(one))
		}
		return strings.Join(all, " ")
	}
	args := []any{"url", each(s.public)}
	if s.settings.PublicURL != "" {
		args = append(args, "local", each(s.url))
	} else if out := outward(s.listener.Addr()); out != "" {
		args = append(args, "network", each(func(one *served) string { return s.at(out, one) }))
	}
	if s.admin != nil {
		args = append(args, "admin", "http://"+reachable(s.admin.Addr()))
	}
	telemetry.Announce(ctx, s.logger, "listening", append(args, "version", version())...)
}

// Package access answers who may speak: which hosts and origins a request may
// name, which key it carries, and whose word on forwarded addresses counts.
package access

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/rs/cors"
	"github.com/segno-mcp/segno/internal/wire"
)

// Anonymous is the one principal where there are no keys.
const Anonymous = "anonymous"

// Identity is who speaks in a request.
type Identity struct {
	Principal string
	// Revoked is closed when the identity no longer holds; nil: it stays.
	Revoked <-chan struct{}
}

// Options say who may speak. The zero value lets everybody in who reaches a
// loopback address under a loopback name.
type Options struct {
	Listen      string   // address listened on; empty: each connection's own local address is looked at
	PublicURL   string   // the endpoint as clients see it: its host and origin are allowed
	AllowHost   []string // further values of Host, NAME or NAME:PORT
	AllowOrigin []string // exact origins, SCHEME://HOST[:PORT]
	TrustProxy  []string // addresses or CIDRs whose X-Forwarded-* headers are believed
	Keys        *Keys    // nil: no keys
	// Verify, if set, is asked instead of Keys; an error means 401.
	Verify func(*http.Request) (Identity, error)
	Logger *slog.Logger
}

// Door is the check that each request goes through.
type Door struct {
	hosts   hosts
	origins origins
	proxies proxies
	cors    *cors.Cors
	verify  func(*http.Request) (Identity, error)
	log     *slog.Logger
}

var errNoKey = errors.New("no bearer token")
var errBadKey = errors.New("the bearer token is not valid")

// New checks the options.
func New(o Options) (*Door, error) {
	h, err := newHosts(o)
	if err != nil {
		return nil, err
	}
	d := &Door{hosts: h, verify: o.Verify, log: o.Logger}
	if d.origins, err = newOrigins(o, h); err != nil {
		return nil, err
	}
	if d.proxies, err = newProxies(o.TrustProxy); err != nil {
		return nil, err
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.verify == nil {
		d.verify = verifier(o.Keys)
	}
	d.cors = newCORS(d.origins)
	return d, nil
}

func verifier(keys *Keys) func(*http.Request) (Identity, error) {
	if keys == nil {
		return func(*http.Request) (Identity, error) { return Identity{Principal: Anonymous}, nil }
	}
	return func(r *http.Request) (Identity, error) {
		given := r.Header.Values("Authorization")
		if len(given) != 1 {
			return Identity{}, errNoKey
		}
		scheme, token, _ := strings.Cut(given[0], " ")
		if !strings.EqualFold(scheme, "bearer") {
			return Identity{}, errNoKey
		}
		id, ok := keys.Find(strings.TrimSpace(token))
		if !ok {
			return Identity{}, errBadKey
		}
		return id, nil
	}
}

// Wrap puts the door before a handler. In order: the proxy's word, Host,
// Origin, the browser's preflight, the key. What is refused gets a JSON-RPC
// error without an id and has cost nothing.
func (d *Door) Wrap(next http.Handler) http.Handler {
	inside := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := d.verify(r)
		if err != nil || id.Principal == "" {
			d.challenge(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, id)))
	})
	shared := d.cors.Handler(inside)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = d.proxies.resolve(r)
		switch {
		case d.hosts.checked(r) && !d.hosts.known(r.Host):
			d.forbid(w, r, "host", r.Host, "this host is not allowed; see allow-host and public-url")
			return
		case !d.origins.allowed(r):
			d.forbid(w, r, "origin", strings.Join(r.Header.Values("Origin"), " "), "this origin is not allowed; see allow-origin")
			return
		case preflight(r):
			d.cors.HandlerFunc(w, r)
			return
		case r.Header["Origin"] == nil: // no page asks; only caches must know that one might
			w.Header().Set("Vary", "Origin")
			inside.ServeHTTP(w, r)
			return
		}
		shared.ServeHTTP(w, r)
	})
}

type identityKey struct{}

// Who returns who speaks in a request that came through a door.
func Who(r *http.Request) Identity {
	id, _ := r.Context().Value(identityKey{}).(Identity)
	return id
}

func (d *Door) forbid(w http.ResponseWriter, r *http.Request, what, value, message string) {
	d.log.Warn("request refused", "why", what, "value", value, "remote", r.RemoteAddr, "path", r.URL.Path)
	w.Header().Add("Vary", "Origin")
	refuse(w, http.StatusForbidden, message)
}

// challenge answers 401 (RFC 6750, section 3).
func (d *Door) challenge(w http.ResponseWriter, r *http.Request, err error) {
	d.log.Info("request refused", "why", "key", "error", err, "remote", r.RemoteAddr, "path", r.URL.Path)
	value := `Bearer realm="segno"`
	if !errors.Is(err, errNoKey) {
		value += `, error="invalid_token"`
	}
	w.Header().Set("WWW-Authenticate", value)
	refuse(w, http.StatusUnauthorized, "a valid bearer token is required")
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// The client has the status; that it went away is no concern of ours.
	_, _ = w.Write(wire.AppendError(nil, nil, wire.CodeRefused, message, nil))
}

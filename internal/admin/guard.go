package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// guard decides who may look.
type guard struct {
	loopback bool
	key      [sha256.Size]byte
	keyed    bool
}

func newGuard(listen, key string) guard {
	host, _, err := net.SplitHostPort(listen)
	g := guard{loopback: err == nil && local(host), keyed: key != ""}
	if g.keyed {
		g.key = sha256.Sum256([]byte(key))
	}
	return g
}

// open lets requests through that come from no foreign page: on loopback a name
// that resolves here makes a page of anyone same-origin for a browser, so the
// Host header must be one of this machine's own (DNS rebinding).
func (g guard) open(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.loopback && !local(hostOf(r.Host)) {
			refuse(w, http.StatusForbidden, "this host name is not taken here; use localhost or 127.0.0.1")
			return
		}
		if o := r.Header.Values("Origin"); len(o) > 1 || len(o) == 1 && !same(o[0], r.Host) {
			refuse(w, http.StatusForbidden, "requests of other web pages are not taken here")
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			refuse(w, http.StatusMethodNotAllowed, "nothing can be changed here")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// closed lets through who also knows the key, where there is one, and without
// one only who is on this machine.
func (g guard) closed(next http.Handler) http.Handler {
	return g.open(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.keyed && !g.loopback && !here(r) {
			refuse(w, http.StatusForbidden, "give --admin-key to look at this from other machines")
			return
		}
		if g.keyed && !g.knows(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="segno", charset="UTF-8"`)
			refuse(w, http.StatusUnauthorized, "the key of --admin-key is needed, as a bearer token or as a password")
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// here tells whether a request comes from this machine: over loopback, to a
// name of loopback (see open), and not handed on by a proxy.
func here(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	return local(hostOf(r.RemoteAddr)) && local(hostOf(r.Host))
}

// knows takes the key as a bearer token, and as a password since a browser can
// ask for one.
func (g guard) knows(r *http.Request) bool {
	given := ""
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		given = strings.TrimSpace(token)
	} else if _, password, ok := r.BasicAuth(); ok {
		given = password
	}
	sum := sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(sum[:], g.key[:]) == 1
}

func refuse(w http.ResponseWriter, status int, why string) { http.Error(w, why, status) }

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
}

func local(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func same(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && strings.EqualFold(u.Host, host)
}

package access

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// origins are the web pages that may call (MCP 2025-11-25, Transports,
// Security Warning: servers must validate Origin).
type origins struct {
	list  map[string]bool // as a browser sends them
	hosts hosts
}

func newOrigins(o Options, h hosts) (origins, error) {
	s := origins{list: map[string]bool{}, hosts: h}
	for _, text := range o.AllowOrigin {
		name, err := originOf(text)
		if err != nil {
			return origins{}, err
		}
		s.list[name] = true
	}
	if o.PublicURL != "" {
		u, err := publicURL(o.PublicURL)
		if err != nil {
			return origins{}, err
		}
		s.list[u.Scheme+"://"+bareHost(u)] = true
	}
	return s, nil
}

// originOf checks an origin of the settings and spells it as browsers do.
func originOf(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" && u.Path != "/" ||
		u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.Contains(u.Host, "*") {
		return "", fmt.Errorf("allowing the origin %q: must be exactly SCHEME://HOST[:PORT], without * or a path", text)
	}
	return strings.ToLower(u.Scheme) + "://" + bareHost(u), nil
}

// bareHost is the URL's host without the scheme's usual port.
func bareHost(u *url.URL) string {
	host := strings.ToLower(u.Host)
	switch strings.ToLower(u.Scheme) {
	case "http":
		return strings.TrimSuffix(host, ":80")
	case "https":
		return strings.TrimSuffix(host, ":443")
	}
	return host
}

// allowed tells whether the request's Origin may call. One that is absent is
// no browser's doing and is left to the keys. Besides the list it may be the
// page's own host, but only where that host itself was checked.
func (o origins) allowed(r *http.Request) bool {
	given := r.Header.Values("Origin")
	if len(given) == 0 {
		return true
	}
	return len(given) == 1 && o.known(r, given[0])
}

func (o origins) known(r *http.Request, origin string) bool {
	if o.list[origin] {
		return true
	}
	scheme, host, ok := strings.Cut(origin, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return false
	}
	return o.hosts.checked(r) && o.hosts.known(host) && strings.EqualFold(host, r.Host)
}

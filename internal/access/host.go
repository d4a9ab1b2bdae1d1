package access

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// hosts are the names that a request may be addressed to. Without the check a
// page whose name is pointed at a loopback address could speak to Segno as if
// it came from there (DNS rebinding).
type hosts struct {
	always bool // checked on every connection, not only on those to loopback
	listen bool // the address listened on is known: local tells if it is loopback
	local  bool
	names  map[string]bool // lower case, as in Host, with port or without
}

func newHosts(o Options) (hosts, error) {
	h := hosts{names: map[string]bool{}}
	for _, name := range o.AllowHost {
		host, _, ok := splitHost(name)
		if !ok || host == "" {
			return hosts{}, fmt.Errorf("allowing the host %q: must be NAME or NAME:PORT", name)
		}
		h.names[strings.ToLower(name)] = true
	}
	if o.PublicURL != "" {
		u, err := publicURL(o.PublicURL)
		if err != nil {
			return hosts{}, err
		}
		h.names[strings.ToLower(u.Host)] = true
	}
	h.always = len(h.names) > 0
	if o.Listen != "" {
		h.listen, h.local = true, loopbackAddress(o.Listen)
	}
	return h, nil
}

func publicURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("reading the public URL %q: must be http(s)://HOST[:PORT][/PATH]", text)
	}
	return u, nil
}

// loopbackAddress tells whether an address to listen on is reached from this
// machine only.
func loopbackAddress(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	return loopbackName(strings.ToLower(strings.Trim(host, "[]")))
}

// checked tells whether the request's Host must be a known one.
func (h hosts) checked(r *http.Request) bool {
	if h.always || h.listen {
		return h.always || h.local
	}
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// known tells whether the text of a Host header is allowed. Names of loopback
// always are, at any port: no page elsewhere can have one.
func (h hosts) known(text string) bool {
	text = strings.ToLower(text)
	host, port, ok := splitHost(text)
	if !ok {
		return false
	}
	if loopbackName(host) || h.names[text] {
		return true
	}
	name := host
	if strings.Contains(host, ":") {
		name = "[" + host + "]"
	}
	return h.names[name] || port != "" && h.names[name+":"+port]
}

func loopbackName(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Zone() == "" && ip.Unmap().IsLoopback()
}

// splitHost reads NAME, NAME:PORT, [IPv6] or [IPv6]:PORT. A dot at the name's
// end (the root of DNS) is left out.
func splitHost(text string) (host, port string, ok bool) {
	host = text
	if at := strings.LastIndexByte(text, ':'); at >= 0 && !strings.HasSuffix(text, "]") {
		host, port = text[:at], text[at+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", "", false
		}
	}
	if inner, v6 := strings.CutPrefix(host, "["); v6 {
		inner, closed := strings.CutSuffix(inner, "]")
		_, err := netip.ParseAddr(inner)
		return inner, port, closed && err == nil
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || strings.ContainsAny(host, ":/@?#[]\\% \t") {
		return "", "", false
	}
	return host, port, true
}

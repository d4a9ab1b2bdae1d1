package access

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// proxies are the peers whose X-Forwarded-* headers are believed.
type proxies []netip.Prefix

func newProxies(list []string) (proxies, error) {
	var p proxies
	for _, text := range list {
		if ip, err := netip.ParseAddr(text); err == nil {
			p = append(p, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("trusting the proxy %q: must be an address or a CIDR such as 10.0.0.0/8", text)
		}
		p = append(p, prefix.Masked())
	}
	return p, nil
}

func (p proxies) trusted(ip netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(ip) {
			return true
		}
	}
	return false
}

// resolve puts what a trusted proxy says of the client in the place of what the
// connection says, and leaves out what anybody else says of it.
func (p proxies) resolve(r *http.Request) *http.Request {
	given := r.Header["X-Forwarded-For"] != nil || r.Header["X-Forwarded-Host"] != nil ||
		r.Header["X-Forwarded-Proto"] != nil || r.Header["Forwarded"] != nil
	if !given {
		return r
	}
	out := r.WithContext(r.Context())
	out.Header = r.Header.Clone()
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
		out.Header.Del(name)
	}
	peer, ok := peerOf(r.RemoteAddr)
	if !ok || !p.trusted(peer) {
		return out
	}
	if ip := p.client(r.Header.Values("X-Forwarded-For")); ip.IsValid() {
		out.RemoteAddr = net.JoinHostPort(ip.String(), "0")
	}
	if host := r.Header.Values("X-Forwarded-Host"); len(host) == 1 && !strings.Contains(host[0], ",") {
		out.Host = strings.TrimSpace(host[0])
	}
	return out
}

// client is the last address in the chain that is no trusted proxy: what stands
// before it anybody may have written.
func (p proxies) client(chain []string) netip.Addr {
	hops := strings.Split(strings.Join(chain, ","), ",")
	var last netip.Addr
	for i := len(hops) - 1; i >= 0; i-- {
		ip, ok := peerOf(strings.TrimSpace(hops[i]))
		if !ok {
			return last
		}
		last = ip
		if !p.trusted(ip) {
			return ip
		}
	}
	return last
}

// peerOf reads an address with a port or without.
func peerOf(addr string) (netip.Addr, bool) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.Trim(addr, "[]")
	}
	ip, err := netip.ParseAddr(host)
	return ip.Unmap(), err == nil
}

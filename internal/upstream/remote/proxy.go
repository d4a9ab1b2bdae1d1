package remote

import (
	"net"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// Proxies finds the proxy on the way to a URL by the environment, as curl and
// Go do: HTTPS_PROXY and HTTP_PROXY by the URL's scheme, ALL_PROXY where those
// are not set, each in capitals or, after that, in small letters. NO_PROXY
// lists what is reached directly: names (example.org and all below it,
// .example.org or *.example.org only what is below), addresses, networks
// (10.0.0.0/8), each with :PORT if only that is meant, or * for everything.
// What is on this machine is never asked of a proxy: localhost, names that end
// in .localhost (RFC 6761), loopback addresses, 0.0.0.0 and [::].
func Proxies(getenv func(string) string) func(*url.URL) (*url.URL, error) {
	either := func(names ...string) string {
		for _, n := range names {
			if v := getenv(n); v != "" {
				return v
			}
		}
		return ""
	}
	c := httpproxy.Config{
		HTTPProxy:  either("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"),
		HTTPSProxy: either("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"),
		NoProxy:    either("NO_PROXY", "no_proxy"),
	}
	find := c.ProxyFunc()
	return func(u *url.URL) (*url.URL, error) {
		if onThisMachine(u.Hostname()) {
			return nil, nil
		}
		return find(u)
	}
}

func onThisMachine(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

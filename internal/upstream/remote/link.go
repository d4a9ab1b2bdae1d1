package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// idleTime is how long an unused connection is kept. Most servers close theirs
// after five seconds or more; a call sent on one that the server is just closing
// would end without anybody knowing whether it ran.
const idleTime = 4 * time.Second

// maxRedirects in a row are followed.
const maxRedirects = 5

// link is how requests reach the server: one pool of connections and one jar of
// cookies. It never sends anything twice.
type link struct {
	client *http.Client
	trans  *http.Transport
	proxy  func(*url.URL) (*url.URL, error)
	header http.Header
	agent  string

	mu sync.Mutex
	at *url.URL // the endpoint, moved by permanent redirects
}

func newLink(s *Server) *link {
	dial := s.o.Dial
	if dial == nil {
		dial = dialTCP
	}
	k := &link{at: s.url, proxy: s.o.Proxy, header: s.o.Header, agent: s.o.UserAgent}
	k.trans = &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) { return k.proxyFor(r.URL) },
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &counted{Conn: c}, nil
		},
		OnProxyConnectResponse: k.tunnel,
		TLSClientConfig:        s.o.TLS,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        idleTime,
		// Compression would hold events back.
		DisableCompression: true,
	}
	jar, _ := cookiejar.New(nil) // fails for options only
	k.client = &http.Client{Transport: k.trans, Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return k
}

// counted is a connection that knows how much was written on it.
type counted struct {
	net.Conn
	written atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// dialTCP dials all addresses of a name. A peer that vanished is found by the
// kernel's probes, on connections that stay silent.
func dialTCP(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4},
	}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, tried(ctx, addr, err)
	}
	return c, nil
}

// tried names the addresses of a name: that it stands for several is why the
// one dialled may not be the one meant.
func tried(ctx context.Context, addr string, err error) error {
	host, port, perr := net.SplitHostPort(addr)
	if perr != nil || net.ParseIP(host) != nil || ctx.Err() != nil {
		return err
	}
	ips, lerr := net.DefaultResolver.LookupHost(ctx, host)
	if lerr != nil || len(ips) < 2 {
		return err
	}
	for i, ip := range ips {
		ips[i] = net.JoinHostPort(ip, port)
	}
	return fmt.Errorf("%w (tried %s)", err, strings.Join(ips, " and "))
}

// writes tells whether anything was written for a request.
type writes struct {
	conn *counted
	from int64
	many bool // the connection carries others too
}

func (w *writes) got(i httptrace.GotConnInfo) {
	c := i.Conn
	if t, ok := c.(*tls.Conn); ok {
		w.many = t.ConnectionState().NegotiatedProtocol == "h2"
		c = t.NetConn()
	}
	if w.conn, _ = c.(*counted); w.conn != nil {
		w.from = w.conn.written.Load()
	}
}

func (w *writes) any() bool { return w.many || w.conn != nil && w.conn.written.Load() > w.from }

// endpoint is where the server is.
func (k *link) endpoint() *url.URL {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at
}

// do makes one HTTP request, and follows redirects that stay within the server.
// wrote is false if certainly nothing of it reached anybody.
func (k *link) do(ctx context.Context, method string, to *url.URL, h http.Header, body []byte) (resp *http.Response, wrote bool, err error) {
	for range maxRedirects {
		resp, wrote, err = k.once(ctx, method, to, h, body)
		if err != nil || !redirects(resp.StatusCode) {
			return resp, wrote, err
		}
		next, rerr := k.follow(to, resp)
		discard(resp)
		if rerr != nil {
			return nil, false, rerr
		}
		to = next
	}
	return nil, false, &final{fmt.Errorf("the server redirects in a circle: %s", to.Redacted())}
}

func (k *link) once(ctx context.Context, method string, to *url.URL, h http.Header, body []byte) (*http.Response, bool, error) {
	w := &writes{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: w.got})
	r, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
	if err != nil {
		return nil, false, &final{err}
	}
	if body != nil {
		// Without GetBody the transport cannot send it again by itself.
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	for name, values := range k.header {
		if http.CanonicalHeaderKey(name) == "Host" {
			r.Host = values[0]
			continue
		}
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	if r.Header.Get("User-Agent") == "" {
		r.Header.Set("User-Agent", k.agent)
	}
	for name, values := range h {
		r.Header[name] = values
	}
	resp, err := k.client.Do(r)
	if err != nil {
		return nil, w.any(), explained(err)
	}
	return resp, true, nil
}

func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// follow is where a redirect leads: the same server, or the same host by https.
// The method stays what it was, whatever the status, as there is nothing to GET
// where a message was posted. Anywhere else credentials would leak, and answers
// would come from somebody who was not asked.
func (k *link) follow(from *url.URL, resp *http.Response) (*url.URL, error) {
	to, err := from.Parse(resp.Header.Get("Location"))
	if err != nil {
		return nil, &final{fmt.Errorf("the server redirects to nowhere: %w", err)}
	}
	upgrade := from.Scheme == "http" && to.Scheme == "https" && from.Hostname() == to.Hostname()
	if !sameOrigin(from, to) && !upgrade {
		return nil, &final{fmt.Errorf("the server redirects to %s, another origin, which is not followed: if that is the server, give its URL", to.Redacted())}
	}
	to.User, to.Fragment = from.User, ""
	if resp.StatusCode == http.StatusMovedPermanently || resp.StatusCode == http.StatusPermanentRedirect {
		k.mu.Lock()
		if from.String() == k.at.String() {
			k.at = to
		}
		k.mu.Unlock()
	}
	return to, nil
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// proxyFor is the proxy on the way to a URL, nil if there is none.
func (k *link) proxyFor(u *url.URL) (*url.URL, error) {
	if k.proxy == nil {
		return nil, nil
	}
	return k.proxy(u)
}

// via names the proxy on the way, if there is one.
func (k *link) via(u *url.URL) string {
	if p, err := k.proxyFor(u); err == nil && p != nil {
		return " through the proxy " + p.Redacted()
	}
	return ""
}

// tunnel looks at what a proxy says to CONNECT.
func (k *link) tunnel(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	switch {
	case resp.StatusCode == http.StatusOK:
		return nil
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return &final{wantsCredentials(proxy)}
	}
	return fmt.Errorf("the proxy %s answered %s", proxy.Redacted(), resp.Status)
}

func wantsCredentials(proxy *url.URL) error {
	return fmt.Errorf("the proxy %s wants credentials (407): put them into the variable that names it, http://USER:PASSWORD@HOST:PORT", proxy.Redacted())
}

// final is an error that trying again does not change. Nothing was executed.
type final struct{ error }

func (f *final) Unwrap() error { return f.error }

// explained takes away what the library puts around an error and says what can
// be done about one that stays.
func explained(err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var noTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		issuer := "it names none"
		if unknown.Cert != nil {
			issuer = unknown.Cert.Issuer.String()
		}
		return &final{fmt.Errorf("the server's certificate is signed by an authority that is not known here (%s): if a proxy of your network signs it, give its certificate with --ca-file", issuer)}
	case errors.As(err, &name), errors.As(err, &invalid):
		return &final{fmt.Errorf("the server's certificate is not valid: %w", err)}
	case errors.As(err, &noTLS), errors.Is(err, http.ErrSchemeMismatch):
		return &final{fmt.Errorf("the server does not speak TLS: is the URL http:// and not https://?")}
	}
	return err
}

// discard reads a little of what nobody wants, so that the connection can be
// used again, and closes it.
func discard(resp *http.Response) {
	io.CopyN(io.Discard, resp.Body, 64<<10)
	resp.Body.Close()
}

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

package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// ask makes one connection, initializes and returns the answer.
func ask(t *testing.T, o Options) string {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := s.Connect(t.Context(), "")
	defer c.Close()
	if err := c.Send(t.Context(), []byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)); err != nil {
		t.Fatal(err)
	}
	return receive(t, c)
}

func receive(t *testing.T, c wire.Conn) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	msgs, err := c.Recv(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(msgs[0].Raw)
}

// TestField42_Redirects: the method stays, and credentials never leave the
// origin, nor go down to http.
func TestField42_Redirects(t *testing.T) {
	var stolen atomic.Bool
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen.Store(true) }))
	defer thief.Close()
	port := thief.URL[strings.LastIndex(thief.URL, ":"):]
	var to string
	var status int
	s := &scripted{}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" {
			w.Header().Set("Location", to)
			w.WriteHeader(status)
			return
		}
		s.ServeHTTP(w, r)
	}))
	defer web.Close()
	for _, status = range []int{301, 302, 307, 308} {
		to = "/mcp/"
		if got := ask(t, Options{URL: web.URL + "/mcp", Header: http.Header{"Authorization": {"Bearer x"}}}); !strings.Contains(got, `"result"`) {
			t.Errorf("%d: %s", status, got)
		}
		last := s.all("initialize")
		if h := last[len(last)-1]; h.r.Method != "POST" || h.r.Header.Get("Authorization") != "Bearer x" {
			t.Errorf("%d: arrived as %s, %q", status, h.r.Method, h.r.Header.Get("Authorization"))
		}
	}
	for _, to = range []string{
		"http://evil.example/", "//localhost" + port + "/", "http://127.0.0.1" + port + "/mcp/", "http://169.254.169.254/", "http://[::ffff:127.0.0.1]" + port + "/",
		"https://127.0.0.2/", "/mcp", "::",
	} {
		if got := ask(t, Options{URL: web.URL + "/mcp", Header: http.Header{"Authorization": {"Bearer x"}}}); !strings.Contains(got, `"not executed"`) || !strings.Contains(got, "redirects") {
			t.Errorf("%s: %s", to, got)
		}
	}
	if stolen.Load() {
		t.Error("another origin was asked")
	}
}

func TestRedirectNeverGoesDownToHTTP(t *testing.T) {
	k := newLink(&Server{url: &url.URL{}})
	from, _ := url.Parse("https://x/mcp")
	for to, ok := range map[string]bool{
		"http://x/mcp": false, "http://x:443/mcp": false, "https://x:443/mcp/": true, "https://X/a": true, "https://x:444/": false, "https://y/": false,
	} {
		_, err := k.follow(from, &http.Response{StatusCode: 307, Header: http.Header{"Location": {to}}})
		if (err == nil) != ok {
			t.Errorf("%s: %v", to, err)
		}
	}
	from, _ = url.Parse("http://x:80/mcp")
	if got, err := k.follow(from, &http.Response{StatusCode: 308, Header: http.Header{"Location": {"https://x/mcp"}}}); err != nil || got.Scheme != "https" {
		t.Errorf("up to https: %v %v", got, err)
	}
}

// TestField41_UnknownAuthority is named, with who signed; with the authority's
// certificate all is well.
func TestField41_UnknownAuthority(t *testing.T) {
	web := httptest.NewUnstartedServer(&scripted{})
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	web.EnableHTTP2 = true
	web.StartTLS()
	defer web.Close()
	if got := ask(t, Options{URL: web.URL}); !strings.Contains(got, "not known here (O=Acme Co)") || !strings.Contains(got, "--ca-file") {
		t.Errorf("got %s", got)
	}
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	if got := ask(t, Options{URL: web.URL, TLS: &tls.Config{RootCAs: roots}}); !strings.Contains(got, `"result"`) {
		t.Errorf("got %s", got)
	}
	plain := httptest.NewServer(&scripted{})
	defer plain.Close()
	if got := ask(t, Options{URL: strings.Replace(plain.URL, "http:", "https:", 1)}); !strings.Contains(got, "does not speak TLS") {
		t.Errorf("got %s", got)
	}
}

// TestField38_ThisMachineIsNeverAskedOfAProxy, and TestField39 the table of
// NO_PROXY.
func TestField38_ThisMachineIsNeverAskedOfAProxy(t *testing.T) {
	env := map[string]string{"HTTP_PROXY": "http://proxy:1", "HTTPS_PROXY": "http://proxy:2"}
	find := Proxies(func(n string) string { return env[n] })
	for u, want := range map[string]string{
		"http://localhost/": "", "http://LOCALHOST.:80/": "", "http://a.localhost:8080/": "", "http://127.0.0.1/": "", "http://127.9.9.9/": "",
		"http://[::1]:9/": "", "http://0.0.0.0:1/": "", "http://[::]/": "", "http://[::ffff:127.0.0.1]/": "",
		"http://192.168.1.24/": "http://proxy:1", "http://host.docker.internal/": "http://proxy:1", "https://x.example/": "http://proxy:2",
		"http://localhost.example/": "http://proxy:1",
	} {
		checkProxy(t, find, u, want)
	}
}

func checkProxy(t *testing.T, find func(*url.URL) (*url.URL, error), target, want string) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	if p, err := find(u); err != nil {
		t.Error(err)
	} else if p != nil {
		got = p.String()
	}
	if got != want {
		t.Errorf("%s goes through %q, want %q", target, got, want)
	}
}

func TestField39_NoProxy(t *testing.T) {
	const p = "http://p:1"
	for _, c := range []struct{ list, target, want string }{
		{"10.0.0.0/8", "http://10.2.3.4/", ""}, {"10.0.0.0/8", "http://11.2.3.4/", p},
		{"*.corp.example", "http://a.corp.example/", ""}, {"*.corp.example", "http://corp.example/", p},
		{".corp.example", "http://a.corp.example/", ""}, {".corp.example", "http://corp.example/", p},
		{"corp.example", "http://corp.example/", ""}, {"corp.example", "http://a.corp.example/", ""}, {"corp.example", "http://acorp.example/", p},
		{"host:8443", "http://host:8443/", ""}, {"host:8443", "http://host/", p}, {"a, b ,c", "http://b/", ""}, {"*", "http://x/", ""},
	} {
		checkProxy(t, Proxies(func(n string) string {
			return map[string]string{"HTTP_PROXY": p, "http_proxy": "http://small:1", "no_proxy": c.list}[n]
		}), c.target, c.want)
	}
	checkProxy(t, Proxies(func(n string) string { return map[string]string{"all_proxy": "socks5://p:1"}[n] }), "https://x/", "socks5://p:1")
}

// proxy is an HTTP proxy, with CONNECT, that wants credentials if user is set.
func proxy(t *testing.T, user string) (*httptest.Server, *atomic.Int64) {
	var asked atomic.Int64
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(user))
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if user != "" && r.Header.Get("Proxy-Authorization") != want {
			w.Header().Set("Proxy-Authenticate", "Basic")
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		target := r.Host
		if strings.HasPrefix(target, "mcp.test") {
			target = strings.Replace(target, "mcp.test", "127.0.0.1", 1)
		}
		there, err := net.Dial("tcp", target)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer there.Close()
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer here.Close()
		if r.Method == http.MethodConnect {
			io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		} else {
			r.Header.Set("Connection", "close")
			r.Write(there)
		}
		go io.Copy(there, here)
		io.Copy(here, there)
	}))
	t.Cleanup(p.Close)
	return p, &asked
}

func TestField39_ProxiesAreUsed(t *testing.T) {
	for _, user := range []string{"", "u:p"} {
		p, asked := proxy(t, user)
		for _, secure := range []bool{false, true} {
			web := httptest.NewUnstartedServer(&scripted{})
			roots := x509.NewCertPool()
			if secure {
				web.StartTLS()
				roots.AddCert(web.Certificate())
			} else {
				web.Start()
			}
			at, _ := url.Parse(web.URL)
			at.Host = "mcp.test:" + at.Port()
			find := func(credentials string) func(*url.URL) (*url.URL, error) {
				v := strings.Replace(p.URL, "//", "//"+credentials, 1)
				return Proxies(func(n string) string {
					if strings.HasSuffix(n, "S_PROXY") || n == "HTTP_PROXY" {
						return v
					}
					return ""
				})
			}
			o := Options{URL: at.String(), Proxy: find(""), TLS: &tls.Config{RootCAs: roots, ServerName: "example.com"}}
			before := asked.Load()
			if user != "" {
				if got := ask(t, o); !strings.Contains(got, "wants credentials (407)") || !strings.Contains(got, p.URL) {
					t.Errorf("secure %v: %s", secure, got)
				}
				o.Proxy = find(user + "@")
			}
			if got := ask(t, o); !strings.Contains(got, `"result"`) || asked.Load() == before {
				t.Errorf("secure %v: %s", secure, got)
			}
			web.Close()
		}
	}
}

func TestCookiesAreReturned(t *testing.T) {
	s := &scripted{}
	s.post = func(h *hit) bool {
		http.SetCookie(h.w, &http.Cookie{Name: "route", Value: "b", Path: "/"})
		return false
	}
	web := httptest.NewServer(s)
	defer web.Close()
	srv, err := New(Options{URL: web.URL})
	if err != nil {
		t.Fatal(err)
	}
	c, _ := srv.Connect(t.Context(), "")
	defer c.Close()
	for _, m := range []string{"initialize", "tools/list"} {
		c.Send(t.Context(), fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":%q,"params":{}}`, m))
		receive(t, c)
	}
	if k, err := s.all("tools/list")[0].r.Cookie("route"); err != nil || k.Value != "b" {
		t.Errorf("cookie %v, %v", k, err)
	}
	other, _ := srv.Connect(t.Context(), "")
	defer other.Close()
	other.Send(t.Context(), []byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`))
	receive(t, other)
	if _, err := s.all("initialize")[1].r.Cookie("route"); err == nil {
		t.Error("another connection has the cookie too")
	}
}

// TestField44_AllAddressesAreTried: a name that stands for several.
func TestField44_AllAddressesAreTried(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	web := &http.Server{Handler: &scripted{}}
	go web.Serve(l)
	if got := ask(t, Options{URL: fmt.Sprintf("http://localhost:%d/mcp", port)}); !strings.Contains(got, `"result"`) {
		t.Errorf("got %s", got)
	}
	web.Close()
	_, err = dialTCP(t.Context(), "tcp", fmt.Sprintf("localhost:%d", port))
	ips, lerr := net.LookupHost("localhost")
	if err == nil || lerr == nil && len(ips) > 1 && !strings.Contains(err.Error(), "tried 127.0.0.1") && !strings.Contains(err.Error(), "tried [::1]") {
		t.Errorf("the error is %v", err)
	}
}

func TestHTTP2(t *testing.T) {
	s := &scripted{call: func(h *hit) { h.stream(); h.write("data: %s\n\n", answerTo(h)) }}
	web := httptest.NewUnstartedServer(s)
	web.EnableHTTP2 = true
	web.StartTLS()
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	srv, err := New(Options{URL: web.URL, TLS: &tls.Config{RootCAs: roots}})
	if err != nil {
		t.Fatal(err)
	}
	c, _ := srv.Connect(t.Context(), "")
	defer c.Close()
	for _, m := range []string{"initialize", "tools/call"} {
		c.Send(t.Context(), fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":%q,"params":{}}`, m))
		if got := receive(t, c); !strings.Contains(got, `"result"`) {
			t.Errorf("%s: %s", m, got)
		}
	}
	if p := s.all("tools/call")[0].r.Proto; p != "HTTP/2.0" {
		t.Errorf("spoke %s", p)
	}
}

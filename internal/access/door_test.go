package access

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// to makes a request that came in at a local address.
func to(method, target, local string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	addr := &net.TCPAddr{IP: net.ParseIP(local), Port: 8080}
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
}

func mustDoor(t *testing.T, o Options) http.Handler {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Who", Who(r).Principal)
		w.Header().Set("X-Remote", r.RemoteAddr)
		w.WriteHeader(http.StatusTeapot)
	}))
}

func serve(h http.Handler, r *http.Request) *http.Response {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Result()
}

// isRefusal checks that a refusal's body is a JSON-RPC error with a null id.
func isRefusal(t *testing.T, res *http.Response, status int) {
	t.Helper()
	if res.StatusCode != status {
		t.Fatalf("status %d, want %d", res.StatusCode, status)
	}
	var body struct {
		JSONRPC string
		ID      *int
		Error   struct{ Code int }
	}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil || body.JSONRPC != "2.0" || body.ID != nil || body.Error.Code == 0 {
		t.Errorf("body %+v (%v), want a JSON-RPC error with a null id", body, err)
	}
}

func TestField110_HostIsChecked(t *testing.T) {
	public := Options{PublicURL: "https://mcp.example.com/mcp"}
	listed := Options{AllowHost: []string{"gate.example:8443", "any.example"}}
	for _, c := range []struct {
		name, host, local string
		o                 Options
		ok                bool
	}{
		{"name of loopback", "localhost:8080", "127.0.0.1", Options{}, true},
		{"other port, a tunnel", "localhost:9999", "127.0.0.1", Options{}, true},
		{"no port", "127.0.0.1", "127.0.0.1", Options{}, true},
		{"other loopback address", "127.8.9.1:1", "127.0.0.1", Options{}, true},
		{"IPv6", "[::1]", "::1", Options{}, true},
		{"IPv6 with port", "[::1]:8080", "::1", Options{}, true},
		{"root dot", "localhost.", "127.0.0.1", Options{}, true},
		{"capitals", "LocalHost:8080", "127.0.0.1", Options{}, true},
		{"rebound name", "evil.example:8080", "127.0.0.1", Options{}, false},
		{"rebound name on IPv6", "evil.example:8080", "::1", Options{}, false},
		{"looks like loopback", "localhost.evil.example", "127.0.0.1", Options{}, false},
		{"looks like an address", "127.0.0.1.nip.io", "127.0.0.1", Options{}, false},
		{"any address", "0.0.0.0:8080", "127.0.0.1", Options{}, false},
		{"empty", "", "127.0.0.1", Options{}, false},
		{"dot alone", ".", "127.0.0.1", Options{}, false},
		{"user part", "localhost@evil.example", "127.0.0.1", Options{}, false},
		{"port no number", "localhost:8080x", "127.0.0.1", Options{}, false},
		{"port too large", "localhost:65536", "127.0.0.1", Options{}, false},
		{"IPv6 without brackets", "::1", "::1", Options{}, false},
		{"zone", "[fe80::1%25lo]", "::1", Options{}, false},
		{"not loopback, nothing set", "anything.example", "192.0.2.1", Options{}, true},
		{"listen on all, from loopback", "anything.example", "127.0.0.1", Options{Listen: ":8080"}, true},
		{"listen on loopback", "anything.example", "127.0.0.1", Options{Listen: "localhost:8080"}, false},
		{"public URL", "mcp.example.com", "192.0.2.1", public, true},
		{"public URL, port", "mcp.example.com:443", "192.0.2.1", public, true},
		{"not the public URL", "other.example.com", "192.0.2.1", public, false},
		{"not the public URL, port", "other.example.com:443", "192.0.2.1", public, false},
		{"listed with port", "GATE.example:8443", "192.0.2.1", listed, true},
		{"listed with another port", "gate.example:8444", "192.0.2.1", listed, false},
		{"listed without port", "any.example:1234", "192.0.2.1", listed, true},
		{"not listed", "no.example", "192.0.2.1", listed, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := to("GET", "/mcp", c.local)
			r.Host = c.host
			res := serve(mustDoor(t, c.o), r)
			if c.ok && res.StatusCode != http.StatusTeapot {
				t.Fatalf("status %d, want the request let in", res.StatusCode)
			}
			if !c.ok {
				isRefusal(t, res, http.StatusForbidden)
			}
		})
	}
}

func TestField101_OriginIsExact(t *testing.T) {
	list := Options{AllowOrigin: []string{"https://app.example", "http://localhost:6274", "HTTPS://Caps.example:443/"}}
	for _, c := range []struct {
		name, origin, host string
		o                  Options
		ok                 bool
	}{
		{"absent", "", "localhost:8080", Options{}, true},
		{"the same host", "http://localhost:8080", "localhost:8080", Options{}, true},
		{"another port here", "http://localhost:1234", "localhost:8080", Options{}, false},
		{"another name of loopback", "http://127.0.0.1:8080", "localhost:8080", Options{}, false},
		{"elsewhere", "https://evil.example", "localhost:8080", Options{}, false},
		{"null", "null", "localhost:8080", Options{}, false},
		{"null, listed others", "null", "localhost:8080", list, false},
		{"subdomain trick", "http://localhost.evil.example", "localhost:8080", Options{}, false},
		{"address trick", "http://127.0.0.1.nip.io", "127.0.0.1", Options{}, false},
		{"no scheme", "localhost:8080", "localhost:8080", Options{}, false},
		{"extension", "chrome-extension://localhost:8080", "localhost:8080", Options{}, false},
		{"listed", "https://app.example", "localhost:8080", list, true},
		{"listed, usual port left out", "https://caps.example", "localhost:8080", list, true},
		{"listed name, other scheme", "http://app.example", "localhost:8080", list, false},
		{"listed name, port", "https://app.example:444", "localhost:8080", list, false},
		{"listed name as suffix", "https://app.example.evil", "localhost:8080", list, false},
		{"public URL", "https://mcp.example.com", "mcp.example.com", Options{PublicURL: "https://mcp.example.com/x"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := to("POST", "/mcp", "127.0.0.1")
			r.Host = c.host
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			res := serve(mustDoor(t, c.o), r)
			if c.ok {
				if res.StatusCode != http.StatusTeapot {
					t.Fatalf("status %d, want the request let in", res.StatusCode)
				}
				if got := res.Header.Get("Access-Control-Allow-Origin"); got != c.origin {
					t.Errorf("allows the origin %q, want %q", got, c.origin)
				}
				return
			}
			isRefusal(t, res, http.StatusForbidden)
			if res.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("a refused origin may read the answer")
			}
		})
	}
	// Where the host is not checked, a rebound page is its own host.
	r := to("POST", "/mcp", "192.0.2.1")
	r.Host = "evil.example"
	r.Header.Set("Origin", "http://evil.example")
	isRefusal(t, serve(mustDoor(t, Options{}), r), http.StatusForbidden)
	r = to("POST", "/mcp", "127.0.0.1")
	r.Host = "localhost"
	r.Header["Origin"] = []string{"http://localhost", "http://localhost"}
	isRefusal(t, serve(mustDoor(t, Options{}), r), http.StatusForbidden)
}

func TestField99_PreflightNeedsNoKey(t *testing.T) {
	closed := Options{
		AllowOrigin: []string{"https://app.example"},
		Verify:      func(*http.Request) (Identity, error) { return Identity{}, errNoKey },
	}
	asked := "authorization, content-type, mcp-session-id, mcp-protocol-version, last-event-id, mcp-method, mcp-name, idempotency-key, segno-on-gap"
	for _, method := range []string{"POST", "GET", "DELETE"} {
		r := to("OPTIONS", "/mcp", "127.0.0.1")
		r.Host = "localhost"
		r.Header.Set("Origin", "https://app.example")
		r.Header.Set("Access-Control-Request-Method", method)
		r.Header.Set("Access-Control-Request-Headers", asked)
		res := serve(mustDoor(t, closed), r)
		if res.StatusCode != http.StatusNoContent {
			t.Fatalf("status %d, want 204", res.StatusCode)
		}
		if got := res.Header.Get("Access-Control-Allow-Methods"); got != method {
			t.Errorf("allows the methods %q, want %q", got, method)
		}
		for _, name := range strings.Split(asked, ", ") {
			if !strings.Contains(strings.ToLower(res.Header.Get("Access-Control-Allow-Headers")), name) {
				t.Errorf("%s is not allowed: %v", name, res.Header)
			}
		}
		if res.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Error("credentials are allowed")
		}
	}
	r := to("OPTIONS", "/mcp", "127.0.0.1")
	r.Host = "localhost"
	r.Header.Set("Origin", "https://app.example")
	r.Header.Set("Access-Control-Request-Method", "POST")
	r.Header.Set("Access-Control-Request-Headers", "x-other")
	if got := serve(mustDoor(t, closed), r).Header.Get("Access-Control-Allow-Headers"); got != "" {
		t.Errorf("allows the header %q", got)
	}
}

func TestField99_ErrorsCanBeReadAcrossOrigins(t *testing.T) {
	o := Options{
		AllowOrigin: []string{"https://app.example"},
		Verify:      func(*http.Request) (Identity, error) { return Identity{}, errBadKey },
	}
	r := to("POST", "/mcp", "127.0.0.1")
	r.Host = "localhost"
	r.Header.Set("Origin", "https://app.example")
	res := serve(mustDoor(t, o), r)
	isRefusal(t, res, http.StatusUnauthorized)
	if res.Header.Get("Access-Control-Allow-Origin") != "https://app.example" {
		t.Error("the 401 cannot be read by the page")
	}
	if !strings.Contains(strings.Join(res.Header.Values("Vary"), ","), "Origin") {
		t.Error("no Vary: Origin")
	}
	exposed := res.Header.Get("Access-Control-Expose-Headers")
	for _, name := range []string{"Mcp-Session-Id", "Mcp-Protocol-Version"} {
		if !strings.Contains(exposed, name) {
			t.Errorf("%s is not exposed: %q", name, exposed)
		}
	}
	if got := res.Header.Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer ") || !strings.Contains(got, "invalid_token") {
		t.Errorf("WWW-Authenticate is %q", got)
	}
}

func TestForwardedHeadersNeedTrust(t *testing.T) {
	o := Options{TrustProxy: []string{"10.0.0.0/8", "192.0.2.7"}, AllowHost: []string{"mcp.example"}}
	for _, c := range []struct {
		name, peer, host, forwarded, chain string
		status                             int
		remote                             string
	}{
		{"trusted", "10.1.1.1:5000", "mcp.example", "", "198.51.100.4", 418, "198.51.100.4:0"},
		{"two proxies", "192.0.2.7:5000", "mcp.example", "", "6.6.6.6, 198.51.100.4, 10.2.2.2", 418, "198.51.100.4:0"},
		{"all trusted", "10.1.1.1:5000", "mcp.example", "", "10.3.3.3", 418, "10.3.3.3:0"},
		{"garbage before", "10.1.1.1:5000", "mcp.example", "", "x, 10.3.3.3", 418, "10.3.3.3:0"},
		{"host by trusted", "10.1.1.1:5000", "127.0.0.1:8080", "evil.example", "198.51.100.4", 403, ""},
		{"untrusted", "203.0.113.9:5000", "mcp.example", "", "198.51.100.4", 418, "203.0.113.9:5000"},
		{"host by untrusted", "203.0.113.9:5000", "evil.example", "mcp.example", "", 403, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := to("GET", "/mcp", "192.0.2.1")
			r.RemoteAddr, r.Host = c.peer, c.host
			r.Header.Set("X-Forwarded-For", c.chain)
			if c.forwarded != "" {
				r.Header.Set("X-Forwarded-Host", c.forwarded)
			}
			res := serve(mustDoor(t, o), r)
			if res.StatusCode != c.status {
				t.Fatalf("status %d, want %d", res.StatusCode, c.status)
			}
			if got := res.Header.Get("X-Remote"); got != c.remote {
				t.Errorf("the client is %q, want %q", got, c.remote)
			}
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{AllowOrigin: []string{"*"}},
		{AllowOrigin: []string{"https://*.example"}},
		{AllowOrigin: []string{"app.example"}},
		{AllowOrigin: []string{"https://app.example/path"}},
		{AllowOrigin: []string{"null"}},
		{AllowHost: []string{"https://app.example"}},
		{AllowHost: []string{"a:b"}},
		{AllowHost: []string{""}},
		{PublicURL: "mcp.example"},
		{TrustProxy: []string{"10.0.0.0/33"}},
		{TrustProxy: []string{"proxy.example"}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

package segno_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segno-mcp/segno"
	"github.com/segno-mcp/segno/internal/fakemcp"
	"github.com/segno-mcp/segno/internal/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	fakemcp.Main()
	goleak.VerifyTestMain(m)
}

// answering is a server that answers every request by a function.
func answering(result func(m *wire.Message) string) segno.Upstream {
	return segno.Func("answering", func(_ context.Context, in io.ReadCloser, out io.WriteCloser) error {
		lines := wire.NewLines(in, wire.LineOptions{})
		for {
			msgs, err := lines.Next()
			if err != nil {
				return nil
			}
			for i := range msgs {
				if m := &msgs[i]; m.Kind == wire.Request {
					fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.IDText(), result(m))
				}
			}
		}
	})
}

const serverInfo = `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`

func plain(m *wire.Message) string {
	if m.Method == wire.Initialize {
		return serverInfo
	}
	return `{"method":"` + m.Method + `"}`
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func newServer(t *testing.T, up segno.Upstream, o segno.Options) *segno.Server {
	t.Helper()
	s, err := segno.New(up, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func post(t *testing.T, client *http.Client, url, session, body string, headers ...string) *http.Response {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		q.Header.Set("Mcp-Session-Id", session)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	res, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func body(t *testing.T, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestZeroOptionsServe(t *testing.T) {
	server := newServer(t, answering(plain), segno.Options{})
	web := httptest.NewServer(server)
	defer web.Close()
	res := post(t, web.Client(), web.URL+"/mcp", "", initialize)
	session := res.Header.Get("Mcp-Session-Id")
	if got := body(t, res); res.StatusCode != 200 || session == "" || !strings.Contains(got, `"experimental":{"segno"`) {
		t.Fatalf("initialize: %s, %s", res.Status, got)
	}
	if got := body(t, post(t, web.Client(), web.URL+"/mcp/", session, `{"jsonrpc":"2.0","id":"a","method":"tools/list"}`)); !strings.Contains(got, `"id":"a","result":{"method":"tools/list"}`) {
		t.Errorf("tools/list: %s", got)
	}
	for _, path := range []string{"/", "/mcp/other", "/mc", "/ack"} {
		res := post(t, web.Client(), web.URL+path, session, `{}`)
		if got := body(t, res); res.StatusCode != http.StatusNotFound || !strings.Contains(got, "the MCP endpoint is /mcp") {
			t.Errorf("%s: %s, %s", path, res.Status, got)
		}
	}
	live := server.Live()
	for name, v := range live {
		if strings.Contains(session, name) || !v.Child || time.Since(v.Seen) > time.Minute {
			t.Errorf("%s lives as %s: %+v", session, name, v)
		}
	}
	if len(live) != 1 {
		t.Errorf("%d sessions live", len(live))
	}
	if res := post(t, web.Client(), web.URL+"/mcp/ack", session, `{"lastEventId":"x"}`); res.StatusCode != http.StatusBadRequest {
		t.Errorf("ack: %s", res.Status)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, c := range []struct {
		o    segno.Options
		says string
	}{
		{segno.Options{Path: "mcp"}, "path"},
		{segno.Options{Path: "/mcp/"}, "path"},
		{segno.Options{OnGap: "newest"}, "on-gap"},
		{segno.Options{Process: "many"}, "process"},
		{segno.Options{Keep: time.Minute, RetainAge: time.Hour}, "keep"},
		{segno.Options{Heartbeat: -1}, "heartbeat"},
		{segno.Options{MaxMessage: -1}, "max-message"},
		{segno.Options{Instance: "TOO"}, "instance"},
		{segno.Options{AllowOrigin: []string{"*"}}, "origin"},
		{segno.Options{AllowHost: []string{"http://x"}}, "host"},
		{segno.Options{PublicURL: "x"}, "public URL"},
		{segno.Options{TrustProxy: []string{"x"}}, "proxy"},
		{segno.Options{TokenFile: "/nowhere/keys"}, "token file"},
		{segno.Options{TokenFile: "x", Authenticate: func(*http.Request) (segno.Identity, error) { return segno.Identity{}, nil }}, "one must go"},
	} {
		s, err := segno.New(answering(plain), c.o)
		if err == nil {
			s.Close(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q in it", c.o, err, c.says)
		}
	}
	if _, err := segno.New(nil, segno.Options{}); err == nil {
		t.Error("a server without an upstream")
	}
}

func TestTokenFileLetsInWhoIsNamed(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("ann:one\nbob:two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(newServer(t, answering(plain), segno.Options{TokenFile: keys}))
	defer web.Close()
	url := web.URL + "/mcp"
	if res := post(t, web.Client(), url, "", initialize); res.StatusCode != http.StatusUnauthorized || res.Header.Get("WWW-Authenticate") == "" {
		t.Fatalf("without a token: %s", res.Status)
	}
	session := post(t, web.Client(), url, "", initialize, "Authorization", "Bearer one").Header.Get("Mcp-Session-Id")
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	if res := post(t, web.Client(), url, session, ping, "Authorization", "Bearer one"); res.StatusCode != http.StatusOK {
		t.Errorf("the owner: %s", res.Status)
	}
	if res := post(t, web.Client(), url, session, ping, "Authorization", "Bearer two"); res.StatusCode != http.StatusNotFound {
		t.Errorf("somebody else: %s", res.Status)
	}
}

func TestBoundsPerPrincipalNeedPrincipals(t *testing.T) {
	for _, named := range []bool{false, true} {
		o := segno.Options{MaxSessions: 4, MaxSessionsPerPrincipal: 2}
		if named {
			o.Authenticate = func(*http.Request) (segno.Identity, error) { return segno.Identity{Principal: "ann"}, nil }
		}
		web := httptest.NewServer(newServer(t, answering(plain), o))
		var sessions []string
		for range 3 {
			sessions = append(sessions, post(t, web.Client(), web.URL+"/mcp", "", initialize).Header.Get("Mcp-Session-Id"))
		}
		first := post(t, web.Client(), web.URL+"/mcp", sessions[0], `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		if gone := first.StatusCode == http.StatusNotFound; gone != named {
			t.Errorf("named %v: the first of three sessions: %s", named, first.Status)
		}
		web.Close()
	}
}

func TestFuncThatFailsEndsItsSessionOnly(t *testing.T) {
	for name, serve := range map[string]func() error{
		"panic": func() error { panic("as the test wants it") },
		"error": func() error { return errors.New("as the test wants it") },
		"end":   func() error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var called atomic.Bool
			good := answering(plain)
			web := httptest.NewServer(newServer(t, segno.Func("failing", func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
				if !called.Swap(true) {
					return serve()
				}
				return pump(ctx, good, in, out)
			}), segno.Options{}))
			defer web.Close()
			got := body(t, post(t, web.Client(), web.URL+"/mcp", "", initialize))
			if !strings.Contains(got, `"error"`) {
				t.Errorf("initialize of a server that is gone: %s", got)
			}
			if got := body(t, post(t, web.Client(), web.URL+"/mcp", "", initialize)); !strings.Contains(got, `"result"`) {
				t.Errorf("the next initialize: %s", got)
			}
		})
	}
}

// A function that works on one message at a time gets the next ones when it is
// ready; who brings them does not wait for that.
func TestSlowFuncHoldsNobodyUp(t *testing.T) {
	goOn := make(chan struct{})
	web := httptest.NewServer(newServer(t, answering(func(m *wire.Message) string {
		if m.Method == wire.ToolsCall {
			<-goOn
		}
		return plain(m)
	}), segno.Options{}))
	defer web.Close()
	session := post(t, web.Client(), web.URL+"/mcp", "", initialize).Header.Get("Mcp-Session-Id")
	var calls []*http.Response
	for id := range 20 {
		calls = append(calls, post(t, web.Client(), web.URL+"/mcp", session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, id)))
	}
	close(goOn)
	for id, res := range calls {
		if got := body(t, res); !strings.Contains(got, fmt.Sprintf(`"id":%d,"result"`, id)) {
			t.Errorf("call %d: %s", id, got)
		}
	}
}

// pump serves one upstream through another.
func pump(ctx context.Context, up segno.Upstream, in io.Reader, out io.Writer) error {
	conn, err := up.Connect(ctx, "")
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			msgs, err := conn.Recv(context.Background())
			if err != nil {
				return
			}
			for _, m := range msgs {
				out.Write(wire.AppendLine(nil, m.Raw))
			}
		}
	}()
	defer func() { conn.Close(); <-done }()
	lines := wire.NewLines(in, wire.LineOptions{})
	for {
		msgs, err := lines.Next()
		if err != nil {
			return nil
		}
		for _, m := range msgs {
			if err := conn.Send(ctx, m.Raw); err != nil {
				return err
			}
		}
	}
}

func TestClientThatDoesNotReadFailsNoEnd(t *testing.T) {
	huge := strings.Repeat("x", 30<<20)
	up := answering(func(m *wire.Message) string {
		if m.Method == wire.ToolsCall {
			return `{"text":"` + huge + `"}`
		}
		return plain(m)
	})
	s, err := segno.New(up, segno.Options{})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	defer web.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	session := post(t, client, web.URL+"/mcp", "", initialize).Header.Get("Mcp-Session-Id")
	for id, accept := range []string{"application/json", "text/event-stream"} {
		post(t, client, web.URL+"/mcp", session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, id), "Accept", accept)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if s.Drain(ctx) == nil {
		t.Error("nobody stood in the way of the drain")
	}
	ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestField108_ServeEndsCleanly(t *testing.T) {
	release := make(chan struct{})
	slow := answering(func(m *wire.Message) string {
		if m.Method == wire.ToolsCall {
			<-release
		}
		return plain(m)
	})
	s, err := segno.New(slow, segno.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	url := "http://" + l.Addr().String() + "/mcp"
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	session := post(t, client, url, "", initialize).Header.Get("Mcp-Session-Id")
	q, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Mcp-Session-Id", session)
	own, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Body.Close()
	call := post(t, client, url, session, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	stop()
	for { // the server refuses sessions as soon as it drains
		if res := post(t, client, url, "", initialize); res.StatusCode == http.StatusServiceUnavailable {
			break
		}
	}
	close(release)
	if got := body(t, call); !strings.Contains(got, `"result":{"method":"tools/call"}`) {
		t.Errorf("the running call ended with %q", got)
	}
	if got := body(t, own); !strings.Contains(got, "retry: ") {
		t.Errorf("the idle stream ended with %q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestExposedAddressNeedsKeys(t *testing.T) {
	s, err := segno.New(answering(plain), segno.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ListenAndServe(t.Context(), "0.0.0.0:0"); err == nil || !strings.Contains(err.Error(), "TokenFile") {
		t.Errorf("listening for everybody: %v", err)
	}
}

func TestHTTP2StreamsOutliveTheirWriteDeadline(t *testing.T) {
	goOn := make(chan struct{})
	web := httptest.NewUnstartedServer(newServer(t, answering(func(m *wire.Message) string {
		if m.Method == wire.ToolsCall {
			<-goOn
		}
		return plain(m)
	}), segno.Options{WriteTimeout: 100 * time.Millisecond, Heartbeat: time.Hour}))
	web.EnableHTTP2 = true
	web.StartTLS()
	defer web.Close()
	session := post(t, web.Client(), web.URL+"/mcp", "", initialize).Header.Get("Mcp-Session-Id")
	res := post(t, web.Client(), web.URL+"/mcp", session, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	if res.ProtoMajor != 2 {
		t.Fatalf("it is %s", res.Proto)
	}
	read := bufio.NewReader(res.Body)
	if _, err := read.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(400*time.Millisecond, func() { close(goOn) })
	all, err := io.ReadAll(read)
	if err != nil || !strings.Contains(string(all), `"result":{"method":"tools/call"}`) {
		t.Errorf("after four deadlines of silence: %q (%v)", all, err)
	}
}

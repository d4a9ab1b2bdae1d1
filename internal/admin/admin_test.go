package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	name    = "session-in-the-log"
	running = "running-0000000000abcd"
	own     = "own-000000000000000efg"
)

// stored is a log with one session: its own stream, empty of events, and a call
// of which progress was trimmed.
func stored(t *testing.T) eventlog.Log {
	t.Helper()
	log := memlog.New()
	t.Cleanup(func() { log.Close() })
	ctx := t.Context()
	claim, err := log.Claim(ctx, name, true)
	if err != nil {
		t.Fatal(err)
	}
	record := `{"v":1,"public":"inst12345678","principal":"alice","own":"` + own + `","negotiated":"2025-11-25",
		"clientName":"claude-code","clientVersion":"2.0","created":"2026-01-02T03:04:05Z"}`
	call := eventlog.Key{Session: name, Stream: running}
	events := []eventlog.Event{{Kind: eventlog.Opening, Data: []byte(`{"opening":1}`)}}
	for range 9 {
		events = append(events, eventlog.Event{Kind: eventlog.Progress, Data: []byte(`{"secret":"<b>"}`), Time: time.Now().UnixNano()})
	}
	for _, a := range []eventlog.Append{
		{Key: eventlog.Key{Session: name, Stream: own}, Events: events[:1], Record: []byte(record)},
		{Key: call, Events: events},
	} {
		a.Fence = claim.Fence
		if err := log.Append(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := log.Trim(ctx, call, claim.Fence, 4, eventlog.Pinned); err != nil {
		t.Fatal(err)
	}
	return log
}

func handler(t *testing.T, edit func(*Options)) *Admin {
	t.Helper()
	o := Options{
		Listen: "127.0.0.1:9464", Meter: telemetry.NewMeter("v1"), Version: "v1", RetainEvents: 100, RetainBytes: 1 << 20,
		Servers: []Server{{URL: "http://127.0.0.1:8080/mcp", Source: &View{Log: stored(t)}}},
	}
	if edit != nil {
		edit(&o)
	}
	return New(o)
}

// get asks for a path; edit may change the request.
func get(h http.Handler, path string, edit func(*http.Request)) (int, string) {
	r := httptest.NewRequest("GET", path, nil)
	r.Host = "127.0.0.1:9464"
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestStatusShowsSessionsStreamsAndReaders(t *testing.T) {
	seen := time.Now()
	a := handler(t, func(o *Options) {
		o.Servers[0].Source.(*View).Live = func() map[string]session.Vitals {
			return map[string]session.Vitals{name: {Seen: seen, Child: true, Readers: map[string][]session.Seat{running: {{Place: 3, Spare: true}, {Place: 7}}}}}
		}
		o.Meter.Add(metric.Resumes, "exact", 3)
	})
	code, body := get(a, "/streams", nil)
	var s Status
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != 200 {
		t.Fatalf("%d %v %s", code, err, body)
	}
	if len(s.Servers) != 1 || len(s.Servers[0].Sessions) != 1 {
		t.Fatalf("shown: %s", body)
	}
	one := s.Servers[0].Sessions[0]
	if one.Session != "inst12345678" || one.Principal != "alice" || one.Client != "claude-code 2.0" || !one.Live || !one.Child || len(one.Streams) != 2 {
		t.Errorf("session: %+v", one)
	}
	for _, st := range one.Streams {
		switch st.Stream {
		case own:
			if st.Kind != "own" || st.Top != 1 {
				t.Errorf("own stream: %+v", st)
			}
		case running:
			if st.Kind != "call" || st.State != "running" || st.Top != 10 || st.Floor != 4 || st.Events != 7 || len(st.Readers) != 2 || st.Readers[0].Role != "spare" || st.Readers[1].Cursor != 7 || st.Readers[1].Role != "active" {
				t.Errorf("call: %+v", st)
			}
		}
	}
	if s.Totals.Resumes["exact"] != 3 || len(s.Diagnosis.Findings) == 0 {
		t.Errorf("totals %+v, diagnosis %+v", s.Totals, s.Diagnosis)
	}
	if strings.Contains(body, name) {
		t.Error("the session's name in the log is shown")
	}
}

func TestWindowHidesPayloads(t *testing.T) {
	for _, shown := range []bool{false, true} {
		a := handler(t, func(o *Options) { o.ShowPayloads = shown })
		code, body := get(a, "/streams/"+running+".abcdef.7?after=0", nil)
		var w Window
		if err := json.Unmarshal([]byte(body), &w); err != nil || code != 200 {
			t.Fatalf("%d %v %s", code, err, body)
		}
		if w.Session != "inst12345678" || len(w.Events) != 7 || w.Events[0].Kind != "opening" || w.Events[1].Seq != 5 || w.Events[1].Size != 16 || w.More {
			t.Errorf("window: %+v", w)
		}
		if strings.Contains(body, "secret") != shown {
			t.Errorf("show payloads %v: %s", shown, body)
		}
	}
}

func TestUnknownStreams(t *testing.T) {
	a := handler(t, nil)
	if code, _ := get(a, "/streams/nothing", nil); code != 404 {
		t.Errorf("an unknown stream is %d", code)
	}
	if code, _ := get(a, "/streams/"+running+"?after=-1", nil); code != 400 {
		t.Errorf("a wrong place is %d", code)
	}
}

var open = []string{"/metrics", "/healthz", "/readyz"}
var closed = []string{"/", "/streams", "/streams/" + running, "/dashboard.js", "/dashboard.css", "/debug/pprof/", "/debug/pprof/cmdline"}

func TestField110_PagesOfOthersCannotLook(t *testing.T) {
	a := handler(t, nil)
	for _, path := range append(open, closed...) {
		for _, host := range []string{"localhost:9464", "127.0.0.1", "[::1]:9464", "127.0.0.2:9464"} {
			if code, body := get(a, path, func(r *http.Request) { r.Host = host }); code != 200 {
				t.Errorf("%s with host %s: %d %s", path, host, code, body)
			}
		}
		for _, host := range []string{"evil.example:9464", "localhost.", "", "127.0.0.1.evil.example", "0.0.0.0:9464"} {
			if code, _ := get(a, path, func(r *http.Request) { r.Host = host }); code != 403 {
				t.Errorf("%s with host %q: %d, want 403", path, host, code)
			}
		}
		for _, origin := range []string{"null", "http://evil.example", "http://127.0.0.1:1"} {
			if code, _ := get(a, path, func(r *http.Request) { r.Header.Set("Origin", origin) }); code != 403 {
				t.Errorf("%s with origin %q: %d, want 403", path, origin, code)
			}
		}
		if code, _ := get(a, path, func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:9464") }); code != 200 {
			t.Errorf("%s from its own page: %d", path, code)
		}
		if code, _ := get(a, path, func(r *http.Request) { r.Method = "POST" }); code != 405 {
			t.Errorf("POST %s: %d, want 405", path, code)
		}
	}
	if code, _ := get(a, "/nothing", func(r *http.Request) { r.Host = "evil.example" }); code != 403 {
		t.Errorf("an unknown path tells a foreign page that this is Segno: %d", code)
	}
}

// TestAbsoluteTargetAndTwoHosts goes through a real server: these never reach a
// handler as they were sent.
func TestAbsoluteTargetAndTwoHosts(t *testing.T) {
	s := httptest.NewServer(handler(t, nil))
	defer s.Close()
	for request, want := range map[string]string{
		"GET http://evil.example/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n":           "403",
		"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n":        "400",
		"GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n":           "200",
		"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: null\r\nOrigin: x\r\n\r\n": "403",
	} {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, request)
		b := make([]byte, 12)
		if _, err := io.ReadFull(c, b); err != nil || !strings.HasSuffix(string(b), want) {
			t.Errorf("%q is answered %q, %v; want %s", request, b, err, want)
		}
		c.Close()
	}
}

func TestKey(t *testing.T) {
	a := handler(t, func(o *Options) { o.Key, o.Listen = "opensesame", "0.0.0.0:9464" })
	for _, path := range closed {
		if code, _ := get(a, path, nil); code != 401 {
			t.Errorf("%s without a key: %d, want 401", path, code)
		}
		if code, _ := get(a, path, func(r *http.Request) { r.Header.Set("Authorization", "Bearer opensesam") }); code != 401 {
			t.Errorf("%s with a wrong key: %d, want 401", path, code)
		}
		for _, set := range []func(*http.Request){
			func(r *http.Request) { r.Header.Set("Authorization", "bearer opensesame") },
			func(r *http.Request) { r.SetBasicAuth("any", "opensesame") },
		} {
			if code, _ := get(a, path, set); code != 200 {
				t.Errorf("%s with the key: %d", path, code)
			}
		}
	}
	for _, path := range open {
		if code, _ := get(a, path, func(r *http.Request) { r.Host = "10.1.2.3:9464" }); code != 200 {
			t.Errorf("%s for a probe: %d", path, code)
		}
	}
}

// TestOtherAddressWithoutKey: all of it for this machine, health and metrics for
// others, among them those for whom a proxy on this machine asks, and pages that
// have it under a name of their own.
func TestOtherAddressWithoutKey(t *testing.T) {
	a := handler(t, func(o *Options) { o.Listen = "0.0.0.0:9464" })
	ask := func(remote, host, header string) func(*http.Request) {
		return func(r *http.Request) {
			r.RemoteAddr, r.Host = remote, host
			if header != "" {
				r.Header.Set(header, "10.1.2.3")
			}
		}
	}
	for _, c := range []struct {
		who, remote, host, header string
		all                       bool
	}{
		{"this machine", "127.0.0.1:5", "localhost:9464", "", true},
		{"this machine over IPv6", "[::1]:5", "[::1]:9464", "", true},
		{"another", "10.1.2.3:5", "10.0.0.1:9464", "", false},
		{"another that lies", "10.1.2.3:5", "localhost:9464", "", false},
		{"a page with a name for loopback", "127.0.0.1:5", "evil.example:9464", "", false},
		{"a proxy", "127.0.0.1:5", "127.0.0.1:9464", "X-Forwarded-For", false},
		{"a proxy of another kind", "127.0.0.1:5", "127.0.0.1:9464", "Via", false},
	} {
		for _, path := range open {
			if code, body := get(a, path, ask(c.remote, c.host, c.header)); code != 200 {
				t.Errorf("%s for %s: %d %s", path, c.who, code, body)
			}
		}
		want := 403
		if c.all {
			want = 200
		}
		for _, path := range closed {
			if code, _ := get(a, path, ask(c.remote, c.host, c.header)); code != want {
				t.Errorf("%s for %s: %d, want %d", path, c.who, code, want)
			}
		}
	}
}

// TestOneSession: whoever asks for one gets it alone.
func TestOneSession(t *testing.T) {
	a := handler(t, nil)
	for public, want := range map[string]int{"inst12345678": 1, "inst12345679": 0} {
		code, body := get(a, "/streams?session="+public, nil)
		var s Status
		if err := json.Unmarshal([]byte(body), &s); err != nil || code != 200 || len(s.Servers) != 1 || len(s.Servers[0].Sessions) != want {
			t.Errorf("%s: %d, %v, %s", public, code, err, body)
		}
	}
}

// TestEveryResultOfAResumeIsExplained: the page knows all that can be counted.
func TestEveryResultOfAResumeIsExplained(t *testing.T) {
	a := handler(t, nil)
	_, metrics := get(a, "/metrics", nil)
	_, page := get(a, "/dashboard.js", nil)
	results := regexp.MustCompile(`segno_resumes_total\{result="(\w+)"\}`).FindAllStringSubmatch(metrics, -1)
	if len(results) < 8 {
		t.Fatalf("only %d results are counted", len(results))
	}
	for _, r := range results {
		if !strings.Contains(page, "\n  "+r[1]+`: "`) {
			t.Errorf("the dashboard does not say what %s means", r[1])
		}
	}
}

func TestReadySaysWhyNot(t *testing.T) {
	log := stored(t)
	var why error
	a := handler(t, func(o *Options) {
		o.Servers[0] = Server{Name: "files", Source: &View{Log: log, Why: func() error { return why }}}
	})
	if code, body := get(a, "/readyz", nil); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	why = errors.New("draining")
	if code, body := get(a, "/readyz", nil); code != 503 || !strings.Contains(body, "draining") || !strings.Contains(body, "files") {
		t.Errorf("while draining: %d %s", code, body)
	}
	why = nil
	sick := handler(t, func(o *Options) { o.Servers[0].Source = &View{Log: ill{log}} })
	if code, body := get(sick, "/readyz", nil); code != 503 || !strings.Contains(body, "disk full") {
		t.Errorf("with a store that takes nothing: %d %s", code, body)
	}
	log.Close()
	if code, body := get(a, "/readyz", nil); code != 503 || !strings.Contains(body, "store") {
		t.Errorf("without a store: %d %s", code, body)
	}
	if code, _ := get(a, "/healthz", nil); code != 200 {
		t.Error("a process without a store is called dead")
	}
}

// ill is a log that can be read and not written.
type ill struct{ eventlog.Log }

func (ill) Healthy() error { return errors.New("disk full") }

func TestPageBringsEverythingItself(t *testing.T) {
	a := handler(t, nil)
	for _, path := range []string{"/", "/dashboard.js", "/dashboard.css"} {
		code, body := get(a, path, nil)
		if code != 200 || strings.Contains(strings.ReplaceAll(body, "http://www.w3.org/2000/svg", ""), "http") {
			t.Errorf("%s: %d, or it asks for something elsewhere", path, code)
		}
		if strings.Contains(body, "innerHTML") || strings.Contains(body, "onclick=") {
			t.Errorf("%s: makes markup of text", path)
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = "localhost"
	a.ServeHTTP(w, r)
	if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("the page may do too much: %q", csp)
	}
}

func TestMoreSessionsThanAreShown(t *testing.T) {
	log := stored(t)
	for _, n := range []string{"a", "b", "c"} {
		claim, err := log.Claim(t.Context(), n, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Append(t.Context(), eventlog.Append{Key: eventlog.Key{Session: n}, Fence: claim.Fence, Record: []byte("?")}); err != nil {
			t.Fatal(err)
		}
	}
	v := &View{Log: log, Live: func() map[string]session.Vitals { return map[string]session.Vitals{name: {Seen: time.Now()}} }}
	sessions, more, err := v.Sessions(context.Background(), 2)
	if err != nil || len(sessions) != 2 || !more || sessions[0].Session != "inst12345678" || sessions[1].Session != "?" {
		t.Errorf("%+v, more %v, %v", sessions, more, err)
	}
	sessions, more, err = v.Sessions(context.Background(), 4)
	if err != nil || len(sessions) != 4 || more {
		t.Errorf("all: %+v, more %v, %v", sessions, more, err)
	}
}

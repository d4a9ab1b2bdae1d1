package remote

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// oldServer is one of 2024-11-05.
type oldServer struct {
	refuse   int                // status of a POST to the stream's URL; 0: 405
	endpoint func(n int) string // of the n-th stream; nil: relative
	call     func(o *oldServer, m *wire.Message)
	mute     bool          // the first initialize: the stream breaks instead
	late     time.Duration // between an answer on the stream and the 202

	mu      sync.Mutex
	streams int
	out     chan string // to the newest stream
	calls   int
	paths   []string
}

func (o *oldServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet:
		o.stream(w, r)
	case !strings.HasPrefix(r.URL.Path, "/tools/x/messages"):
		w.WriteHeader(max(o.refuse, 405*(1-min(1, o.refuse))))
	default:
		o.post(w, r)
	}
}

func (o *oldServer) stream(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.streams++
	n := o.streams
	o.out = make(chan string, 100)
	out := o.out
	o.mu.Unlock()
	at := fmt.Sprintf("messages?s=%d", n)
	if o.endpoint != nil {
		at = o.endpoint(n)
	}
	h := &hit{w: w, r: r}
	h.stream()
	h.write("event: endpoint\r\ndata: %s\r\n\r\n", at)
	for {
		select {
		case text, ok := <-out:
			if !ok {
				breaks()
			}
			h.write("%s", text)
		case <-r.Context().Done():
			return
		}
	}
}

// say sends an event on the newest stream.
func (o *oldServer) say(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.out <- fmt.Sprintf(format, args...)
}

// cut breaks the newest stream.
func (o *oldServer) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.out)
}

func (o *oldServer) post(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m, _ := wire.Parse(body)
	o.mu.Lock()
	o.paths = append(o.paths, r.URL.String())
	if r.URL.RawQuery != fmt.Sprint("s=", o.streams) {
		o.mu.Unlock()
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	if m.Method == wire.ToolsCall {
		o.calls++
	}
	o.mu.Unlock()
	switch {
	case m.Method == wire.Initialize && o.mute:
		o.mute = false
		time.AfterFunc(time.Second, o.cut)
	case m.Method == wire.Initialize:
		o.say("event: message\ndata: %s\n\n", result(string(m.IDText()), `{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"old","version":"1"}}`))
	case m.Method == wire.ToolsCall && o.call != nil:
		o.call(o, &m)
	case m.Kind == wire.Request:
		o.say("data: %s\n\n", result(string(m.IDText()), `{"ok":true}`))
	}
	time.Sleep(o.late)
	w.WriteHeader(http.StatusAccepted)
	io.WriteString(w, "Accepted")
}

func oldRig(t *testing.T, o *oldServer) *rig {
	return newRig(t, o, Options{URL: "http://segno.test/tools/x/sse", Header: http.Header{"Authorization": {"Bearer x"}}})
}

// TestField43_EndpointIsRelative: to the URL of the stream, prefix and all. The
// server is found out by the rules of the specification.
func TestField43_EndpointIsRelative(t *testing.T) {
	for _, refuse := range []int{400, 404, 405} {
		for _, at := range []string{"messages?s=1", "/tools/x/messages?s=1", "http://segno.test/tools/x/messages?s=1", "//segno.test:80/tools/x/messages?s=1"} {
			bubble(t, func(t *testing.T) {
				o := &oldServer{refuse: refuse, late: time.Second, endpoint: func(int) string { return at }}
				o.call = func(o *oldServer, m *wire.Message) {
					o.say("data: %s\n\n", progress("7", 1))
					o.say("data: %s\n\n", result("7", `{"ok":true}`))
				}
				r := oldRig(t, o)
				r.init()
				r.callTool("7")
				contains(t, r.within(time.Minute, "7"), `"ok":true`)
				r.send(`{"jsonrpc":"2.0","id":8,"method":"tools/list"}`)
				contains(t, r.within(time.Minute, "8"), `"ok":true`)
				if n := r.count(wire.ProgressNote); n != 1 || o.streams != 1 || o.calls != 1 {
					t.Errorf("%d progress, %d streams, %d calls", n, o.streams, o.calls)
				}
			})
		}
	}
}

// TestField112_EndpointOfAnotherOrigin is never used, whenever it is named.
func TestField112_EndpointOfAnotherOrigin(t *testing.T) {
	for _, at := range []string{
		"https://evil.example/x", "//evil.example/x", "http://169.254.169.254/", "http://segno.test:81/tools/x/messages?s=1",
		"https://segno.test/tools/x/messages?s=1", `\\evil.example/x`, `/\evil.example`, "http://segno.test.evil.example/", "javascript:alert(1)", "::",
	} {
		bubble(t, func(t *testing.T) {
			o := &oldServer{endpoint: func(int) string { return at }}
			r := oldRig(t, o)
			r.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{}}`)
			contains(t, r.within(time.Minute, `"init"`), "not executed", "cannot be used")
			if len(o.paths) > 0 {
				t.Errorf("%s: it was posted to %s", at, o.paths)
			}
		})
	}
	bubble(t, func(t *testing.T) {
		o := &oldServer{}
		r := oldRig(t, o)
		r.init()
		synctest.Wait()
		o.say("event: endpoint\ndata: /tools/x/messages-elsewhere\n\n")
		time.Sleep(10 * time.Second)
		r.callTool("7")
		r.within(time.Minute, "7")
		for _, p := range o.paths {
			if strings.Contains(p, "elsewhere") {
				t.Errorf("it was posted to %s", p)
			}
		}
		if o.streams != 2 {
			t.Errorf("%d streams", o.streams)
		}
	})
}

// TestOldStreamBreaks: the session is gone with it. What was on the wire ends
// as unknown, a new one is opened, later calls work.
func TestOldStreamBreaks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := &oldServer{}
		o.call = func(o *oldServer, m *wire.Message) {
			if string(m.IDText()) == "7" {
				o.say("data: %s\n\n", progress("7", 1))
				return
			}
			o.say("data: %s\n\n", result(string(m.IDText()), `{"ok":true}`))
		}
		r := oldRig(t, o)
		r.init()
		r.callTool("7")
		for r.count(wire.ProgressNote) == 0 {
			<-r.wake
		}
		r.net.Refuse(true)
		o.cut()
		contains(t, r.within(time.Minute, "7"), `"outcome":"unknown"`)
		r.callTool("8")
		time.Sleep(20 * time.Second)
		r.net.Refuse(false)
		contains(t, r.within(2*time.Minute, "8"), `"ok":true`)
		r.callTool("9")
		contains(t, r.within(time.Minute, "9"), `"ok":true`)
		if o.calls != 3 || o.streams != 2 {
			t.Errorf("%d calls, %d streams", o.calls, o.streams)
		}
	})
}

// TestOldStreamBreaksBeforeInitialize is answered.
func TestOldStreamBreaksBeforeInitialize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := &oldServer{}
		o.mute = true
		r := oldRig(t, o)
		r.init()
	})
}

// TestNoOldServerEither says how initialize was refused, and nothing is tried
// where that is no sign of an old server.
func TestNoOldServerEither(t *testing.T) {
	for _, c := range []struct {
		status int
		gets   int
	}{{404, 1}, {405, 1}, {400, 1}, {401, 0}, {403, 0}, {500, 0}} {
		bubble(t, func(t *testing.T) {
			gets := 0
			r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					gets++
					w.Header().Set("Content-Type", "text/event-stream")
					io.WriteString(w, "data: hello\n\n")
					return
				}
				w.WriteHeader(c.status)
			}), Options{})
			r.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{}}`)
			contains(t, r.within(time.Minute, `"init"`), fmt.Sprintf("not executed: the server answered %d", c.status))
			if gets != c.gets {
				t.Errorf("%d: %d GETs", c.status, gets)
			}
		})
	}
}

package peers

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// nginx is a running nginx with deploy/nginx.conf before a server.
type nginx struct {
	t      *testing.T
	prefix string
	listen string
	cmd    *exec.Cmd
	said   logged
}

// startNginx starts nginx with the deployed configuration; only its ports are
// other ones, and the folders it writes to are in a folder of the test. Lines
// of the configuration can be left out.
func startNginx(t *testing.T, target string, without ...string) *nginx {
	t.Helper()
	text, err := os.ReadFile("../../deploy/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	n := &nginx{t: t, prefix: t.TempDir(), listen: freeAddress(t)}
	conf := replaceOnce(t, string(text), "127.0.0.1:8090", n.listen)
	conf = replaceOnce(t, conf, "127.0.0.1:8080", target)
	for _, line := range without {
		conf = replaceOnce(t, conf, line, "")
	}
	var folders strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&folders, "%s_temp_path %s;\n", kind, filepath.Join(n.prefix, kind))
	}
	conf = replaceOnce(t, conf, "http {\n", "http {\naccess_log off;\n"+folders.String())
	if err := os.WriteFile(filepath.Join(n.prefix, "nginx.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start()
	t.Cleanup(n.stop)
	return n
}

// replaceOnce fails if the configuration no longer says what the test replaces.
func replaceOnce(t *testing.T, text, old, with string) string {
	t.Helper()
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("deploy/nginx.conf has %q %d times, want once", old, n)
	}
	return strings.Replace(text, old, with, 1)
}

func (n *nginx) start() {
	n.t.Helper()
	n.cmd = exec.Command("nginx", "-p", n.prefix, "-e", "stderr", "-c", filepath.Join(n.prefix, "nginx.conf"),
		"-g", "daemon off; pid "+filepath.Join(n.prefix, "pid")+"; error_log stderr;")
	n.cmd.Stderr = &n.said
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	until(n.t, "nginx listens", 10*time.Second, func() bool {
		conn, err := net.Dial("tcp", n.listen)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// stop ends nginx at once, breaking its connections.
func (n *nginx) stop() {
	n.cmd.Process.Signal(syscall.SIGTERM)
	n.cmd.Wait()
	if n.t.Failed() {
		n.t.Logf("nginx said: %s", n.said.text(20))
	}
}

func (n *nginx) url() string { return "http://" + n.listen + "/mcp" }

const (
	paces  = 5
	http11 = "proxy_http_version 1.1;"
)

// TestField30_EventsPassNginxOneByOne lets a tool send each event only when the
// one before it has reached the client through nginx, on the call's stream and
// on a resumed one, also if nginx is left at HTTP/1.0. There it holds events back
// without the header that Segno sends; over HTTP/1.1 it passes on whole chunks
// anyway.
func TestField30_EventsPassNginxOneByOne(t *testing.T) {
	need(t, "npm", "nginx")
	s, l := behind(t, "2025-11-25")
	host := strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/mcp")
	n := startNginx(t, host)
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) { t.Parallel(); oneByOne(t, k, n.url(), l) })
	}
	t.Run("resumed", func(t *testing.T) { t.Parallel(); resumedOneByOne(t, n.url(), l) })
	t.Run("http1.0", func(t *testing.T) {
		t.Parallel()
		resumedOneByOne(t, startNginx(t, host, http11).url(), l)
	})
	t.Run("http1.0 without the header", func(t *testing.T) { t.Parallel(); heldBack(t, s.url, l) })
}

func oneByOne(t *testing.T, k kind, url string, l ledger) {
	client := k.open(t, url)
	defer client.close()
	seen := &progress{}
	tag := tagOf(t)
	ended := make(chan error, 1)
	go func() {
		_, err := client.call(within(t, 50*time.Second), "steps", map[string]any{"tag": tag, "n": paces}, seen)
		ended <- err
	}()
	for i := range paces {
		l.open(t, nth(tag, i+1))
		until(t, fmt.Sprintf("event %d is there before the next is sent", i+1), 30*time.Second,
			func() bool { return len(seen.numbers()) == i+1 })
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	ranOnce(t, l, tag)
}

// heldBack takes the header away between Segno and nginx: if nothing were held
// back then, the other cells could not fail.
func heldBack(t *testing.T, url string, l ledger) {
	between := cutBefore(t, url, plan{strip: "X-Accel-Buffering"})
	ctx := within(t, 40*time.Second)
	r := hello(t, ctx, startNginx(t, between.address, http11).url(), "2025-11-25")
	tag := tagOf(t)
	l.open(t, nth(tag, 1))
	waiting, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	answer, err := r.try(waiting, http.MethodPost, stepped(tag), posting())
	if err == nil { // at most the head came
		defer answer.Body.Close()
		for e, err := range events(answer.Body) {
			if err == nil {
				t.Errorf("nginx passed event %s in time without being told to", e.id)
			}
		}
	}
	for i := range paces {
		l.open(t, nth(tag, i+1))
	}
}

func stepped(tag string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"steps","arguments":{"tag":%q,"n":%d},"_meta":{"progressToken":1}}}`, tag, paces)
}

// resumedOneByOne breaks off after the second event and takes the rest by a GET.
func resumedOneByOne(t *testing.T, url string, l ledger) {
	ctx := within(t, 50*time.Second)
	r := hello(t, ctx, url, "2025-11-25")
	tag := tagOf(t)
	l.open(t, nth(tag, 1))
	answer := r.post(ctx, stepped(tag))
	last, cursor := l.stepThrough(t, answer.Body, tag, 0, 2)
	answer.Body.Close()
	resumed := r.resume(ctx, cursor)
	defer resumed.Body.Close()
	if last, _ = l.stepThrough(t, resumed.Body, tag, last, paces); last != paces {
		t.Errorf("the stream ended after event %d", last)
	}
}

// stepThrough reads progress up to n and opens the gate for the next after each.
// It returns the last it got and the event id of it.
func (l ledger) stepThrough(t *testing.T, body io.Reader, tag string, last, n int) (int, string) {
	t.Helper()
	for e, err := range events(body) {
		if err != nil {
			t.Fatalf("after event %d: %v", last, err)
		}
		if e.data == "" {
			continue
		}
		m := e.rpc(t)
		if m.Method != "notifications/progress" {
			continue
		}
		if m.Params.Progress != last+1 {
			t.Errorf("event %d after %d", m.Params.Progress, last)
		}
		last = m.Params.Progress
		l.open(t, nth(tag, last+1))
		if last == n {
			return last, e.id
		}
	}
	return last, ""
}

// TestNginxRestarts stops nginx in mid-call and starts it again: clients that
// can resume see every event once.
func TestNginxRestarts(t *testing.T) {
	need(t, "npm", "nginx")
	s, l := behind(t, "2025-11-25")
	host := strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/mcp")
	n := startNginx(t, host)
	var calls sync.WaitGroup
	begun := make(chan struct{}, 8)
	for _, k := range kinds(t) {
		if k.cleanOnly {
			continue
		}
		client := k.open(t, n.url())
		defer client.close()
		seen := &progress{}
		calls.Go(func() {
			tag := k.name
			text, err := client.call(within(t, 50*time.Second), "count",
				map[string]any{"tag": tag, "n": steps, "pace_ms": 150}, seen)
			if err != nil || text != "done "+tag {
				t.Errorf("%s: %q, %v", k.name, text, err)
				return
			}
			settled(t, k, seen)
			ranOnce(t, l, tag)
		})
		go func() {
			eventually(20*time.Second, func() bool { return len(seen.numbers()) > 0 })
			begun <- struct{}{}
		}()
	}
	for range 5 {
		<-begun
	}
	n.stop()
	n.start()
	calls.Wait()
}

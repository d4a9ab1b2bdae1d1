package peers

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
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

// TestField30_EventsPassNginxOneByOne lets a tool send an event every 300 ms
// through nginx: each is there before the next was sent, on the call's stream
// and on a resumed one, also if nginx is left at HTTP/1.0. There it holds them
// back without the header that Segno sends; over HTTP/1.1 it passes on whole
// chunks anyway.
func TestField30_EventsPassNginxOneByOne(t *testing.T) {
	need(t, "npm", "nginx")
	s, l := behind(t, "2025-11-25")
	host := strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/mcp")
	n := startNginx(t, host)
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) { t.Parallel(); oneByOne(t, k, n.url(), l) })
	}
	t.Run("http1.0", func(t *testing.T) {
		t.Parallel()
		resumedOneByOne(t, startNginx(t, host, http11).url())
	})
	t.Run("http1.0 without the header", func(t *testing.T) { t.Parallel(); heldBack(t, s.url) })
	t.Run("resumed", func(t *testing.T) { t.Parallel(); resumedOneByOne(t, n.url()) })
}

const (
	pace   = 300 * time.Millisecond
	http11 = "proxy_http_version 1.1;"
)

func oneByOne(t *testing.T, k kind, url string, l ledger) {
	client := k.open(t, url)
	defer client.close()
	seen := &progress{}
	tag := tagOf(t)
	text, err := client.call(within(t, 40*time.Second), "count",
		map[string]any{"tag": tag, "n": 6, "pace_ms": pace.Milliseconds()}, seen)
	if err != nil || text != "done "+tag {
		t.Fatalf("%q, %v", text, err)
	}
	eventually(5*time.Second, func() bool { return len(seen.numbers()) >= 6 })
	for _, w := range inTime(seen.all()) {
		t.Error(w)
	}
	ranOnce(t, l, tag)
}

// inTime says which of six events were not received before the next was sent.
func inTime(steps []step) (wrong []string) {
	if len(steps) != 6 {
		return []string{fmt.Sprintf("%d events, want 6", len(steps))}
	}
	for i := range steps[:5] {
		next, err := strconv.ParseInt(steps[i+1].message, 10, 64)
		if err != nil {
			return []string{err.Error()}
		}
		if late := time.UnixMilli(steps[i].at).Sub(time.Unix(0, next)); late >= 0 {
			wrong = append(wrong, fmt.Sprintf("event %d came %s after event %d was sent", i+1, late, i+2))
		}
	}
	spread := time.Duration(steps[5].at-steps[0].at) * time.Millisecond
	if spread < 4*pace {
		wrong = append(wrong, fmt.Sprintf("six events came within %s, the tool took %s", spread, 5*pace))
	}
	return wrong
}

// heldBack takes the header away between Segno and nginx: if nothing were held
// back then, the other cells could not fail.
func heldBack(t *testing.T, url string) {
	between := cutBefore(t, url, plan{strip: "X-Accel-Buffering"})
	ctx := within(t, 40*time.Second)
	r := hello(t, ctx, startNginx(t, between.address, http11).url(), "2025-11-25")
	answer := r.post(ctx, paced("held"))
	defer answer.Body.Close()
	steps, _ := takeSteps(t, answer.Body, 6)
	if len(inTime(steps)) == 0 {
		t.Error("nginx passed the events in time without being told to")
	}
}

func paced(tag string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count","arguments":{"tag":%q,"n":6,"pace_ms":%d},"_meta":{"progressToken":1}}}`, tag, pace.Milliseconds())
}

// takeSteps reads a stream up to so many progress events, and returns them with
// the last event id.
func takeSteps(t *testing.T, body io.Reader, n int) (steps []step, cursor string) {
	t.Helper()
	for e, err := range events(body) {
		if err != nil {
			t.Fatal(err)
		}
		cursor = e.id
		if e.data == "" {
			continue
		}
		m := e.rpc(t)
		if m.Method != "notifications/progress" {
			continue
		}
		steps = append(steps, step{m.Params.Progress, m.Params.Message, time.Now().UnixMilli()})
		if len(steps) == n {
			break
		}
	}
	return steps, cursor
}

// resumedOneByOne breaks off after the first event and takes the rest by a GET.
func resumedOneByOne(t *testing.T, url string) {
	ctx := within(t, 40*time.Second)
	r := hello(t, ctx, url, "2025-11-25")
	answer := r.post(ctx, paced("resumed"))
	first, cursor := takeSteps(t, answer.Body, 1)
	answer.Body.Close()
	resumed := r.resume(ctx, cursor)
	defer resumed.Body.Close()
	rest, _ := takeSteps(t, resumed.Body, 5)
	for _, w := range inTime(append(first, rest...)) {
		t.Error(w)
	}
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

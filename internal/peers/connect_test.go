package peers

import (
	"bytes"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/segno-mcp/segno/internal/memnet"
)

// openConnect is a client of the go-sdk that starts "segno connect URL" itself,
// as hosts do that only speak stdio.
func openConnect(t *testing.T, endpoint string) *goSDK {
	t.Helper()
	if built.err != nil {
		t.Fatal(built.err)
	}
	c := &goSDK{seen: map[string]*progress{}}
	said := &heard{}
	cmd := exec.Command(built.segno, "connect", endpoint)
	cmd.Stderr = said
	t.Cleanup(func() {
		text := said.String()
		if strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
			t.Errorf("segno connect said:\n%s", text)
		} else if t.Failed() {
			t.Logf("segno connect said:\n%s", text)
		}
	})
	var err error
	c.session, err = mcp.NewClient(&mcp.Implementation{Name: "peer-connect", Version: "1"}, c.options()).Connect(within(t, 60*time.Second), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatalf("connecting through segno connect: %v", err)
	}
	return c
}

// heard is what a process said, which may still say something.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// TestConnectTable is the table by which bridges are compared: one call of
// eight seconds with sixteen reports, the network cut after the third.
//
//	outage           mcp-remote 0.15.1      supergateway 4          segno connect
//	0.2 s            16/16 and the result   0/16 and the result     16/16 and the result
//	6 s              never answered         never answered          16/16 and the result
//	20 s             never answered         never answered          16/16 and the result
//	killed, started  never answered         404 for every call      one error, later calls work
//	down at first    exits                  exits                   waits, then works
func TestConnectTable(t *testing.T) {
	need(t)
	for _, outage := range []time.Duration{200 * time.Millisecond, 6 * time.Second, 20 * time.Second} {
		t.Run(outage.String(), func(t *testing.T) { t.Parallel(); connectOutage(t, outage) })
	}
	t.Run("killed", func(t *testing.T) { t.Parallel(); connectKilled(t, false) })
	t.Run("killed, store lost", func(t *testing.T) { t.Parallel(); connectKilled(t, true) })
	t.Run("down at first", func(t *testing.T) { t.Parallel(); connectEarly(t) })
}

// networkBefore puts a network before a server that can be cut.
func networkBefore(t *testing.T, endpoint string) (*memnet.Proxy, string) {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p, err := memnet.NewProxy(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, p.URL() + u.Path
}

func connectOutage(t *testing.T, outage time.Duration) {
	s, l := behind(t, "2025-11-25")
	net, at := networkBefore(t, s.url)
	client := openConnect(t, at)
	defer client.close()
	ctx := within(t, outage+60*time.Second)
	seen := &progress{}
	ended := make(chan error, 1)
	go func() {
		text, err := client.call(ctx, "count", map[string]any{"tag": "long", "n": 16, "pace_ms": 500}, seen)
		if err == nil && text != "done long" {
			err = fmt.Errorf("the result is %q", text)
		}
		ended <- err
	}()
	until(t, "three reports", 30*time.Second, func() bool { return len(seen.numbers()) >= 3 })
	net.Refuse()
	net.Cut()
	during := make(chan error, 1)
	go func() {
		_, err := client.call(ctx, "count", map[string]any{"tag": "during", "n": 1, "pace_ms": 1}, nil)
		during <- err
	}()
	began := time.Now()
	<-time.After(outage)
	if err := net.Resume(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]chan error{"the call": ended, "a call made in the outage": during} {
		if err := <-c; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("both answered %s after the outage of %s began", time.Since(began).Round(100*time.Millisecond), outage)
	eventually(5*time.Second, func() bool { return len(seen.numbers()) >= 16 })
	got := seen.numbers()
	slices.Sort(got) // go-sdk hands notifications over in any order
	for n := range max(16, len(got)) {
		if n >= len(got) || got[n] != n+1 {
			t.Fatalf("progress %v, want 1 to 16", got)
		}
	}
	ranOnce(t, l, "long")
	ranOnce(t, l, "during")
}

func connectKilled(t *testing.T, lost bool) {
	s, l := behind(t, "2025-11-25")
	client := openConnect(t, s.url)
	defer client.close()
	ctx := within(t, 90*time.Second)
	ended := make(chan error, 1)
	go func() {
		text, err := client.call(ctx, "quiet", map[string]any{"tag": "lost"}, &progress{})
		if err == nil {
			err = fmt.Errorf("a result: %q", text)
		}
		ended <- err
	}()
	until(t, "the tool runs", 30*time.Second, func() bool { return l.runs(t, "lost") == 1 })
	s.kill()
	if lost {
		s.args[indexOf(t, s.args, "pebble:"+s.store)] = "pebble:" + t.TempDir()
	}
	s.restart()
	if err := <-ended; !strings.Contains(err.Error(), "unknown") {
		t.Errorf("the call ended with %v, want an error that says unknown", err)
	}
	text, err := client.call(ctx, "count", map[string]any{"tag": "after", "n": 1, "pace_ms": 1}, nil)
	if err != nil || text != "done after" {
		t.Errorf("afterwards: %q, %v", text, err)
	}
	ranOnce(t, l, "lost")
	ranOnce(t, l, "after")
}

func indexOf(t *testing.T, list []string, one string) int {
	t.Helper()
	for i, s := range list {
		if s == one {
			return i
		}
	}
	t.Fatalf("%q is not in %q", one, list)
	return 0
}

func connectEarly(t *testing.T) {
	s, l := behind(t, "2025-11-25")
	net, at := networkBefore(t, s.url)
	net.Refuse()
	back := time.AfterFunc(3*time.Second, func() {
		if err := net.Resume(); err != nil {
			t.Error(err)
		}
	})
	defer back.Stop()
	client := openConnect(t, at)
	defer client.close()
	text, err := client.call(within(t, 30*time.Second), "count", map[string]any{"tag": "first", "n": 1, "pace_ms": 1}, nil)
	if err != nil || text != "done first" {
		t.Errorf("%q, %v", text, err)
	}
	ranOnce(t, l, "first")
}

// TestConnectEndsWithItsHost: neither the process nor the session is left.
func TestConnectEndsWithItsHost(t *testing.T) {
	need(t)
	s, l := behind(t, "2025-11-25")
	client := openConnect(t, s.url)
	if _, err := client.call(within(t, 30*time.Second), "count", map[string]any{"tag": "one", "n": 1, "pace_ms": 1}, nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	client.close()
	if d := time.Since(began); d > 4*time.Second {
		t.Errorf("segno connect took %v to end after its input had", d)
	}
	gone(t, l.pids(t))
}

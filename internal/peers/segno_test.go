package peers

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// segno is a running "segno serve".
type segno struct {
	t     *testing.T
	args  []string // after "serve"
	store string
	url   string
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process was waited for
	log   logged
}

// logged is what a process said on stderr.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *logged) text(last int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines[max(0, len(l.lines)-last):], "\n")
}

func (l *logged) has(text string) bool { return strings.Contains(l.text(1<<20), text) }

// serve starts Segno before a command, on a store of its own, and stops it when
// the test ends.
func serve(t *testing.T, flags []string, command ...string) *segno {
	t.Helper()
	if built.err != nil {
		t.Fatal(built.err)
	}
	s := &segno{t: t, store: t.TempDir()}
	s.args = append([]string{"--admin", "off", "--store", "pebble:" + s.store}, flags...)
	s.args = append(append(s.args, "--"), command...)
	s.start(freeAddress(t))
	t.Cleanup(s.close)
	return s
}

// behind starts Segno before a scripted server of a revision. When the test ends
// none of its processes may be left.
func behind(t *testing.T, version string, flags ...string) (*segno, ledger) {
	t.Helper()
	l := ledger(t.TempDir())
	t.Cleanup(func() { gone(t, l.pids(t)) })
	return serve(t, flags, l.command(t, version)...), l
}

var mcpURL = regexp.MustCompile(`http://[^\s"',]+/mcp\b`)

func (s *segno) start(listen string) {
	s.t.Helper()
	s.cmd = exec.Command(built.segno, append([]string{"serve", "--listen", listen}, s.args...)...)
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ready, ended := make(chan string, 1), make(chan struct{})
	s.ended = ended
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<22)
		for lines.Scan() {
			s.log.add(lines.Text())
			if url := mcpURL.FindString(lines.Text()); url != "" && strings.Contains(lines.Text(), "listening") {
				ready <- url
			}
		}
		s.cmd.Wait()
	}()
	select {
	case s.url = <-ready:
	case <-ended:
		s.t.Fatalf("segno ended: %s\n%s", s.cmd.ProcessState, s.log.text(20))
	case <-time.After(20 * time.Second):
		s.t.Fatalf("segno printed no line `listening` with a URL\n%s", s.log.text(20))
	}
}

// kill ends Segno as the kernel would, and waits until it is gone.
func (s *segno) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	<-s.ended
}

// restart starts Segno again on the same store and port.
func (s *segno) restart() {
	s.t.Helper()
	host := strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/mcp")
	s.start(host)
}

// close ends Segno as an administrator would.
func (s *segno) close() {
	s.t.Helper()
	select {
	case <-s.ended:
	default:
		s.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.ended:
		case <-time.After(40 * time.Second):
			s.t.Errorf("segno did not end on SIGTERM\n%s", s.log.text(20))
			s.kill()
		}
	}
	if text := s.log.text(1 << 20); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
		s.t.Errorf("segno said:\n%s", text)
	}
	if s.t.Failed() {
		s.t.Logf("segno's last words:\n%s", s.log.text(30))
	}
}

// gone waits until none of the processes is there any more.
func gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if !eventually(10*time.Second, func() bool { return !alive(pid) }) {
			t.Errorf("the server process %d outlived Segno", pid)
		}
	}
}

// alive tells whether a process runs; a zombie does not.
func alive(pid int) bool {
	if p, err := os.FindProcess(pid); err != nil || p.Signal(syscall.Signal(0)) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !os.IsNotExist(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// freeAddress finds a port that can be listened on again later: none of those
// that the system hands out by itself in the meantime.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port between 20000 and 32000")
	return ""
}

// within is a context that ends with the test or after the limit.
func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

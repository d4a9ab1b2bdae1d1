package oracle

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segno-mcp/segno/internal/fakemcp"
	"github.com/segno-mcp/segno/internal/memnet"
)

// workshop is where the command is built; TestMain removes it.
var workshop = filepath.Join(os.TempDir(), fmt.Sprint("oracle-", os.Getpid()))

// command builds the real segno, once for all tests.
var command = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(workshop, "segno")
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/segno-mcp/segno/cmd/segno").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building segno: %w\n%s", err, out)
	}
	return bin, nil
})

// process is a segno serve of its own, with a store that outlives it.
type process struct {
	t     *testing.T
	dir   string
	runs  string // the file where the server counts
	addr  string
	cmd   *exec.Cmd
	read  sync.WaitGroup
	mu    sync.Mutex
	lines []string
}

func newProcess(t *testing.T) *process {
	p := &process{t: t, dir: t.TempDir(), addr: "127.0.0.1:0"}
	p.runs = filepath.Join(p.dir, "runs")
	t.Cleanup(func() {
		if p.cmd != nil {
			p.kill()
		}
		if t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("segno said:\n%s", strings.Join(p.lines, "\n"))
		}
	})
	return p
}

// start starts it, on the port it had before, and returns when it listens.
func (p *process) start() {
	p.t.Helper()
	bin, err := command()
	if err != nil {
		p.t.Fatal(err)
	}
	argv, env := fakemcp.Command(fakemcp.Options{RunsFile: p.runs})
	args := append([]string{"serve", "--listen", p.addr, "--admin", "off", "--store", "pebble:" + filepath.Join(p.dir, "store"), "--"}, argv...)
	p.cmd = exec.Command(bin, args...)
	p.cmd.Env = append(os.Environ(), env...)
	// A process with the race detector otherwise takes a second to end.
	p.cmd.Env = append(p.cmd.Env, "GORACE=atexit_sleep_ms=0")
	out, err := p.cmd.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	listens := make(chan string, 1)
	p.read.Go(func() {
		defer close(listens)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, s.Text())
			p.mu.Unlock()
			if _, at, ok := strings.Cut(s.Text(), " url="); ok && strings.Contains(s.Text(), "msg=listening ") {
				at, _, _ = strings.Cut(at, " ")
				listens <- at
			}
		}
	})
	select {
	case at, ok := <-listens:
		u, err := url.Parse(at)
		if !ok || err != nil {
			p.t.Fatalf("segno does not listen: %q", at)
		}
		p.addr = u.Host
	case <-time.After(20 * time.Second):
		p.t.Fatal("segno does not listen within 20 s")
	}
}

// kill is kill -9.
func (p *process) kill() {
	// It may have ended by itself: what then fails says so better.
	_ = p.cmd.Process.Kill()
	p.read.Wait()
	_ = p.cmd.Wait()
	p.cmd = nil
}

// executed is how often the server ran the tool with a key, over all processes.
func (p *process) executed(key string) int {
	p.t.Helper()
	n, err := fakemcp.FileRuns(p.runs, key)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// client is a strict client of the process, in real time.
func (p *process) client() *client {
	w := newWorld(0, nil, knobs{})
	w.dial = func() (net.Conn, *memnet.Link, error) {
		c, err := net.Dial("tcp", p.addr)
		return c, nil, err
	}
	p.t.Cleanup(func() {
		for _, c := range w.clients {
			for _, x := range c.openConns() {
				x.close()
				<-x.done
			}
		}
		if p.t.Failed() {
			p.t.Logf("the client's story:\n%s", w.tale(""))
		}
		for _, f := range w.faults {
			p.t.Errorf("%s: %s", f.check, f.text)
		}
	})
	c := newClient(w, person{who: "anybody", asked: "2025-11-25"})
	c.initialize()
	if c.id == "" {
		p.t.Fatal("initialize was not answered")
	}
	return c
}

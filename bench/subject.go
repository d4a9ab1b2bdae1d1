package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/segno-mcp/segno/bench/client"
)

// subject is one way to put a tool at the far end of a wire.
type subject interface {
	name() string
	// start starts it in processes of its own. An error that is absent means
	// that it cannot run here, and says why.
	start(ctx context.Context, n need) (*target, error)
}

// need is what a measurement asks of a subject beyond its defaults.
type need struct {
	ahead  bool // keep what the tool is ahead of its reader, however much
	deep   bool // keep every event of a call, however many
	crowd  bool // thousands of sessions and connections; one child for all
	asleep bool // stop the child of an idle session soon
}

// absent is why a subject takes no part.
type absent struct{ why string }

func (a absent) Error() string { return "left out: " + a.why }

// target is a subject that runs.
type target struct {
	admin string   // URL with net/http/pprof below it, if there is one
	addr  string   // host:port that serves MCP at client.Path; empty for stdio
	tool  []string // argv of the tool, if the client starts it itself
	pid   int      // of the gateway, 0 if there is none
	proc  *process
	tidy  func()
	// static says that it only sends a file.
	static bool
}

// dial opens a session.
func (t *target) dial() (client.Session, error) {
	if t.addr == "" {
		return client.Start(t.tool...)
	}
	return client.Dial(t.addr)
}

func (t *target) stop() {
	if t.proc != nil {
		t.proc.stop()
	}
	if t.tidy != nil {
		t.tidy()
	}
}

// process is a started program whose words are kept for when it fails.
type process struct {
	cmd   *exec.Cmd
	addr  chan string
	admin string // set before addr has a value
	done  chan struct{}
	mu    sync.Mutex
	said  []string
}

const startWithin = 30 * time.Second

var listening = regexp.MustCompile(`http://([0-9.]+:[0-9]+)` + client.Path + `\b`)

// adminAt is how Segno names its admin listener in the same line.
var adminAt = regexp.MustCompile(`admin=(http://[0-9.]+:[0-9]+)`)

// launch starts a program and waits until it names the address it serves MCP at.
func launch(ctx context.Context, argv ...string) (*target, error) {
	return launchUntil(ctx, make(chan string, 1), argv...)
}

// launchUntil is launch where somebody else may learn the address.
func launchUntil(ctx context.Context, addr chan string, argv ...string) (*target, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), addr: addr, done: make(chan struct{})}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	go p.listen(r)
	select {
	case addr := <-p.addr:
		return &target{addr: addr, admin: p.admin, pid: p.cmd.Process.Pid, proc: p}, nil
	case <-p.done:
		err = errors.New("it ended")
	case <-time.After(startWithin):
		err = errors.New("it never said where it listens")
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.stop()
	return nil, fmt.Errorf("starting %s: %w: %s", argv[0], err, p.words())
}

func (p *process) words() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.said, " | ")
}

func (p *process) listen(r io.ReadCloser) {
	defer close(p.done)
	defer r.Close()
	const remembered = 8
	named := false
	for s := bufio.NewScanner(r); s.Scan(); {
		line := s.Text()
		if m := listening.FindStringSubmatch(line); m != nil && !named {
			named = true
			if a := adminAt.FindStringSubmatch(line); a != nil {
				p.admin = a[1]
			}
			select {
			case p.addr <- m[1]:
			default: // somebody else found it
			}
		}
		p.mu.Lock()
		p.said = append(p.said[max(0, len(p.said)-remembered):], line)
		p.mu.Unlock()
	}
	io.Copy(io.Discard, r)
}

// stop asks, waits and then kills. The words end when all who hold the pipe do.
func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(5*time.Second, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	p.cmd.Wait()
	select {
	case <-p.done:
	case <-time.After(time.Second):
	}
}

// self is the argv that starts this program in another role.
func self(role string, args ...string) []string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{exe, role}, args...)
}

// role starts a subject that is a role of this program.
type role struct{ title, role string }

func (r role) name() string { return r.title }

func (r role) start(ctx context.Context, n need) (*target, error) {
	return launch(ctx, self(r.role)...)
}

package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// Command is an MCP server that can be started any number of times. It is safe
// for concurrent use.
type Command struct{ opt Options }

// New describes a command; nothing is started or looked up yet.
func New(o Options) *Command { return &Command{opt: o.withDefaults()} }

// Find returns the file that would be run; the error is a *NotFoundError.
func (c *Command) Find() (string, error) {
	if len(c.opt.Argv) == 0 {
		return "", errors.New("finding the command: none is given")
	}
	file, err := newFinder(append(os.Environ(), c.opt.Env...), c.opt.Dir).find(c.opt.Argv[0])
	if err != nil {
		return "", err
	}
	// The system would take a relative path from Dir.
	return filepath.Abs(file)
}

// Fingerprint tells this command from others: the same words in the same
// configured folder give the same one, wherever Segno itself was started.
func (c *Command) Fingerprint() string {
	dir := c.opt.Dir
	if dir != "" {
		dir, _ = filepath.Abs(dir)
	}
	sum := sha256.Sum256([]byte("process\x00" + dir + "\x00" + strings.Join(c.opt.Argv, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// Connect starts a child; label goes into its log lines. ctx bounds the start,
// not the child's life: whoever gets the connection must Close it, also after
// the child is gone. That a child never answers is not seen here.
func (c *Command) Connect(ctx context.Context, label string) (wire.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("starting the MCP server: %w", err)
	}
	file, err := c.Find()
	if err != nil {
		return nil, fmt.Errorf("starting the MCP server: %w", err)
	}
	k, err := c.start(file, label)
	if err != nil {
		return nil, fmt.Errorf("starting the MCP server %s: %w", file, err)
	}
	return k, nil
}

// ends are the parent's ends of the three pipes.
type ends struct {
	in       *os.File
	out, err *os.File
	theirs   []*os.File
}

func newEnds(cmd *exec.Cmd) (*ends, error) {
	var e ends
	pairs := [3][2]*os.File{}
	for i := range pairs {
		r, w, err := os.Pipe()
		if err != nil {
			for _, p := range pairs[:i] {
				p[0].Close()
				p[1].Close()
			}
			return nil, err
		}
		pairs[i] = [2]*os.File{r, w}
	}
	e.in, e.out, e.err = pairs[0][1], pairs[1][0], pairs[2][0]
	e.theirs = []*os.File{pairs[0][0], pairs[1][1], pairs[2][1]}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = e.theirs[0], e.theirs[1], e.theirs[2]
	widen(e.out)
	return &e, nil
}

func (e *ends) closeTheirs() {
	for _, f := range e.theirs {
		f.Close()
	}
}

func (e *ends) closeAll() {
	if e == nil {
		return
	}
	e.closeTheirs()
	e.in.Close()
	e.out.Close()
	e.err.Close()
}

// command is made anew for each attempt: exec.Cmd can't be started twice.
func (c *Command) command(file, mark string, cg *cgroup) (*exec.Cmd, error) {
	cmd := &exec.Cmd{
		Path: file,
		Args: c.opt.Argv,
		Env:  childEnv(os.Environ(), c.opt.Env, mark),
		Dir:  c.opt.Dir,
	}
	return cmd, prepare(cmd, file, cg)
}

// start brings up a child and its goroutines. The one that starts it also
// waits for it, see pin.
func (c *Command) start(file, label string) (*child, error) {
	k := newChild(&c.opt, label)
	k.note = record{
		Boot: bootID(), Owner: os.Getpid(), Mark: newMark(),
		Label: label, Command: c.opt.Argv[0],
	}
	k.note.OwnerStart, _ = startTime(os.Getpid())
	started := make(chan error)
	go func() {
		defer pin()()
		err := c.spawn(k, file)
		started <- err
		if err == nil {
			k.supervise()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	k.journal.add(slog.LevelInfo, "server started",
		slog.Int("pid", k.cmd.Process.Pid), slog.String("command", c.opt.Argv[0]))
	c.opt.Hooks.started()
	return k, nil
}

// spawn tries with a cgroup first, if one may be made; a system that lets one
// be made may still refuse to start a process in it.
func (c *Command) spawn(k *child, file string) error {
	if !c.opt.NoCgroup {
		if cg := newCgroup(k.note.Mark); cg != nil {
			err := c.spawnIn(k, file, cg)
			if err == nil || !refusesCgroup(err) {
				return err
			}
		}
	}
	return c.spawnIn(k, file, nil)
}

func refusesCgroup(err error) bool {
	return !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOEXEC)
}

func (c *Command) spawnIn(k *child, file string, cg *cgroup) (err error) {
	k.note.Cgroup = cg.path()
	if err := k.note.write(c.opt.StateDir); err != nil {
		k.journal.log.Warn("the child is not written down", "error", err)
	}
	var e *ends
	defer func() {
		if err != nil {
			e.closeAll()
			k.note.forget()
			cg.remove()
		}
	}()
	cmd, err := c.command(file, k.note.Mark, cg)
	if err != nil {
		return err
	}
	if e, err = newEnds(cmd); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	g, err := adopt(cmd, cg)
	if err != nil {
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
		return err
	}
	e.closeTheirs()
	k.note.started(cmd.Process.Pid)
	k.run(cmd, g, e, time.Now())
	return nil
}

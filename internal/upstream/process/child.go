package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// child is one running server. Its goroutines: one that started it and waits
// for it, one that writes its input, one that reads its stderr, one that logs,
// and while it is being stopped one that sees to that. Its output is read by
// whoever calls Recv.
type child struct {
	opt     *Options
	note    record
	journal *journal

	cmd   *exec.Cmd
	group *group
	since time.Time
	in    *stdin
	out   *stdout
	err   *stderr
	lines *wire.Lines

	work   sync.WaitGroup // writing and reading of the pipes
	logged chan struct{}  // the journal is done

	stopping sync.Once
	stopped  chan struct{}          // a stop was asked for
	why      atomic.Pointer[string] // what asked for it; nil: Close
	how      atomic.Value           // Exit

	reaping sync.Mutex
	reaped  bool // the group's number may belong to others

	exited chan struct{} // the process has exited
	gone   chan struct{} // and all is collected: end holds
	end    *wire.Gone
}

func newChild(o *Options, label string) *child {
	k := &child{
		opt: o, journal: newJournal(o.Logger, label),
		logged:  make(chan struct{}),
		stopped: make(chan struct{}),
		exited:  make(chan struct{}), gone: make(chan struct{}),
	}
	k.how.Store(ExitSelf)
	return k
}

// run begins to move bytes.
func (k *child) run(cmd *exec.Cmd, g *group, e *ends, now time.Time) {
	k.cmd, k.group, k.since = cmd, g, now
	k.in = newStdin(e.in, k.opt, k.stuck, k.deaf)
	k.out = &stdout{pipe: readEnd(e.out), max: k.opt.MaxMessage}
	k.err = &stderr{
		r: readEnd(e.err), journal: k.journal, count: k.opt.Hooks.stderr,
		secrets: secretsIn(cmd.Env), max: k.opt.StderrTail,
	}
	k.lines = wire.NewLines(k.out, wire.LineOptions{Max: k.opt.MaxMessage, Room: k.opt.Room, Bad: k.garbage})
	k.work.Go(k.in.run)
	k.work.Go(k.err.run)
	go func() {
		defer close(k.logged)
		k.journal.run()
	}()
}

func (k *child) garbage(line []byte, why *wire.Error) {
	k.opt.Hooks.garbage(len(line))
	k.journal.line(slog.LevelWarn, "the server wrote a line that is no message: "+why.Message,
		k.err.hide(string(line[:min(len(line), maxLine)])), len(line))
}

// Send queues one message; see wire.Conn.
func (k *child) Send(ctx context.Context, msg []byte) error {
	err := k.in.send(ctx, msg)
	if !errors.Is(err, errInputClosed) {
		return err
	}
	select {
	case <-k.gone:
		return k.end
	default:
		return &wire.Gone{Reason: k.reason("it takes no more messages")}
	}
}

// Recv reads what the server wrote; see wire.Conn.
func (k *child) Recv(ctx context.Context) ([]wire.Message, error) {
	for {
		msgs, err := k.next(ctx)
		switch {
		case err == nil:
			return msgs, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return nil, k.ended(ctx)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}

func (k *child) next(ctx context.Context) ([]wire.Message, error) {
	if ctx.Done() == nil {
		return k.lines.Next()
	}
	if ctx.Err() != nil {
		return nil, os.ErrDeadlineExceeded
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		k.out.interrupt()
	})
	msgs, err := k.lines.Next()
	if !stop() {
		<-done
		k.out.resume()
	}
	return msgs, err
}

// Tail is what the child said on stderr so far, as far as it is kept. It may be
// called while the child runs.
func (k *child) Tail() string { return k.err.text() }

// sayWait is how long a process may live on without its output, or its input.
const sayWait = time.Second

// ended waits for the reason after the output has ended. A server that only
// closed its output is of no use any more and is stopped.
func (k *child) ended(ctx context.Context) error {
	k.useless("it closed its output")
	select {
	case <-k.gone:
		return k.end
	case <-ctx.Done():
		return ctx.Err()
	}
}

// useless stops a child that broke a pipe but does not exit.
func (k *child) useless(why string) {
	select {
	case <-k.exited:
	case <-k.stopped:
	case <-time.After(sayWait):
		k.stop(why, k.opt.CloseWait)
	}
}

func (k *child) deaf() { k.useless("it closed its input") }

func (k *child) stuck() {
	k.stop(fmt.Sprintf("it did not read its input for %v", k.opt.WriteTimeout), 0)
}

// logWait is how long a log that hangs holds up the end of a session.
const logWait = 500 * time.Millisecond

// Close stops the child and returns when it and its group are gone: its input
// is closed after what is queued, then SIGTERM, then SIGKILL. Messages that it
// wrote until then can still be received.
func (k *child) Close() error {
	k.stop("", k.opt.CloseWait)
	limit := time.NewTimer(k.opt.CloseWait + k.opt.TermWait + 2*k.opt.Linger + 2*killWait)
	defer limit.Stop()
	select {
	case <-k.gone:
	case <-limit.C:
		return fmt.Errorf("stopping the MCP server: process %d does not end, not even by SIGKILL", k.cmd.Process.Pid)
	}
	limit.Reset(logWait)
	select {
	case <-k.logged:
	case <-limit.C:
	}
	return nil
}

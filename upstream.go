package segno

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/upstream/process"
	"github.com/segno-mcp/segno/internal/wire"
)

// Upstream starts connections to an MCP server: a Program, or what Func or
// Remote returns.
type Upstream = session.Upstream

// Conn is a connection to an MCP server.
type Conn = wire.Conn

// Message is a JSON-RPC message as it came, and what is known of it.
type Message = wire.Message

// Program is an MCP server on standard input and output, started once for each
// session, or once for each principal. Set its fields before New.
type Program struct {
	Argv []string // the command and its arguments; no shell is involved
	Env  []string // KEY=VALUE, added to the environment without SEGNO_*
	Dir  string   // working directory; empty: this process's

	running process.Options
}

// Command is the program of a command line.
func Command(argv ...string) *Program { return &Program{Argv: argv} }

func (p *Program) command() *process.Command {
	o := p.running
	o.Argv, o.Env, o.Dir = p.Argv, p.Env, p.Dir
	return process.New(o)
}

// Connect starts the program.
func (p *Program) Connect(ctx context.Context, label string) (Conn, error) {
	return p.command().Connect(ctx, label)
}

// Fingerprint tells the program from others.
func (p *Program) Fingerprint() string { return p.command().Fingerprint() }

// bound gives an upstream what the options say of it.
func bound(u Upstream, o Options) Upstream {
	p, ok := u.(*Program)
	if !ok {
		return u
	}
	mine := *p
	mine.running = process.Options{MaxMessage: o.MaxMessage, Logger: o.Logger}
	return mine.command()
}

// Func is an MCP server in this process. serve is called for each session (or
// each principal, see Options.Process) and speaks MCP as over stdio: one
// message a line, read from in, written to out. It must return when in ends;
// ctx ends at the same time. What it returns is why it ended, and a panic in it
// ends its session only. name tells it from other servers on the same log.
//
// For a server of the official SDK it is one line:
//
//	server.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
func Func(name string, serve func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error) Upstream {
	return &function{name: name, serve: serve}
}

type function struct {
	name  string
	serve func(context.Context, io.ReadCloser, io.WriteCloser) error
}

// funcWait bounds the wait for a function to return after its input has ended.
const funcWait = 5 * time.Second

func (f *function) Fingerprint() string { return "func:" + f.name }

// Connect calls the function in a goroutine of its own.
func (f *function) Connect(context.Context, string) (Conn, error) {
	toServer := newPipe()
	fromServer, toClient := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	c := &called{Conn: wire.NewLineConn(fromServer, writeEnd{toServer}, wire.LineOptions{}), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		err := f.call(ctx, toServer, toClient)
		if err == nil {
			err = io.EOF
		}
		toServer.finish(err, err)
		toClient.CloseWithError(err)
	}()
	return c, nil
}

// call keeps a panic within the session.
func (f *function) call(ctx context.Context, in io.ReadCloser, out io.WriteCloser) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the server panicked: %v\n%s", v, debug.Stack())
		}
	}()
	return f.serve(ctx, in, out)
}

// called is a connection to a function that runs.
type called struct {
	wire.Conn
	cancel context.CancelFunc
	done   chan struct{}
}

// Close ends the function's input and waits for it to return, in bounded time.
func (c *called) Close() error {
	err := c.Conn.Close()
	c.cancel()
	wait := time.NewTimer(funcWait)
	defer wait.Stop()
	select {
	case <-c.done:
		return err
	case <-wait.C:
		return fmt.Errorf("closing the connection: the server did not return within %v", funcWait)
	}
}

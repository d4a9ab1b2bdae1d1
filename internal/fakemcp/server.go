// Package fakemcp is an MCP server for tests: every trouble a real one makes is
// a tool of it. It runs in the test itself, in virtual time too (testing/
// synctest), or as a child process.
//
//	conn, server := fakemcp.Start(t, fakemcp.Options{})
//	conn.Send(ctx, fakemcp.Init("1", wire.Rev2025))
//	conn.Send(ctx, fakemcp.Call("2", "count", `{"n":100}`, `"token"`))
//
// Tools lists what it can do.
package fakemcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// Options say how the server behaves. The zero Options are a good server.
type Options struct {
	// Revision is what initialize answers, whatever was asked for; empty: the
	// one asked for, or 2025-11-25 if that has no sessions.
	Revision string
	// Capabilities is the JSON object of initialize's result; empty: tools,
	// logging, resources with subscribe and prompts, all with list_changed.
	Capabilities string
	// MuteInitialize never answers initialize.
	MuteInitialize bool
	// IgnoreCancel goes on with a call that was cancelled.
	IgnoreCancel bool
	// StringIDs gives the server's own requests ids like "s0"; else they are
	// numbers from 0.
	StringIDs bool
	// QuotedReplies answers with the id as a string where it was a number.
	QuotedReplies bool
	// Stubborn makes a process ignore the end of its input, SIGINT and SIGTERM.
	Stubborn bool
	// RunsFile, if not empty, gets a line for every tool that is run, so that
	// the count outlives the process.
	RunsFile string
	// Exit is what die does; nil: the connection is closed.
	Exit func(code int) `json:"-"`
	// Stderr gets what the tool stderr writes; nil: nowhere.
	Stderr io.Writer `json:"-"`
}

// Server is one server with all it has seen. It may be inspected while it runs.
type Server struct {
	opt Options

	mu       sync.Mutex
	conn     wire.Conn
	raw      io.Writer
	calls    map[string]context.CancelFunc // running, by id
	asked    map[string]chan wire.Message  // own requests, by id
	next     int
	runs     map[string]int
	received []string
	level    string
	subs     map[string]bool
	pause    time.Duration
}

// New makes a server that does not run yet.
func New(opt Options) *Server {
	return &Server{
		opt: opt, calls: map[string]context.CancelFunc{}, asked: map[string]chan wire.Message{},
		runs: map[string]int{}, subs: map[string]bool{},
	}
}

// ServeLines serves on streams, one message a line, until the input ends.
func (s *Server) ServeLines(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	return s.Serve(ctx, s.onLines(in, out))
}

// onLines makes the connection out of two streams.
func (s *Server) onLines(in io.ReadCloser, out io.WriteCloser) wire.Conn {
	shared := &oneByOne{to: out}
	conn := wire.NewLineConn(in, shared, wire.LineOptions{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw, s.conn = shared, conn
	return conn
}

// oneByOne lets one write happen at a time.
type oneByOne struct {
	mu sync.Mutex
	to io.WriteCloser
}

func (w *oneByOne) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

func (w *oneByOne) Close() error { return w.to.Close() }

// Serve serves on a connection until it ends or ctx does, waits for its calls
// and closes the connection. That the other side went away is no error.
func (s *Server) Serve(ctx context.Context, conn wire.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer conn.Close()
	defer cancel()
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	for {
		msgs, err := conn.Recv(ctx)
		var gone *wire.Gone
		if errors.As(err, &gone) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, m := range msgs {
			s.take(ctx, &running, copied(m))
		}
		s.rest(ctx)
	}
}

func copied(m wire.Message) wire.Message {
	m.Raw = bytes.Clone(m.Raw)
	return m
}

// take handles one message; calls run on their own.
func (s *Server) take(ctx context.Context, running *sync.WaitGroup, m wire.Message) {
	s.mu.Lock()
	s.received = append(s.received, string(m.Raw))
	s.mu.Unlock()
	switch {
	case m.Kind == wire.Result || m.Kind == wire.Failure:
		s.answered(m)
	case m.Kind == wire.Notification:
		if m.Method == wire.Cancelled {
			s.cancel(m)
		}
	case m.Method == wire.ToolsCall:
		ctx, cancel := context.WithCancel(ctx)
		s.mu.Lock()
		s.calls[string(m.IDText())] = cancel
		s.mu.Unlock()
		running.Go(func() {
			defer cancel()
			s.run(ctx, m)
		})
	default:
		s.reply(m, s.simple(m))
	}
}

func (s *Server) answered(m wire.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.asked[string(m.IDText())]; c != nil {
		delete(s.asked, string(m.IDText()))
		c <- m
	}
}

func (s *Server) cancel(m wire.Message) {
	at, _ := m.Find("params", "requestId")
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.calls[string(m.Text(at))]; cancel != nil && !s.opt.IgnoreCancel {
		cancel()
	}
}

// answer is a result or, with a code, an error; neither: no answer is given.
type answer struct {
	result  string
	code    int
	message string
}

// simple answers what needs no time.
func (s *Server) simple(m wire.Message) answer {
	switch m.Method {
	case wire.Initialize:
		if s.opt.MuteInitialize {
			return answer{}
		}
		return answer{result: s.hello(m)}
	case wire.Ping:
		return answer{result: `{}`}
	case wire.ToolsList:
		return answer{result: toolList()}
	case wire.SetLevel:
		s.mu.Lock()
		s.level = m.StringAt("params", "level")
		s.mu.Unlock()
		return answer{result: `{}`}
	case wire.Subscribe, wire.Unsubscribe:
		s.mu.Lock()
		s.subs[m.StringAt("params", "uri")] = m.Method == wire.Subscribe
		s.mu.Unlock()
		return answer{result: `{}`}
	case wire.ResourcesList:
		return answer{result: `{"resources":[{"uri":"fake://one","name":"one"}]}`}
	case wire.ResourcesRead:
		return answer{result: `{"contents":[{"uri":"fake://one","text":"1"}]}`}
	case wire.PromptsList:
		return answer{result: `{"prompts":[]}`}
	}
	return answer{code: wire.CodeNoMethod, message: "no method " + m.Method}
}

func (s *Server) hello(m wire.Message) string {
	v := s.opt.Revision
	if v == "" {
		v = m.StringAt("params", "protocolVersion")
		if !wire.KnownRevision(v) || wire.Modern(v) {
			v = wire.Rev2025
		}
	}
	can := s.opt.Capabilities
	if can == "" {
		can = `{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true}}`
	}
	return fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"serverInfo":{"name":"fakemcp","version":"1.0"}}`, v, can)
}

// reply sends an answer to m.
func (s *Server) reply(m wire.Message, a answer) {
	id := m.IDText()
	if s.opt.QuotedReplies && id[0] != '"' {
		id = []byte(strconv.Quote(string(id)))
	}
	switch {
	case a.code != 0:
		s.Send(wire.AppendError(nil, id, a.code, a.message, nil))
	case a.result != "":
		s.Send(wire.AppendResponse(nil, id, []byte(a.result)))
	}
}

// run runs a tool.
func (s *Server) run(ctx context.Context, m wire.Message) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, string(m.IDText()))
	}()
	c := &call{server: s, msg: m, name: m.StringAt("params", "name")}
	if at, _ := m.Find("params", "_meta", "progressToken"); at.Ok() {
		c.token = string(m.Text(at))
	}
	if at, _ := m.Find("params", "arguments"); at.Ok() {
		c.text = string(m.Text(at))
		if err := json.Unmarshal(m.Text(at), &c.args); err != nil {
			s.reply(m, answer{code: wire.CodeParams, message: err.Error()})
			return
		}
	}
	tool, ok := tools[c.name]
	if !ok {
		s.reply(m, answer{code: wire.CodeParams, message: "no tool " + c.name})
		return
	}
	if c.name != "runs" {
		s.count(c.name, c.args.Key)
	}
	a := tool(ctx, c)
	if ctx.Err() == nil {
		s.reply(m, a)
	}
}

// count takes note that a tool runs, under its name and under its key.
func (s *Server) count(name, key string) {
	s.mu.Lock()
	s.runs[name]++
	if key != "" {
		s.runs[key]++
	}
	s.mu.Unlock()
	if s.opt.RunsFile == "" {
		return
	}
	f, err := os.OpenFile(s.opt.RunsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err) // a count that is wrong would hide what the test looks for
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s %s\n", name, key); err != nil {
		panic(err)
	}
}

// rest reads nothing for as long as the tool stall asked for.
func (s *Server) rest(ctx context.Context) {
	s.mu.Lock()
	d := s.pause
	s.pause = 0
	s.mu.Unlock()
	sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

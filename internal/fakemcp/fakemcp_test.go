package fakemcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/segno-mcp/segno/internal/wire"
)

func TestMain(m *testing.M) {
	Main()
	goleak.VerifyTestMain(m)
}

// peer sends to a server and keeps what comes back.
type peer struct {
	t    *testing.T
	conn wire.Conn
	got  []wire.Message
}

func (p *peer) send(msg []byte) {
	p.t.Helper()
	if err := p.conn.Send(p.t.Context(), msg); err != nil {
		p.t.Fatal(err)
	}
}

// next is the next message.
func (p *peer) next() wire.Message {
	p.t.Helper()
	if len(p.got) == 0 {
		msgs, err := p.conn.Recv(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		for _, m := range msgs {
			p.got = append(p.got, copied(m))
		}
	}
	m := p.got[0]
	p.got = p.got[1:]
	return m
}

// want checks that the next messages hold these texts.
func (p *peer) want(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		if m := p.next(); !strings.Contains(string(m.Raw), text) {
			p.t.Fatalf("got %s, want %s", m.Raw, text)
		}
	}
}

// with runs a test against a server in virtual time.
func with(t *testing.T, opt Options, do func(*peer, *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		conn, s := Start(t, opt)
		do(&peer{t: t, conn: conn}, s)
	})
}

func TestTools(t *testing.T) {
	for _, c := range []struct {
		tool, args, token string
		want              []string
	}{
		{"echo", `{"a":9007199254740993}`, "", []string{`"structuredContent":{"a":9007199254740993}`}},
		{"count", `{"n":2,"interval_ms":1000}`, `"tok"`, []string{`{"progressToken":"tok","progress":1,`, `{"progressToken":"tok","progress":2,`, "counted to 2"}},
		{"count", `{"n":2}`, "", []string{"counted to 2"}},
		{"quiet", `{"ms":60000}`, "", []string{`"quiet"`}},
		{"log", `{"n":2,"level":"error"}`, "", []string{`"level":"error","logger":"fake","data":"1 `, `"data":"2 `, "logged"}},
		{"flood", `{"n":3,"size":10}`, `7`, []string{`"progressToken":7`, `2 xxxxxxxxxx"`, `"progress":3`, "flooded"}},
		{"flood", `{"n":1,"size":3}`, ``, []string{`notifications/message`, "flooded"}},
		{"big", `{"size":200000}`, "", []string{strings.Repeat("x", 200000)}},
		{"late", `{"n":1}`, `7`, []string{`"late"`, `"progress":1`}},
		{"twice", ``, "", []string{`"first"`, `"second"`}},
		{"batch", ``, "", []string{`in a batch`, `"batch"`}},
		{"fail", `{"code":-5,"text":"no"}`, "", []string{`"error":{"code":-5,"message":"no"}`}},
		{"wrong", `{"text":"no"}`, "", []string{`"isError":true`}},
		{"changed", `{"text":"tools"}`, "", []string{`notifications/tools/list_changed`, `"changed"`}},
		{"updated", `{"text":"fake://one"}`, "", []string{`"uri":"fake://one"`, `"updated"`}},
		{"garbage", `{"text":"Server v1\n"}`, "", []string{`"garbage"`}},
		{"nosuch", ``, "", []string{`"code":-32602`}},
		{"echo", `[1]`, "", []string{`"code":-32602`}},
	} {
		t.Run(c.tool, func(t *testing.T) {
			with(t, Options{}, func(p *peer, _ *Server) {
				p.send(Call("5", c.tool, c.args, c.token))
				p.want(c.want...)
			})
		})
	}
}

func TestEveryToolIsDescribed(t *testing.T) {
	for name := range tools {
		if Tools[name] == "" {
			t.Errorf("%s is not", name)
		}
	}
	if len(tools) != len(Tools) {
		t.Errorf("%d tools, %d descriptions", len(tools), len(Tools))
	}
	if m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":` + toolList() + `}`)); err != nil || m.Kind != wire.Result {
		t.Error(err)
	}
}

func TestQuietTakesItsTime(t *testing.T) {
	with(t, Options{}, func(p *peer, s *Server) {
		start := time.Now()
		p.send(Call("1", "quiet", `{"ms":3600000,"key":"k"}`, ""))
		p.want("quiet")
		if d := time.Since(start); d != time.Hour {
			t.Errorf("it took %v", d)
		}
		if s.Runs("k") != 1 || s.Runs("quiet") != 1 || s.Runs("other") != 0 {
			t.Error("counted wrongly")
		}
		p.send(Call("2", "runs", `{"key":"k"}`, ""))
		p.want(`"text":"1"`)
	})
}

func TestHandshake(t *testing.T) {
	for _, c := range []struct {
		opt         Options
		asked, want string
	}{
		{Options{}, wire.Rev2025June, `"protocolVersion":"2025-06-18","capabilities":{"tools"`},
		{Options{}, wire.Rev2026, `"protocolVersion":"2025-11-25"`},
		{Options{Revision: wire.Rev2024, Capabilities: `{}`}, wire.Rev2025, `"protocolVersion":"2024-11-05","capabilities":{},`},
	} {
		with(t, c.opt, func(p *peer, s *Server) {
			p.send(Init(`"i"`, c.asked))
			p.want(c.want)
			p.send(Ready())
			p.send(wire.AppendRequest(nil, []byte("1"), wire.SetLevel, []byte(`{"level":"debug"}`)))
			p.send(wire.AppendRequest(nil, []byte("2"), wire.Subscribe, []byte(`{"uri":"u"}`)))
			p.send(wire.AppendRequest(nil, []byte("3"), "no/such", nil))
			p.send(wire.AppendRequest(nil, []byte("4"), wire.ToolsList, nil))
			p.want(`"id":1,"result":{}`, `"id":2,"result":{}`, `"id":3,"error":{"code":-32601`, `"name":"echo"`)
			if s.Level() != "debug" || !s.Subscribed("u") || len(s.Got(wire.Initialized)) != 1 || len(s.Received()) != 6 {
				t.Error("the server saw something else")
			}
		})
	}
}

func TestMuteInitialize(t *testing.T) {
	with(t, Options{MuteInitialize: true}, func(p *peer, _ *Server) {
		p.send(Init("1", wire.Rev2025))
		p.send(wire.AppendRequest(nil, []byte("2"), wire.Ping, nil))
		p.want(`"id":2`)
	})
}

func TestAsk(t *testing.T) {
	for opt, want := range map[*Options][]string{{}: {"0", "1"}, {StringIDs: true}: {`"s0"`, `"s1"`}} {
		with(t, *opt, func(p *peer, s *Server) {
			for _, id := range want {
				p.send(Call("9", "ask", "", ""))
				m := p.next()
				if m.Method != wire.Elicitation || string(m.IDText()) != id {
					t.Fatalf("got %s", m.Raw)
				}
				p.send(wire.AppendResponse(nil, m.IDText(), []byte(`{"action":"accept"}`)))
				p.want(`{\"action\":\"accept\"}`)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	with(t, Options{}, func(p *peer, s *Server) {
		p.send(Call(`"a"`, "hang", "", ""))
		p.send(Call("2", "count", `{"n":100,"interval_ms":1000}`, ""))
		synctest.Wait()
		if s.Running() != 2 {
			t.Errorf("%d run", s.Running())
		}
		p.send(Cancel(`"a"`))
		p.send(Cancel("2"))
		synctest.Wait()
		if s.Running() != 0 {
			t.Errorf("%d still run", s.Running())
		}
		p.send(wire.AppendRequest(nil, []byte("3"), wire.Ping, nil))
		p.want(`"id":3`)
	})
	with(t, Options{IgnoreCancel: true}, func(p *peer, _ *Server) {
		p.send(Call("1", "quiet", `{"ms":1000}`, ""))
		synctest.Wait()
		p.send(Cancel("1"))
		p.want("quiet")
	})
}

func TestDie(t *testing.T) {
	with(t, Options{}, func(p *peer, _ *Server) {
		p.send(Call("1", "die", `{"ms":1000,"text":"{\"half"}`, ""))
		_, err := p.conn.Recv(p.t.Context())
		var gone *wire.Gone
		if !errors.As(err, &gone) {
			t.Errorf("got %v", err)
		}
	})
}

func TestStall(t *testing.T) {
	with(t, Options{}, func(p *peer, s *Server) {
		ping := func(id string) { p.send(wire.AppendRequest(nil, []byte(id), wire.Ping, nil)) }
		p.send(Call("1", "stall", `{"ms":60000}`, ""))
		p.want("stalled")
		ping("2")
		p.want(`"id":2`)
		start := time.Now()
		ping("3")
		p.want(`"id":3`)
		if d := time.Since(start); d != time.Minute {
			t.Errorf("it read again after %v", d)
		}
	})
}

func TestQuotedReplies(t *testing.T) {
	with(t, Options{QuotedReplies: true}, func(p *peer, _ *Server) {
		p.send(Call("1", "quiet", "", ""))
		p.want(`"id":"1"`)
	})
}

func TestTestDrivesTheServer(t *testing.T) {
	with(t, Options{}, func(p *peer, s *Server) {
		if err := errors.Join(s.Changed("prompts"), s.Raw("noise\n"), s.Notify("x/y", "[1]")); err != nil {
			t.Fatal(err)
		}
		p.want("notifications/prompts/list_changed", `"method":"x/y","params":[1]`)
	})
	if New(Options{}).Notify("x", "") == nil || New(Options{}).Raw("x") == nil {
		t.Error("a server that does not run takes something")
	}
}

func TestServeOnAPair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := wire.Pair()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- New(Options{}).Serve(ctx, b) }()
		p := &peer{t: t, conn: a}
		p.send(Call("1", "hang", "", ""))
		p.send(Call("2", "garbage", `{"text":"x"}`, ""))
		p.want(`"id":2,"error"`)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// process starts a server as a child.
func process(t *testing.T, opt Options) (*peer, *exec.Cmd) {
	t.Helper()
	argv, env := Command(opt)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn := wire.NewLineConn(out, in, wire.LineOptions{})
	t.Cleanup(func() { conn.Close() })
	return &peer{t: t, conn: conn}, cmd
}

func TestProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs")
	for range 2 {
		p, cmd := process(t, Options{RunsFile: file, Revision: wire.Rev2025June})
		p.send(Init("1", wire.Rev2025))
		p.want(wire.Rev2025June)
		p.send(Call("2", "env", "", ""))
		p.want(fmt.Sprintf(`"text":"%d"`, cmd.Process.Pid))
		p.send(Call("3", "quiet", `{"key":"k"}`, ""))
		p.want("quiet")
		p.send(Call("4", "die", `{"code":3}`, ""))
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
			t.Errorf("got %v", err)
		}
	}
	for key, want := range map[string]int{"k": 2, "die": 2, "nothing": 0} {
		if n, err := FileRuns(file, key); err != nil || n != want {
			t.Errorf("%s ran %d times, %v", key, n, err)
		}
	}
	if n, err := FileRuns(file+"none", "k"); n != 0 || err != nil {
		t.Error(n, err)
	}
}

func TestProcessEndsWithItsInput(t *testing.T) {
	p, cmd := process(t, Options{})
	p.send(Call("1", "hang", "", ""))
	p.conn.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestStubbornProcessMustBeKilled(t *testing.T) {
	p, cmd := process(t, Options{Stubborn: true})
	p.send(Call("1", "quiet", "", ""))
	p.want("quiet")
	p.conn.Close()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	cmd.Process.Signal(os.Interrupt)
	select {
	case err := <-done:
		t.Fatalf("it ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	cmd.Process.Kill()
	<-done
}

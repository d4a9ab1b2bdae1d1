package session

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/wire"
)

func TestField68_ADeadServerEndsItsCallsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		srv.progress(srv.recv(), 1)
		began := time.Now()
		srv.c.Close()
		got := b.answers(s, c)
		if len(got) != 2 || time.Since(began) > time.Second {
			t.Fatalf("after %v: %q", time.Since(began), got)
		}
		contains(t, got[1], `"id":1,"error"`, `"outcome":"unknown"`, "closed by the other side")
		c = b.tool(s, `2`)
		again := b.server()
		again.greet()
		again.answer(again.recv(), `{}`)
		same(t, b.answers(s, c), `{"jsonrpc":"2.0","id":2,"result":{}}`)
	})
}

func TestANewChildIsToldAllThatTheClientSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		for i, text := range []string{
			`"logging/setLevel","params":{"level":"error"}`,
			`"resources/subscribe","params":{"uri":"a:1"}`,
			`"resources/subscribe","params":{"uri":"b:\"2\""}`,
			`"resources/subscribe","params":{"uri":"c:3"}`,
			`"resources/unsubscribe","params":{"uri":"a:1"}`,
		} {
			c := b.call(s, `{"jsonrpc":"2.0","id":%d,"method":%s}`, i+1, text)
			var m wire.Message
			for m.Kind != wire.Request {
				m = srv.recv()
			}
			if i == 3 {
				srv.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"no"}}`, m.IDText())
			} else {
				srv.answer(m, `{}`)
			}
			b.answers(s, c)
		}
		if got := srv.pending(); got != nil {
			t.Errorf("the server got %s", got)
		}
		srv.c.Close()
		synctest.Wait()
		b.tool(s, `"x"`)
		again := b.server()
		m := again.recv()
		contains(t, string(m.Raw), `"method":"initialize"`, `"protocolVersion":"2025-11-25"`, `"clientInfo":{"name":"t"`)
		if got := again.pending(); got != nil {
			t.Errorf("before initialize is answered the server got %s", got)
		}
		again.answer(m, `{"protocolVersion":"2025-11-25","capabilities":{"logging":{}}}`)
		contains(t, string(again.recv().Raw), "notifications/initialized")
		for _, want := range []string{`"logging/setLevel","params":{"level":"error"}`, `"resources/subscribe","params":{"uri":"b:\"2\""}`} {
			m := again.recv()
			contains(t, string(m.Raw), want)
			again.answer(m, `{}`)
		}
		contains(t, string(again.recv().Raw), `"tools/call"`)
		if got := again.pending(); got != nil {
			t.Errorf("the server got %s", got)
		}
	})
}

func TestField68_ACrashLoopIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		srv.c.Close()
		synctest.Wait()
		b.d.fail.Store(&wire.Gone{Reason: "exit status 3", Tail: "no licence"})
		for i := range breakerExits - 1 {
			got := b.answers(s, b.call(s, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, i+1))
			contains(t, got[0], `"outcome":"not executed"`, "exit status 3", "no licence")
		}
		dials := b.d.dials.Load()
		for i := range 10 {
			_, err := s.Call(t.Context(), message(t, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, i+20), CallOptions{})
			var r *Refusal
			if !errors.As(err, &r) || r.Limit != "child-exits" || r.Detail != "no licence" || r.RetryAfter <= 0 {
				t.Fatalf("the call was answered with %#v", err)
			}
		}
		if got := b.d.dials.Load(); got != dials {
			t.Errorf("%d more children were started", got-dials)
		}
		b.d.fail.Store(nil)
		time.Sleep(breakerWindow)
		c := b.tool(s, `99`)
		srv = b.server()
		srv.greet()
		srv.answer(srv.recv(), `{}`)
		same(t, b.answers(s, c), `{"jsonrpc":"2.0","id":99,"result":{}}`)
	})
}

func TestField69_AServerThatNeverAnswersInitialize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{StartTimeout: 5 * time.Second}})
		began := time.Now()
		s, c := b.create("anon")
		call := b.tool(s, `1`)
		srv := b.server()
		got := b.answers(s, c)
		contains(t, got[0], `"id":0`, `"error"`, "did not answer initialize within 5s")
		contains(t, b.answers(s, call)[0], `"id":1`, `"outcome":"not executed"`)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		srv.recv() // initialize
		if _, err := srv.c.Recv(t.Context()); err == nil {
			t.Error("the server was not stopped")
		}
		time.Sleep(doomAfter + time.Second)
		if n := len(b.m.InMemory()); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

func TestField69_AServerThatDoesNotStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{StartTimeout: 5 * time.Second}})
		b.d.fail.Store(&wire.Gone{Reason: "no such command", Tail: "npx: not found"})
		s, c := b.create("anon")
		contains(t, b.answers(s, c)[0], `"error"`, "no such command", "npx: not found")
		b.d.fail.Store(nil)
		b.d.hang.Store(true)
		_, c2 := b.create("anon")
		began := time.Now()
		s2 := b.m.all()
		for _, s := range s2 {
			if s.keptOf(c2.Stream) != nil {
				contains(t, b.answers(s, c2)[0], `"error"`)
			}
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestEndDoesNotWaitForAServerThatStarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		b.d.hang.Store(true)
		s, _ := b.create("anon")
		synctest.Wait()
		began := time.Now()
		if err := s.End(t.Context(), "DELETE"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

func TestARefusedInitializeEndsTheSessionSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, c := b.create("anon")
		srv := b.server()
		m := srv.recv()
		srv.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"unsupported","data":{"supported":["2024-11-05"]}}}`, m.IDText())
		same(t, b.answers(s, c), `{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"unsupported","data":{"supported":["2024-11-05"]}}}`)
		synctest.Wait()
		if _, err := srv.c.Recv(t.Context()); err == nil {
			t.Error("the server was not stopped")
		}
		if _, err := b.m.Open(t.Context(), "anon", s.ID()); err != nil {
			t.Errorf("the session is gone before its client could read why: %v", err)
		}
		time.Sleep(doomAfter + time.Second)
		if _, err := b.m.Open(t.Context(), "anon", s.ID()); err == nil {
			t.Error("the session lives on")
		}
	})
}

func TestAServerThatAnswersWithAVersionWithoutSessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, c := b.create("anon")
		srv := b.server()
		srv.answer(srv.recv(), `{"protocolVersion":"2026-07-28","capabilities":{"tools":{}},"x":[1.10]}`)
		got := b.answers(s, c)[0]
		contains(t, got, `"protocolVersion":"2025-11-25"`, `"tools":{}`, `"x":[1.10]`)
		if s.Version() != wire.Rev2025 {
			t.Errorf("the session is of %q", s.Version())
		}
	})
}

func TestWhatInitializeIsAnsweredWith(t *testing.T) {
	const segno = `"segno":{"onGap":["oldest","live","error"],"ack":true,"keep":true}`
	for _, c := range []struct{ in, want string }{
		{`{}`, `{"logging":{},"experimental":{` + segno + `}}`},
		{`{"tools":{}}`, `{"logging":{},"experimental":{` + segno + `},"tools":{}}`},
		{`{"logging":{},"experimental":{"a":{}, "segno" : {"ack":false} }}`, `{"logging":{},"experimental":{"a":{}, "segno" : {"onGap":["oldest","live","error"],"ack":true,"keep":true} }}`},
		{`{"logging":{"a":1},"experimental":{}}`, `{"logging":{"a":1},"experimental":{` + segno + `}}`},
		{`{ "experimental": {"b":{}}, "logging":{}}`, `{ "experimental": {` + segno + `,"b":{}}, "logging":{}}`},
	} {
		msg := message(t, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":%s}}`, c.in)
		raw, added := advertise(msg, "2025-06-18")
		want := `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":` + c.want + `}}`
		if string(raw) != want {
			t.Errorf("got  %s\nwant %s", raw, want)
		}
		if added == strings.Contains(c.in, "logging") {
			t.Errorf("%s: logging added: %v", c.in, added)
		}
	}
}

func TestAServerThatDoesNotListenHoldsUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		gate := make(chan struct{})
		b.d.gate.Store(&gate)
		for i := range 3 {
			srv.send(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)
		}
		srv.answer(m, `{}`)
		same(t, b.answers(s, c), `{"jsonrpc":"2.0","id":1,"result":{}}`)
		close(gate)
		same(t, srv.pending(), `{"jsonrpc":"2.0","id":0,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":2,"result":{}}`)
	})
}

func TestClosingEndsWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		srv.recv()
		r := s.AttachCall(c, Oldest)
		b.m.Drain()
		if _, _, err := b.m.Create(t.Context(), "anon", message(t, initText), ClientInfo{}); err == nil {
			t.Error("a session was opened while draining")
		}
		if err := b.m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := collect(t, r)
		r.Close()
		if len(got) != 1 {
			t.Fatalf("the client got %q", got)
		}
		contains(t, got[0], `"outcome":"unknown"`, "shut down")
	})
}

// An initialize that ends without the server's word holds up nobody who waits
// for the handshake.
func TestAnInitializeThatIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{CallTimeout: time.Second}})
		began := time.Now()
		s, c := b.create("anon")
		srv := b.server()
		srv.recv()
		call := b.tool(s, `1`)
		contains(t, b.answers(s, c)[0], `"id":0,"error"`, "call-timeout")
		contains(t, b.answers(s, call)[0], `"id":1,"error"`, `"outcome":"not executed"`)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
		if !srv.isGone() {
			t.Error("the server was not stopped")
		}
		_, err := s.Call(t.Context(), message(t, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`), CallOptions{})
		if !errors.Is(err, eventlog.ErrNoSession) || b.d.dials.Load() != 1 {
			t.Errorf("a call without a handshake: %v, %d servers were started", err, b.d.dials.Load())
		}
	})
}

// faulty is a connection whose other end the test plays, and that fails as told.
type faulty struct {
	wire.Conn
	refuse atomic.Bool   // takes no messages
	slow   time.Duration // to close
	end    *wire.Gone

	closing sync.Once
}

func (f *faulty) Connect(context.Context, string) (wire.Conn, error) { return f, nil }
func (f *faulty) Fingerprint() string                                { return "faulty" }
func (f *faulty) Tail() string                                       { return "loading\nno licence\n" }

func (f *faulty) Send(ctx context.Context, msg []byte) error {
	if f.refuse.Load() {
		return &wire.Gone{Reason: "it takes no more messages"}
	}
	return f.Conn.Send(ctx, msg)
}

func (f *faulty) Recv(ctx context.Context) ([]wire.Message, error) {
	msgs, err := f.Conn.Recv(ctx)
	var gone *wire.Gone
	if errors.As(err, &gone) {
		return nil, f.end
	}
	return msgs, err
}

func (f *faulty) Close() error {
	f.closing.Do(func() { time.Sleep(f.slow) })
	return f.Conn.Close()
}

func newFaulty(t *testing.T, o Options) (*bench, *faulty, *server) {
	t.Helper()
	ours, theirs := wire.Pair()
	f := &faulty{Conn: ours, end: &wire.Gone{Reason: "exit status 3", Tail: "loading\nno licence\n"}}
	o.Upstream, o.Log = f, memlog.New()
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, m: m}
	t.Cleanup(b.close)
	return b, f, &server{t: t, c: theirs}
}

// A server that exits takes no messages a little before it is known why.
func TestField69_HowAServerEndedIsSaidWhenItTookNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, f, srv := newFaulty(t, Options{})
		f.refuse.Store(true)
		time.AfterFunc(time.Second, func() { srv.c.Close() })
		s, c := b.create("anon")
		got := message(t, "%s", b.answers(s, c)[0]).StringAt("error", "message")
		if got != "not executed: the MCP server did not get through initialize: exit status 3: no licence" {
			t.Errorf("initialize got %q", got)
		}
	})
	bubble(t, func(t *testing.T) {
		b, f, srv := newFaulty(t, Options{})
		s, c := b.create("anon")
		srv.greet()
		b.answers(s, c)
		c = b.tool(s, `1`)
		srv.recv()
		f.refuse.Store(true)
		c2 := b.tool(s, `2`)
		time.AfterFunc(time.Second, func() { srv.c.Close() })
		contains(t, b.answers(s, c)[0], "outcome unknown: ", "exit status 3: no licence")
		contains(t, b.answers(s, c2)[0], "not executed: ", "exit status 3: no licence")
	})
}

// The same where the handshake is repeated, and where the exit is noticed first.
func TestField69_HowAServerEndedIsSaidAfterARestart(t *testing.T) {
	for _, refuses := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			b, f, srv := newFaulty(t, Options{})
			s, c := b.create("anon")
			srv.greet()
			b.answers(s, c)
			srv.c.Close()
			synctest.Wait()
			f.Conn, srv.c = wire.Pair()
			f.refuse.Store(refuses)
			time.AfterFunc(time.Second, func() { srv.c.Close() })
			got := message(t, "%s", b.answers(s, b.tool(s, `1`))[0]).StringAt("error", "message")
			if got != "not executed: the MCP server is gone: exit status 3: no licence" {
				t.Errorf("refuses %v: the call got %q", refuses, got)
			}
		})
	}
}

func TestAServerThatTakesNothingAndLivesOnIsStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, f, srv := newFaulty(t, Options{})
		f.refuse.Store(true)
		s, c := b.create("anon")
		contains(t, b.answers(s, c)[0], "not executed: ", "it takes no more messages")
		if !srv.isGone() {
			t.Error("the server was not stopped")
		}
	})
}

// The client hears at the limit, however long it takes to end the server.
func TestField69_TheLimitOfAStartIsTheClientsWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		logs := &strings.Builder{}
		b, f, _ := newFaulty(t, Options{Limits: Limits{StartTimeout: 2 * time.Second}, Logger: slog.New(slog.NewTextHandler(logs, nil))})
		f.slow = 3 * time.Second
		began := time.Now()
		s, c := b.create("anon")
		call := b.tool(s, `1`)
		contains(t, b.answers(s, c)[0], "did not answer initialize within 2s: no licence")
		contains(t, b.answers(s, call)[0], "not executed: ", "did not answer initialize within 2s: no licence")
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		ends := 0
		for line := range strings.Lines(logs.String()) {
			if strings.Contains(line, "MCP server") {
				ends++
				contains(t, line, "level=WARN", "session="+s.Public(), `msg="the MCP server ended"`, `why="it did not answer initialize within 2s"`, `exit="exit status 3"`, "lived=5s", "no licence")
			}
		}
		if ends != 1 {
			t.Errorf("its end is told %d times:\n%s", ends, logs)
		}
	})
}

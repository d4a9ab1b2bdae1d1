package session

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/metric"
)

// joined opens a second session on a shared server.
func (b *bench) joined(principal string) *Session {
	b.t.Helper()
	s, c := b.create(principal)
	got := b.answers(s, c)
	if len(got) != 1 {
		b.t.Fatalf("initialize was answered with %q", got)
	}
	return s
}

func TestField81_91_EqualIdsAndTokensOnASharedServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Shared: true})
		s1, srv := b.open()
		s2 := b.joined("anon")
		c1, c2 := b.tool(s1, `1`), b.tool(s2, `1`)
		m1, m2 := srv.recv(), srv.recv()
		srv.progress(m2, 2)
		srv.progress(m1, 1)
		srv.answer(m1, `{"of":1}`)
		srv.progress(m2, 22)
		srv.answer(m2, `{"of":2}`)
		line := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}`
		same(t, b.answers(s1, c1), fmt.Sprintf(line, 1), `{"jsonrpc":"2.0","id":1,"result":{"of":1}}`)
		same(t, b.answers(s2, c2), fmt.Sprintf(line, 2), fmt.Sprintf(line, 22), `{"jsonrpc":"2.0","id":1,"result":{"of":2}}`)
	})
}

func TestASecondInitializeIsAnsweredFromTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Shared: true})
		s1, c1 := b.create("anon")
		s2, c2 := b.m.mustCreate(t, "anon", `{"jsonrpc":"2.0","id":"other","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}`)
		srv := b.server()
		m := srv.recv()
		if got := srv.pending(); got != nil {
			t.Errorf("the server got %s", got)
		}
		srv.answer(m, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s"}}`)
		const caps = `{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"experimental":{"segno":{"onGap":["oldest","live","error"],"ack":true,"keep":true}}},"serverInfo":{"name":"s"}}`
		same(t, b.answers(s1, c1), `{"jsonrpc":"2.0","id":0,"result":`+caps+`}`)
		same(t, b.answers(s2, c2), `{"jsonrpc":"2.0","id":"other","result":`+caps+`}`)
		for _, s := range []*Session{s1, s2} {
			if s.Version() != "2025-11-25" || !s.addsLogging() {
				t.Errorf("a session of %q, logging added: %v", s.Version(), s.addsLogging())
			}
			b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		}
		same(t, srv.pending(), `{"jsonrpc":"2.0","method":"notifications/initialized"}`)

		// After the server ended, the handshake is made again once, and joined.
		srv.c.Close()
		synctest.Wait()
		b.tool(s2, `7`)
		again := b.server()
		again.answer(again.recv(), `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"new"}}`)
		synctest.Wait()
		s3, c3 := b.create("anon")
		got := b.answers(s3, c3)
		contains(t, got[0], `"id":0`, `"result"`, `"name":"new"`)
	})
}

func (m *Manager) mustCreate(t *testing.T, principal, text string) (*Session, *Call) {
	t.Helper()
	s, c, err := m.Create(t.Context(), principal, message(t, "%s", text), ClientInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func TestField90_ASharedServerCannotAsk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Shared: true})
		s1, srv := b.open()
		s2 := b.joined("anon")
		b.tool(s2, `1`)
		srv.recv()
		srv.send(`{"jsonrpc":"2.0","id":3,"method":"elicitation/create","params":{}}`)
		srv.send(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		got := srv.pending()
		if len(got) != 2 {
			t.Fatalf("the server got %q", got)
		}
		contains(t, got[0], `"id":3`, "-32601")
		contains(t, got[1], `"id":4,"result":{}`)
		if len(s1.asks)+len(s2.asks) != 0 {
			t.Error("a client was asked")
		}
	})
}

func TestASharedServersNotificationsReachEverySession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Shared: true})
		s1, srv := b.open()
		s2 := b.joined("anon")
		_, other := b.openAs("somebody else")
		c := b.tool(s2, `1`)
		srv.recv()
		srv.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		srv.send(logLine, "of the only call")
		synctest.Wait()
		if got := b.stat(s2, c.Stream).Top; got != 2 {
			t.Errorf("the call's stream is at %d", got)
		}
		for _, s := range []*Session{s1, s2} {
			r := s.AttachOwn(Oldest)
			got, _ := now(t, r)
			r.Close()
			same(t, got, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
		if got := other.pending(); got != nil {
			t.Errorf("somebody else's server got %s", got)
		}
	})
}

func TestField72_ASharedServerOutlivesOneOfItsSessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTally()
		b := newBench(t, Options{Shared: true, Meter: n})
		s1, srv := b.open()
		s2 := b.joined("anon")
		b.tool(s1, `1`)
		m1 := srv.recv()
		c2 := b.tool(s2, `1`)
		m2 := srv.recv()
		if err := s1.End(t.Context(), "DELETE"); err != nil {
			t.Fatal(err)
		}
		same(t, srv.pending(), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+string(m1.IDText())+`,"reason":"the session ended"}}`)
		srv.answer(m1, `{}`)
		srv.answer(m2, `{}`)
		same(t, b.answers(s2, c2), `{"jsonrpc":"2.0","id":1,"result":{}}`)
		if open := n.of(metric.StreamsOpen); open != 0 {
			t.Errorf("%d calls are counted as running", open)
		}
		s3 := b.joined("anon")
		if err := s2.End(t.Context(), "DELETE"); err != nil {
			t.Fatal(err)
		}
		if err := s3.End(t.Context(), "DELETE"); err != nil {
			t.Fatal(err)
		}
		if got := n.of(metric.ChildrenRunning); got != 0 {
			t.Errorf("%d children run on", got)
		}
		// The next session starts a new one.
		s4, c4 := b.create("anon")
		b.server().greet()
		b.answers(s4, c4)
	})
}

func TestARefusedInitializeOfASharedServerPoisonsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Shared: true})
		s1, c1 := b.create("anon")
		s2, c2 := b.create("anon")
		srv := b.server()
		m := srv.recv()
		srv.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"not you"}}`, m.IDText())
		contains(t, b.answers(s1, c1)[0], "not you")
		contains(t, b.answers(s2, c2)[0], `"error"`)
		synctest.Wait()
		s3, c3 := b.create("anon")
		b.server().greet()
		contains(t, b.answers(s3, c3)[0], `"result"`)
	})
}

func TestASharedHandshakeOutlivesTheSessionThatBeganIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Shared: true})
		s1, _ := b.create("anon")
		s2, c2 := b.create("anon")
		srv := b.server()
		m := srv.recv()
		if err := s1.End(t.Context(), "DELETE"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		srv.answer(m, `{"protocolVersion":"2025-11-25","capabilities":{"logging":{}}}`)
		contains(t, b.answers(s2, c2)[0], `"id":0,"result"`)
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

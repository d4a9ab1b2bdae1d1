package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/metric"
)

const logLine = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%q}}`

func TestField29_WhatNobodyHearsIsKeptForTheFirstGet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		srv.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		srv.send(logLine, "a")
		time.Sleep(2 * time.Second)
		r := s.AttachOwn(Oldest)
		defer r.Close()
		got, last := now(t, r)
		same(t, got, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, fmt.Sprintf(logLine, "a"))
		if !last.Wait || !r.Own() || r.Running() {
			t.Errorf("then %+v", last)
		}
	})
}

// TestWhereAMessageGoes is the table of design.md, section 5.
func TestWhereAMessageGoes(t *testing.T) {
	for _, c := range []struct {
		name          string
		calls         int
		own           bool // somebody is connected to the session's own stream
		ask           bool
		connected     []int // calls with a connection, oldest connection first; a negative one takes the outcome alone
		message, want string
	}{
		{"no call", 0, false, false, nil, fmt.Sprintf(logLine, "x"), "own"},
		{"one call", 1, true, false, nil, fmt.Sprintf(logLine, "x"), "1"},
		{"own connected", 3, true, false, []int{1}, fmt.Sprintf(logLine, "x"), "own"},
		{"newest connected call", 3, false, false, []int{2, 1}, fmt.Sprintf(logLine, "x"), "2"},
		{"only outcomes are taken", 1, false, false, []int{-1}, fmt.Sprintf(logLine, "x"), "own"},
		{"only outcomes of one are taken", 3, false, false, []int{1, -3}, fmt.Sprintf(logLine, "x"), "1"},
		{"request, only the outcome is taken", 1, true, true, []int{-1}, `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`, "own"},
		{"request by its task, only the outcome is taken", 2, true, true, []int{-1}, `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}`, "own"},
		{"nobody connected", 3, false, false, nil, fmt.Sprintf(logLine, "x"), "own"},
		{"related task", 3, true, false, nil, `{"jsonrpc":"2.0","method":"notifications/message","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t2"}}}}`, "2"},
		{"unknown task", 3, true, false, nil, `{"jsonrpc":"2.0","method":"notifications/message","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t9"}}}}`, "own"},
		{"list changed", 1, false, false, []int{1}, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, "own"},
		{"resource updated", 1, false, false, []int{1}, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:"}}`, "own"},
		{"unknown method", 1, false, false, nil, `{"jsonrpc":"2.0","method":"notifications/of/its/own","params":[]}`, "1"},
		{"request of one call", 1, true, true, nil, `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`, "1"},
		{"request, several calls", 2, true, true, nil, `{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}`, "own"},
		{"request by its task", 2, true, true, nil, `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}`, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newBench(t, Options{})
				s, srv := b.open()
				streams := map[string]string{"own": s.rec.Own}
				var calls []*Call
				for i := range c.calls {
					call := b.call(s, `{"jsonrpc":"2.0","id":%d,"method":"tasks/result","params":{"taskId":"t%d"}}`, i+1, i+1)
					srv.recv()
					calls = append(calls, call)
					streams[fmt.Sprint(i+1)] = call.Stream
				}
				if c.own {
					defer s.AttachOwn(Oldest).Close()
				}
				for _, i := range c.connected {
					attach := s.AttachCall
					if i < 0 {
						i, attach = -i, s.AttachOutcome
					}
					defer attach(calls[i-1], Oldest).Close()
				}
				srv.send("%s", c.message)
				synctest.Wait()
				for name, stream := range streams {
					if top := b.stat(s, stream).Top; top != 1 && name != c.want || top != 2 && name == c.want {
						t.Errorf("the stream of %s is at %d", name, top)
					}
				}
				if asks := len(s.asks); asks != 0 != c.ask {
					t.Errorf("%d requests wait", asks)
				}
			})
		})
	}
}

// TestTheServersOrderIsKept: what was written before an outcome leaves before it.
func TestTheServersOrderIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		for round := range 20 {
			c := b.tool(s, fmt.Sprint(round+1))
			m := srv.recv()
			var want []string
			for i := range 50 {
				srv.progress(m, i)
				srv.send(logLine, fmt.Sprint(i))
				want = append(want, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":%d}}`, round+1, i), fmt.Sprintf(logLine, fmt.Sprint(i)))
			}
			srv.answer(m, `{}`)
			same(t, b.answers(s, c), append(want, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, round+1))...)
		}
	})
}

// asked is the id that a request of the server has towards the client.
func asked(t *testing.T, text string) string {
	t.Helper()
	return string(message(t, "%s", text).IDText())
}

func TestAskAndAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTally()
		b := newBench(t, Options{Meter: n})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		seen := map[string]bool{}
		r := s.AttachCall(c, Oldest)
		for _, theirs := range []string{`1`, `"1"`, `0`, `1`} {
			srv.send(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"a":1.10}}`, theirs)
			got, _ := now(t, r)
			if len(got) != 1 {
				t.Fatalf("the client got %q", got)
			}
			id := asked(t, got[0])
			if seen[id] || !strings.HasPrefix(id, `"segno-`) {
				t.Errorf("the client was asked as %s", id)
			}
			seen[id] = true
			contains(t, got[0], `"params":{"a":1.10}`)
			b.deliver(s, `{"jsonrpc":"2.0","id":%s,"result":{"b":2.20}}`, id)
			b.deliver(s, `{"jsonrpc":"2.0","id":%s,"result":{"late":1}}`, id)
			same(t, srv.pending(), `{"jsonrpc":"2.0","id":`+theirs+`,"result":{"b":2.20}}`)
		}
		b.deliver(s, `{"jsonrpc":"2.0","id":"segno-9-9","result":{}}`)
		if got := n.of(metric.Dropped); got != 5 {
			t.Errorf("%d late answers counted, want 5", got)
		}
		srv.progress(m, 1)
		synctest.Wait()
		// Answered ones are not replayed, and are no hole.
		again := b.resume(s, b.cursor(s, c.Stream, 1), Oldest)
		got, _ := now(t, again.Reader)
		if again.Result != Exact || len(got) != 1 || !strings.Contains(got[0], "progress") {
			t.Errorf("%s: %q", again.Result, got)
		}
		again.Reader.Close()
		r.Close()
	})
}

func TestAnOpenRequestIsReplayedUntilItIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		srv.recv()
		srv.send(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}`)
		for range 2 {
			r := s.AttachCall(c, Oldest)
			if got, _ := now(t, r); len(got) != 1 {
				t.Errorf("the client got %q", got)
			}
			r.Close()
		}
	})
}

func TestAnAskWaitsForAnAbsentClientOnlySoLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		srv.recv()
		r := s.AttachCall(c, Oldest)
		r.Close()
		time.Sleep(8 * time.Minute) // absent before it was asked: that does not count
		srv.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		time.Sleep(9 * time.Minute)
		r = s.AttachCall(c, Oldest)
		got, _ := now(t, r)
		id := asked(t, got[0])
		time.Sleep(time.Hour) // present: it waits as long as the client does
		if got := srv.pending(); got != nil {
			t.Fatalf("the server got %s", got)
		}
		r.Close()
		time.Sleep(10*time.Minute - time.Second)
		if got := srv.pending(); got != nil {
			t.Fatalf("the server got %s", got)
		}
		time.Sleep(2 * time.Second)
		got = srv.pending()
		if len(got) != 1 {
			t.Fatalf("the server got %q", got)
		}
		contains(t, got[0], `"id":"q"`, `"error"`, "nobody was there to answer for 10m0s")
		b.deliver(s, `{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
		if got := srv.pending(); got != nil {
			t.Errorf("a late answer reached the server: %s", got)
		}
		r = s.AttachCall(c, Oldest)
		got, _ = now(t, r)
		r.Close()
		if len(got) != 1 {
			t.Fatalf("the client got %q", got)
		}
		contains(t, got[0], "notifications/cancelled", `"requestId":`+id)
	})
}

// Who takes an outcome alone, as JSON, cannot be asked: that is an absence. It
// is no orphan.
func TestAnAskDoesNotWaitForWhoTakesOnlyTheOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		srv.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		synctest.Wait()
		time.Sleep(4 * time.Minute)
		r := s.AttachOutcome(c, Oldest)
		defer r.Close()
		time.Sleep(6*time.Minute - time.Second)
		if got := srv.pending(); got != nil {
			t.Fatalf("the server got %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := srv.pending(); len(got) != 1 || !strings.Contains(got[0], "nobody was there to answer for 10m0s") {
			t.Fatalf("the server got %q", got)
		}
		time.Sleep(2 * time.Hour)
		srv.answer(m, `{}`)
		got := collect(t, r)
		if last := got[len(got)-1]; last != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("the client got %s", last)
		}
	})
}

func TestAnAskIsTakenBack(t *testing.T) {
	ask := `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`
	for name, end := range map[string]func(*bench, *Session, *server, string){
		"by the server": func(_ *bench, _ *Session, srv *server, _ string) {
			srv.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q","reason":"never mind"}}`)
		},
		"as the server ends": func(_ *bench, _ *Session, srv *server, _ string) { srv.c.Close() },
		"as its call ends": func(_ *bench, _ *Session, srv *server, inner string) {
			srv.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, inner)
		},
		"as its call is cancelled": func(b *bench, s *Session, _ *server, _ string) {
			b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newBench(t, Options{})
				s, srv := b.open()
				c := b.tool(s, `1`)
				m := srv.recv()
				srv.send("%s", ask)
				r := s.AttachCall(c, Oldest)
				defer r.Close()
				got, _ := now(t, r)
				id := asked(t, got[0])
				end(b, s, srv, string(m.IDText()))
				got, _ = now(t, r)
				if len(got) == 0 {
					t.Fatal("the client was told nothing")
				}
				contains(t, got[0], "notifications/cancelled", `"requestId":`+id)
				if n := len(s.asks) + c.st.waits + len(c.st.open); n != 0 {
					t.Errorf("%d traces of it are left", n)
				}
			})
		})
	}
}

// An ask that is settled before its request is in the log is not sent again
// and again to whoever connects.
func TestAnAskThatIsOverBeforeItWasWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		srv.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		srv.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`)
		srv.progress(m, 1)
		synctest.Wait()
		r := s.AttachCall(c, Oldest)
		defer r.Close()
		got, _ := now(t, r)
		if len(got) != 2 || !strings.Contains(got[0], "notifications/cancelled") {
			t.Errorf("the client got %q", got)
		}
	})
}

package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/wire"
)

// afterCrash opens the session in another process on the same log. The first
// one is as good as dead: it holds no fence any more.
func (b *bench) afterCrash(s *Session) (*bench, *Session) {
	b.t.Helper()
	b2 := newBench(b.t, Options{Log: b.m.log})
	s2, err := b2.m.Open(b.t.Context(), s.rec.Principal, s.ID())
	if err != nil {
		b.t.Fatal(err)
	}
	return b2, s2
}

// reopen is the session as its client's next request finds it.
func (b *bench) reopen(s *Session) *Session {
	b.t.Helper()
	again, err := b.m.Open(b.t.Context(), s.rec.Principal, s.ID())
	if err != nil {
		b.t.Fatal(err)
	}
	return again
}

func TestACallThatACrashInterruptedEndsUnknownOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c, _ := b.running(s, srv, `"a"`, 3)
		done := b.tool(s, `"b"`)
		srv.answer(srv.recv(), `{}`)
		b.answers(s, done)
		at := b.cursor(s, c.Stream, 3)
		for range 2 { // and a second crash changes nothing
			b2, s2 := b.afterCrash(s)
			res := b2.resume(s2, at, Oldest)
			got := collect(t, res.Reader)
			res.Reader.Close()
			if len(got) != 2 {
				t.Fatalf("%q", got)
			}
			contains(t, got[1], `"id":"a","error"`, `"outcome":"unknown"`, "segno ended while the call ran")
			if top := b2.stat(s2, c.Stream).Top; top != 6 {
				t.Errorf("the stream is at %d", top)
			}
			if top := b2.stat(s2, done.Stream).Top; top != 3 {
				t.Errorf("a call that had ended is at %d", top)
			}
		}
		// Segno never runs a call a second time by itself.
		if n := b.d.dials.Load(); n != 1 {
			t.Errorf("%d children were started", n)
		}
		srv.send(logLine, "of the dead")
		srv.pending()
		if len(b.m.InMemory()) != 0 {
			t.Error("the first process still holds the session")
		}
	})
}

func TestABatchThatACrashInterrupted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		var texts []string
		for _, id := range []string{`1`, `"1"`, `2`, `2`} {
			texts = append(texts, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"x"}}`)
		}
		c, err := s.Batch(t.Context(), []byte("["+strings.Join(texts, ",")+"]"), messages(t, texts), CallOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m := []wire.Message{srv.recv(), srv.recv(), srv.recv(), srv.recv()}
		srv.answer(m[1], `{}`)
		srv.answer(m[3], `{}`)
		synctest.Wait()
		b2, s2 := b.afterCrash(s)
		got := b2.answers(s2, &Call{Stream: c.Stream})
		if len(got) != 4 {
			t.Fatalf("%q", got)
		}
		same(t, got[:2], `{"jsonrpc":"2.0","id":"1","result":{}}`, `{"jsonrpc":"2.0","id":2,"result":{}}`)
		contains(t, got[2], `"id":1,"error"`)
		contains(t, got[3], `"id":2,"error"`)
	})
}

func TestASessionLivesOnInAnotherProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		srv.recv()
		srv.send(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}`)
		r := s.AttachOwn(Oldest)
		got, _ := now(t, r)
		first := asked(t, got[0])
		r.Close()
		b2, s2 := b.afterCrash(s)
		if s2.Public() != s.Public() || s2.Version() != "2025-11-25" || s2.Asked() != "2025-11-25" || s2.ID() != "" {
			t.Errorf("it is %q of %q", s2.Public(), s2.Version())
		}
		c := b2.tool(s2, `5`)
		again := b2.server()
		again.greet()
		contains(t, string(again.recv().Raw), wire.Initialized)
		m := again.recv()
		again.send(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}`)
		r = s2.AttachCall(c, Oldest)
		got, _ = now(t, r)
		r.Close()
		again.answer(m, `{}`)
		if id := asked(t, got[0]); id == first || !strings.HasPrefix(id, `"segno-`) {
			t.Errorf("the id %s was used again", id)
		}
		// The answer to what the dead server asked goes nowhere.
		b2.deliver(s2, `{"jsonrpc":"2.0","id":%s,"result":{}}`, first)
	})
}

func TestTheOwnStreamIsBoundedAcrossProcesses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := memlog.New()
		b := newBench(t, Options{Log: log, Limits: Limits{RetainEvents: 10}})
		s, srv := b.open()
		for i := range 30 {
			srv.send(logLine, fmt.Sprint(i))
			synctest.Wait()
		}
		b2 := newBench(t, Options{Log: log, Limits: Limits{RetainEvents: 10}})
		s2, err := b2.m.Open(t.Context(), "anon", s.ID())
		if err != nil {
			t.Fatal(err)
		}
		b2.tool(s2, `1`)
		b2.tool(s2, `2`)
		srv = b2.server()
		srv.greet()
		srv.recv()
		srv.recv()
		for i := range 30 {
			srv.send(logLine, fmt.Sprint(i))
			synctest.Wait()
		}
		if n := b2.stat(s2, s.rec.Own).Events; n > 13 {
			t.Errorf("%d events are kept", n)
		}
	})
}

func TestTheSameRequestAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		const text = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`
		first := b.call(s, text)
		m := srv.recv()
		again := b.call(s, text)
		if again.Stream != first.Stream {
			t.Error("a running call was not attached to")
		}
		srv.answer(m, `{"n":1}`)
		want := `{"jsonrpc":"2.0","id":7,"result":{"n":1}}`
		same(t, b.answers(s, again), want)
		same(t, b.answers(s, first), want)
		time.Sleep(59 * time.Second)
		same(t, b.answers(s, b.call(s, text)), want)
		// With the proof that the client has it, it is a call of its own.
		res := b.resume(s, b.cursor(s, first.Stream, 2), Oldest)
		if res.Result != Current {
			t.Errorf("%+v", res)
		}
		fresh := b.call(s, text)
		srv.answer(srv.recv(), `{"n":2}`)
		same(t, b.answers(s, fresh), `{"jsonrpc":"2.0","id":7,"result":{"n":2}}`)
		time.Sleep(62 * time.Second)
		late := b.call(s, text)
		srv.answer(srv.recv(), `{"n":3}`)
		same(t, b.answers(s, late), `{"jsonrpc":"2.0","id":7,"result":{"n":3}}`)
	})
}

func TestField97_TheSameRequestAgainAfterACrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		const text = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`
		b.call(s, text)
		srv.recv()
		b2, s2 := b.afterCrash(s)
		contains(t, b2.answers(s2, b2.call(s2, text))[0], `"id":7,"error"`, `"outcome":"unknown"`)
		if n := b2.d.dials.Load(); n != 0 {
			t.Error("it was run again")
		}
	})
}

func TestARepostWhileTheFirstIsBeingRecorded(t *testing.T) {
	for _, refused := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			log := &held{Log: memlog.New()}
			b := newBench(t, Options{Log: log})
			s, srv := b.open()
			gate := make(chan error, 2)
			log.gate.Store(&gate)
			const text = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`
			type result struct {
				c   *Call
				err error
			}
			got := make(chan result, 2)
			for range 2 {
				go func() {
					c, err := s.Call(t.Context(), message(t, text), CallOptions{})
					got <- result{c, err}
				}()
				synctest.Wait()
			}
			log.gate.Store(nil)
			if refused {
				gate <- eventlog.ErrUnavailable
			}
			close(gate)
			one, two := <-got, <-got
			if refused {
				if one.err == nil || two.err == nil || len(srv.pending()) != 0 {
					t.Errorf("%v, %v", one, two)
				}
				return
			}
			if one.err != nil || two.err != nil || one.c.Stream != two.c.Stream || len(srv.pending()) != 1 {
				t.Errorf("%v, %v", one, two)
			}
		})
	}
}

func (b *bench) keyed(s *Session, key, text string) (*Call, error) {
	return s.Call(b.t.Context(), message(b.t, "%s", text), CallOptions{IdempotencyKey: key})
}

const keyedText = `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`

func TestField97_OneIdempotencyKeyIsOneExecution(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s1, srv := b.open()
		s2, srv2 := b.open() // of the same principal
		must := func(s *Session, key, id, tool, args string) *Call {
			t.Helper()
			c, err := b.keyed(s, key, fmt.Sprintf(keyedText, id, tool, args))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		first := must(s1, "k", `1`, "x", `{"a":1,"b":[1,2]}`)
		m := srv.recv()
		running := must(s1, "k", `2`, "x", `{"b":[1,2],"a":1}`) // equal, spelled otherwise
		elsewhere := must(s2, "k", `"one"`, "x", `{"a":1,"b":[1,2]}`)
		if got := append(srv.pending(), srv2.pending()...); len(got) != 0 {
			t.Errorf("it was run again: %s", got)
		}
		srv.progress(m, 1)
		srv.answer(m, `{"n":1}`)
		same(t, b.answers(s1, first), `{"jsonrpc":"2.0","id":1,"result":{"n":1}}`)
		same(t, b.answers(s1, running), `{"jsonrpc":"2.0","id":2,"result":{"n":1}}`)
		same(t, b.answers(s2, elsewhere), `{"jsonrpc":"2.0","id":"one","result":{"n":1}}`)
		time.Sleep(50 * time.Minute) // as long as the outcome
		if _, err := b.keyed(s1, "k", fmt.Sprintf(keyedText, `3`, "x", `{}`)); err != eventlog.ErrFenced {
			t.Errorf("a session out of memory: %v", err)
		}
		s1 = b.reopen(s1)
		same(t, b.answers(s1, must(s1, "k", `3`, "x", `{"a":1,"b":[1,2]}`)), `{"jsonrpc":"2.0","id":3,"result":{"n":1}}`)
		_, err := b.keyed(s1, "k", fmt.Sprintf(keyedText, `4`, "x", `{"a":2}`))
		var bad *wire.Error
		if !errors.As(err, &bad) || string(bad.ID) != "4" {
			t.Errorf("other arguments: %v", err)
		}
		// Another tool, another principal: another key.
		s2 = b.reopen(s2)
		s3, srv3 := b.openAs("somebody else")
		must(s3, "k", `1`, "x", `{"a":1,"b":[1,2]}`)
		if got := srv3.pending(); len(got) != 1 {
			t.Errorf("somebody else's call was not run: %s", got)
		}
		must(s2, "k", `9`, "y", `{"a":1,"b":[1,2]}`)
		srv2 = b.server()
		srv2.greet()
		if got := srv2.pending(); len(got) != 1 {
			t.Errorf("another tool was not run: %s", got)
		}
	})
}

func TestAnIdempotencyKeyAfterACrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s1, srv := b.open()
		text := fmt.Sprintf(keyedText, `1`, "x", `{}`)
		if _, err := b.keyed(s1, "k", text); err != nil {
			t.Fatal(err)
		}
		srv.recv()
		other, _ := b.open()
		// The session of the call is not opened again: another one of the
		// principal asks, which is enough to end what ran there.
		b2, s2 := b.afterCrash(other)
		c, err := b2.keyed(s2, "k", fmt.Sprintf(keyedText, `"n"`, "x", `{}`))
		if err != nil {
			t.Fatal(err)
		}
		contains(t, b2.answers(s2, c)[0], `"id":"n","error"`, `"outcome":"unknown"`)
		if n := b2.d.dials.Load(); n != 0 {
			t.Error("it was run again")
		}
	})
}

func TestACallThatWaitsForAnothersOutcomeCanBeCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		if _, err := b.keyed(s, "k", fmt.Sprintf(keyedText, `1`, "x", `{}`)); err != nil {
			t.Fatal(err)
		}
		m := srv.recv()
		c, err := b.keyed(s, "k", fmt.Sprintf(keyedText, `2`, "x", `{}`))
		if err != nil {
			t.Fatal(err)
		}
		b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		same(t, b.answers(s, c))
		if got := srv.pending(); got != nil {
			t.Errorf("the first call was disturbed: %s", got)
		}
		srv.answer(m, `{}`)
	})
}

func TestIdempotencyKeysThatAreNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		for _, meta := range []string{`7`, `{}`, `"` + strings.Repeat("x", 257) + `"`, `"a","segno/idempotencyKey":"b"`} {
			_, err := s.Call(t.Context(), message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"segno/idempotencyKey":%s}}}`, meta), CallOptions{})
			var bad *wire.Error
			if !errors.As(err, &bad) {
				t.Errorf("%s: %v", meta, err)
			}
		}
		if got := srv.pending(); got != nil {
			t.Errorf("the server got %s", got)
		}
		one, err := b.keyed(s, "header", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x","_meta":{"segno/idempotencyKey":"body"}}}`)
		if err != nil {
			t.Fatal(err)
		}
		srv.answer(srv.recv(), `{}`)
		two, err := b.keyed(s, "body", `{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"x"}}`)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Concat(b.answers(s, one), b.answers(s, two)); len(got) != 2 || len(srv.pending()) != 0 {
			t.Errorf("%q", got)
		}
	})
}

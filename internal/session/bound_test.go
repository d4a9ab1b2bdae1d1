package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
)

// ended runs a call to its end: n bytes of progress and an outcome. ids says
// whether a client got event ids of it.
func (b *bench) ended(s *Session, srv *server, id string, n int, ids bool) *Call {
	b.t.Helper()
	c := b.tool(s, id)
	m := srv.recv()
	srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"x":%q}}`, m.IDText(), strings.Repeat("x", n))
	srv.answer(m, `{}`)
	r := s.AttachCall(c, Oldest)
	defer r.Close()
	for {
		synctest.Wait()
		d, err := r.Next(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range d.Events {
			r.Sent(e.Seq, ids)
		}
		if d.Ended {
			return c
		}
	}
}

func (b *bench) there(s *Session, c *Call) string {
	info, err := b.m.log.Stat(context.Background(), eventlog.Key{Session: s.name, Stream: c.Stream})
	switch {
	case err != nil || info.Dropped:
		return "dropped"
	case info.Ended && info.Events == 3 || !info.Ended && info.Events < int64(info.Top):
		return "trimmed"
	}
	return "whole"
}

// TestWhatGoesFirst: promise 6, in the order of design.md, section 6.
func TestWhatGoesFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		running := b.tool(s, `"r"`)
		mr := srv.recv()
		for range 20 {
			srv.progress(mr, 1)
			synctest.Wait()
		}
		srv.send(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"_meta":{}}}`)
		synctest.Wait()
		held1 := b.ended(s, srv, `1`, 1000, true)
		proven := b.ended(s, srv, `2`, 1000, true)
		unseen := b.ended(s, srv, `3`, 1000, false)
		if err := s.Ack(t.Context(), b.cursor(s, proven.Stream, 3)); err != nil {
			t.Fatal(err)
		}
		all := []*Call{unseen, proven, held1, running}
		states := func() (got []string) {
			for _, c := range all {
				got = append(got, b.there(s, c))
			}
			return got
		}
		same(t, states(), "whole", "whole", "whole", "whole")
		// What opened the session is unseen too, so it goes before.
		for _, want := range [][]string{
			{"dropped", "whole", "whole", "whole"},
			{"dropped", "dropped", "whole", "whole"},
			{"dropped", "dropped", "trimmed", "whole"},
			{"dropped", "dropped", "trimmed", "trimmed"},
		} {
			for slices.Equal(states(), want) == false {
				before := states()
				if b.m.relieve([]*Session{s}, 1) == 0 {
					t.Fatalf("nothing can go at %v, before %v", before, want)
				}
				if got := states(); !slices.Equal(got, want) && !slices.Equal(got, before) {
					t.Fatalf("after %v came %v, want %v", before, got, want)
				}
			}
		}
		for b.m.relieve([]*Session{s}, 1<<30) > 0 {
		}
		// The outcome and the open request are there to the end.
		if got := b.answers(s, held1); !strings.Contains(got[len(got)-1], `"id":1,"result":{}`) {
			t.Errorf("the outcome is %q", got)
		}
		r := s.AttachCall(running, Oldest)
		got, _ := now(t, r)
		r.Close()
		if !slices.ContainsFunc(got, func(text string) bool { return strings.Contains(text, "elicitation/create") }) {
			t.Errorf("the open request is gone: %q", got)
		}
	})
}

// What a connection is reading, or about to be opened for, is not dropped.
func TestAnAnswerInNobodysHandsYetIsNotDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		srv.answer(srv.recv(), `{}`)
		synctest.Wait()
		b.m.relieve([]*Session{s}, 1<<30) // handed out by Call, not yet attached
		r := s.AttachCall(c, Oldest)
		time.Sleep(10 * time.Minute)
		b.m.relieve([]*Session{s}, 1<<30)
		if d, err := r.Next(t.Context()); err != nil || len(d.Events) != 1 {
			t.Errorf("%+v, %v", d, err)
		}
		r.Sent(2, false)
		r.Close()
		time.Sleep(2 * time.Second)
		b.m.relieve([]*Session{s}, 1<<30)
		if got := b.there(s, c); got != "dropped" {
			t.Errorf("read and without ids it is %s", got)
		}
	})
}

func TestAFullSessionRefusesInBand(t *testing.T) {
	for limit, lim := range map[string]Limits{
		"session-max":   {SessionMax: 30000},
		"principal-max": {PrincipalMax: 30000},
		"store-max":     {StoreMax: 30000},
	} {
		t.Run(limit, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newBench(t, Options{Limits: lim})
				s, srv := b.open()
				other, osrv := b.open()
				for i := range 40 { // openings and outcomes, which must stay
					c, err := s.Call(t.Context(), message(t, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x","arguments":{"x":%q}}}`, i+1, strings.Repeat("x", 1000)), CallOptions{})
					if err != nil {
						var r *Refusal
						if !errors.As(err, &r) || r.Limit != limit || r.RetryAfter <= 0 {
							t.Fatalf("call %d: %v", i, err)
						}
						if got := srv.pending(); got != nil {
							t.Errorf("a refused call was executed: %s", got)
						}
						if i < 20 {
							t.Errorf("call %d was refused", i)
						}
						_, err := other.Call(t.Context(), message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), CallOptions{})
						if refused := err != nil; refused != (limit != "session-max") {
							t.Errorf("the other session: %v", err)
						}
						if got := b.call(s, `{"jsonrpc":"2.0","id":"p","method":"ping"}`); got.Answer == nil {
							t.Error("ping was refused")
						}
						_ = osrv
						return
					}
					m := srv.recv()
					srv.answer(m, `{}`)
					r := s.AttachCall(c, Oldest)
					collect(t, r)
					r.Close()
				}
				t.Error("nothing was ever refused")
			})
		})
	}
}

// At the principal's bound, its other sessions give too.
func TestAPrincipalsOtherSessionsGiveRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{PrincipalMax: 20000}})
		s1, srv1 := b.open()
		s2, srv2 := b.open()
		for i := range 8 {
			b.ended(s1, srv1, fmt.Sprint(i+1), 1000, true)
		}
		big := s1.size()
		for i := range 20 {
			b.ended(s2, srv2, fmt.Sprint(i+1), 1000, false)
		}
		for i := range 10 {
			b.ended(s2, srv2, fmt.Sprint(i+50), 1000, true)
		}
		if all := b.m.accounts["anon"].bytes.Load(); all > 20000 || all != s1.size()+s2.size() {
			t.Errorf("all have %d bytes, the two %d and %d", all, s1.size(), s2.size())
		}
		if s1.size() >= big {
			t.Errorf("the idle session still has %d bytes", s1.size())
		}
	})
}

func TestAFullStoreFreesRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{StoreMax: 50000}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		for range 100 {
			srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"x":%q}}`, m.IDText(), strings.Repeat("x", 1000))
			synctest.Wait()
		}
		time.Sleep(15 * time.Second)
		if size := b.m.log.Size(); size > 50000 {
			t.Errorf("the store has %d bytes", size)
		}
		if b.there(s, c) != "trimmed" {
			t.Error("the progress is still there")
		}
		b.tool(s, `2`)
	})
}

// TestAStoreThatIsAway: the child is not read beyond the bound, and all of it
// comes when the store is back.
func TestAStoreThatIsAwayHoldsBackTheServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := &flaky{Log: memlog.New()}
		const bound = 1 << 20
		b := newBench(t, Options{Log: log, Limits: Limits{HeldMax: bound}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		log.away.Store(true)
		const lines, size = 100, 100 << 10
		sent := 0
		go func() {
			for i := range lines {
				text := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"x":%q}}`, m.IDText(), i, strings.Repeat("x", size))
				if srv.c.Send(t.Context(), []byte(text)) != nil {
					return
				}
				sent++
			}
			srv.c.Send(t.Context(), fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.IDText()))
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := sent * size; got > 4*bound || got < bound {
			t.Errorf("%d bytes were taken from the server", got)
		}
		if _, err := s.Call(t.Context(), message(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}`), CallOptions{}); err == nil {
			t.Error("a call was taken")
		}
		r := s.AttachCall(c, Oldest)
		defer r.Close()
		if got, last := now(t, r); len(got) != 0 || !last.Wait {
			t.Errorf("%q", got)
		}
		log.away.Store(false)
		got := collect(t, r)
		if len(got) != lines+1 || !strings.Contains(got[lines], `"result"`) {
			t.Fatalf("%d messages came", len(got))
		}
		for i, text := range got[:lines] {
			contains(t, text[:120], fmt.Sprintf(`"progress":%d,`, i))
		}
	})
}

// Nothing hangs when all ends while the store is away.
func TestEndingWhileTheStoreIsAway(t *testing.T) {
	for name, end := range map[string]func(*bench, *Session){
		"session": func(b *bench, s *Session) {
			if err := s.End(b.t.Context(), "DELETE"); err != nil {
				b.t.Error(err)
			}
		},
		"manager": func(b *bench, _ *Session) {
			ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
			defer cancel()
			if err := b.m.Close(ctx); err == nil {
				b.t.Error("it says that everything was written")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				log := &flaky{Log: memlog.New()}
				b := newBench(t, Options{Log: log, Limits: Limits{HeldMax: 1000}})
				s, srv := b.open()
				b.tool(s, `1`)
				m := srv.recv()
				log.away.Store(true)
				for range 3 {
					srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"x":%q}}`, m.IDText(), strings.Repeat("x", 1000))
					synctest.Wait()
				}
				began := time.Now()
				end(b, s)
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("it took %v", took)
				}
				if !srv.isGone() {
					t.Error("the child lives on")
				}
				log.away.Store(false)
			})
		})
	}
}

// TestALostSessionIsTakenUpAnew: another owner, or a store that lost its tail.
func TestALostSessionIsTakenUpAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		r := s.AttachCall(c, Oldest)
		now(t, r)
		if _, err := b.m.log.Claim(t.Context(), s.name, false); err != nil {
			t.Fatal(err)
		}
		srv.progress(m, 1)
		<-r.C()
		if _, last := now(t, r); !last.Ended {
			t.Errorf("its connection: %+v", last)
		}
		r.Close()
		if !srv.isGone() {
			t.Error("the child lives on")
		}
		again := b.reopen(s)
		got := b.answers(again, &Call{Stream: c.Stream})
		contains(t, got[0], `"outcome":"unknown"`)
		if len(b.m.accounts) != 1 || b.m.inMemory != 1 {
			t.Errorf("%d sessions are counted", b.m.inMemory)
		}
	})
}

// What cannot be dropped while the store is away is dropped when it is back, and
// counts until then.
func TestADropThatFailsIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := &flaky{Log: memlog.New()}
		b := newBench(t, Options{Log: log, Limits: Limits{Repost: time.Minute}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		srv.answer(m, `{}`)
		r := s.AttachOutcome(c, Oldest)
		for d := (Delivery{}); !d.Ended; d, _ = r.Next(t.Context()) {
			if d.Wait {
				<-r.C()
			}
		}
		r.Close()
		log.away.Store(true)
		before := s.size()
		time.Sleep(2 * time.Minute)
		if b.stat(s, c.Stream).Dropped || s.size() < before {
			t.Fatal("the stream counts as dropped while the store is away")
		}
		log.away.Store(false)
		time.Sleep(2 * time.Second)
		if _, err := log.Stat(t.Context(), eventlog.Key{Session: s.name, Stream: c.Stream}); !errors.Is(err, eventlog.ErrNoStream) {
			t.Errorf("the stream is still there: %v", err)
		}
		if s.size() >= before {
			t.Errorf("the session counts %d bytes, before %d", s.size(), before)
		}
	})
}

package session

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/wire"
)

func (s *server) isGone() bool {
	s.t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Nanosecond)
	defer cancel()
	for {
		_, err := s.c.Recv(ctx)
		var gone *wire.Gone
		switch {
		case errors.As(err, &gone):
			return true
		case err != nil:
			return false
		}
	}
}

func TestGraceStopsTheChildAndKeepEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTally()
		b := newBench(t, Options{Meter: n})
		s, srv := b.open()
		c := b.tool(s, `1`)
		srv.answer(srv.recv(), `{}`)
		r := s.AttachCall(c, Oldest)
		collect(t, r)
		id, _ := r.PrimingID(t.Context())
		r.Close()
		time.Sleep(5*time.Minute - time.Second)
		if srv.isGone() {
			t.Error("the child ended before its time")
		}
		time.Sleep(2 * time.Second)
		if !srv.isGone() {
			t.Error("the child lives on")
		}
		if len(b.m.InMemory()) != 0 || n.of(metric.SessionsOpen) != 0 || n.of(metric.ChildrenRunning) != 0 || n.of(metric.RetainedEvents) != 0 {
			t.Error("the session is still in memory")
		}
		time.Sleep(50 * time.Minute)
		s2 := b.reopen(s)
		if res := b.resume(s2, id, Oldest); res.Result != Current {
			t.Errorf("after it came back: %+v", res)
		}
		b.tool(s2, `2`)
		b.server().greet()
		synctest.Wait()
		if err := b.m.sessions[s.name].m.log.Append(t.Context(), eventlog.Append{Key: s.own.key, Fence: s.claim.Fence}); !errors.Is(err, eventlog.ErrFenced) {
			t.Errorf("the old owner may still write: %v", err)
		}
		b.deliver(s2, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		time.Sleep(5*time.Minute + 2*time.Second)
		time.Sleep(time.Hour)
		if _, err := b.m.Open(t.Context(), "anon", s.ID()); err != eventlog.ErrNoSession {
			t.Errorf("after keep: %v", err)
		}
		if names, _ := b.m.log.Sessions(t.Context(), "", 10); len(names) != 0 || len(b.m.parked) != 0 || len(b.m.accounts) != 0 {
			t.Errorf("%v, %v, %v are left", names, b.m.parked, b.m.accounts)
		}
	})
}

func TestField53_WhatCountsAsActivity(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{Grace: 2 * time.Second, Orphan: -1}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		time.Sleep(6 * time.Second) // a quiet call that nobody is connected to
		srv.answer(m, `{}`)
		same(t, b.answers(s, c), `{"jsonrpc":"2.0","id":1,"result":{}}`)
		r := s.AttachOwn(Oldest)
		time.Sleep(time.Minute) // a connection where nothing happens
		r.Close()
		time.Sleep(1900 * time.Millisecond) // the time starts when the last one ends
		if srv.isGone() {
			t.Fatal("the child was stopped")
		}
		s.touch()
		time.Sleep(1900 * time.Millisecond)
		b.call(s, `{"jsonrpc":"2.0","id":9,"method":"ping"}`)
		time.Sleep(1900 * time.Millisecond)
		b.reopen(s)
		time.Sleep(1900 * time.Millisecond)
		if srv.isGone() {
			t.Fatal("the child was stopped")
		}
		time.Sleep(200 * time.Millisecond)
		if !srv.isGone() {
			t.Error("the child lives on")
		}
	})
}

func TestWhatNeverEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{Grace: -1, Keep: -1, RetainAge: -1, Orphan: -1, AskTimeout: -1, WriteTimeout: -1, StartTimeout: -1, Repost: -1}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		srv.progress(m, 1)
		srv.send(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}`)
		r := s.AttachCall(c, Oldest)
		now(t, r)
		r.Close()
		time.Sleep(10 * time.Hour)
		if srv.isGone() {
			t.Fatal("the child was stopped")
		}
		srv.answer(m, `{}`)
		synctest.Wait()
		time.Sleep(10 * time.Hour)
		b.reopen(s)
		if info := b.stat(s, c.Stream); info.Events < 5 {
			t.Errorf("of the stream is left: %+v", info)
		}
	})
}

func TestEndDuringACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTally()
		b := newBench(t, Options{Meter: n, Limits: Limits{CallTimeout: time.Hour}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		srv.recv()
		srv.send(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}`)
		r := s.AttachCall(c, Oldest)
		now(t, r)
		if err := s.End(t.Context(), "DELETE"); err != nil {
			t.Fatal(err)
		}
		if !srv.isGone() {
			t.Error("the child lives on")
		}
		if got, last := now(t, r); len(got) != 0 || !last.Ended {
			t.Errorf("its connection got %q, %+v", got, last)
		}
		r.Close()
		if err := s.End(t.Context(), "DELETE"); err != eventlog.ErrNoSession {
			t.Errorf("ending it twice: %v", err)
		}
		if _, err := s.Call(t.Context(), message(t, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`), CallOptions{}); err != eventlog.ErrNoSession {
			t.Errorf("a call afterwards: %v", err)
		}
		b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/x"}`)
		if res := b.resume(s, b.m.inst+"x", Oldest); res.Result != Unknown {
			t.Errorf("%+v", res)
		}
		for _, m := range []metric.Name{metric.SessionsOpen, metric.StreamsOpen, metric.ChildrenRunning, metric.RetainedEvents} {
			if got := n.of(m); got != 0 {
				t.Errorf("%s is %d", m, got)
			}
		}
		if len(b.m.accounts) != 0 || len(b.m.loading) != 0 {
			t.Error("traces of it are left")
		}
	})
}

func TestTheSessionCaps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{Sessions: 3, SessionsPerPrincipal: 2}})
		a1, _ := b.openAs("a")
		time.Sleep(time.Second)
		a2, srv2 := b.openAs("a")
		time.Sleep(time.Second)
		b.deliver(a1, `{"jsonrpc":"2.0","method":"notifications/x"}`)
		b.openAs("a") // a2 was idle longest
		if _, err := b.m.Open(t.Context(), "a", a2.ID()); err != eventlog.ErrNoSession || !srv2.isGone() {
			t.Errorf("the session idle longest: %v", err)
		}
		if _, err := b.m.Open(t.Context(), "a", a1.ID()); err != nil {
			t.Errorf("the other one: %v", err)
		}
		c1, csrv := b.openAs("c")
		_, _, err := b.m.Create(t.Context(), "d", message(t, initText), ClientInfo{})
		var r *Refusal
		if !errors.As(err, &r) || r.Limit != "max-sessions" || len(b.m.accounts) != 2 {
			t.Errorf("somebody else at the cap: %v", err)
		}
		b.tool(c1, `1`) // what runs is not pushed out
		csrv.recv()
		if _, _, err := b.m.Create(t.Context(), "c", message(t, initText), ClientInfo{}); !errors.As(err, &r) {
			t.Errorf("a session with a running call was pushed out: %v", err)
		}
	})
}

func TestTheChildCaps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{Children: 2, ChildrenPerPrincipal: 1}})
		refused := func(principal, limit string) {
			t.Helper()
			var r *Refusal
			_, _, err := b.m.Create(t.Context(), principal, message(t, initText), ClientInfo{})
			if !errors.As(err, &r) || r.Limit != limit || r.RetryAfter <= 0 {
				t.Errorf("one more session of %s: %v, want a refusal by %s", principal, err, limit)
			}
		}
		b.openAs("a")
		a, srv := b.openAs("a") // the first one's child, which does nothing, goes
		call := b.tool(a, `1`)
		m := srv.recv()
		refused("a", "max-children-per-principal")
		b.openAs("b")
		refused("c", "max-children")
		srv.answer(m, `{}`)
		same(t, b.answers(a, call), `{"jsonrpc":"2.0","id":1,"result":{}}`)
		refused("c", "max-children") // nobody's child goes for somebody else
		if err := a.End(t.Context(), "DELETE"); err != nil {
			t.Fatal(err)
		}
		b.openAs("c")
	})
}

// The log's index of what is due must not take a session from who is loading it.
func TestWhatIsDueDoesNotFenceOffALoadedSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := memlog.New()
		b := newBench(t, Options{Log: log, Limits: Limits{RetainAge: 10 * time.Minute, Grace: time.Minute}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		srv.progress(m, 1)
		srv.answer(m, `{}`)
		b.answers(s, c)
		time.Sleep(10*time.Minute - time.Millisecond)
		for range 5 { // just as it becomes due
			again := b.reopen(s)
			c := b.call(again, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, time.Now().UnixNano())
			synctest.Wait()
			if len(b.d.conns) > 0 {
				srv = b.server()
				srv.greet()
			}
			srv.answer(srv.recv(), `{}`)
			b.answers(again, c)
			time.Sleep(700 * time.Millisecond)
		}
		if info := b.stat(s, c.Stream); info.Events != 3 {
			t.Errorf("after retain-age the stream keeps %+v", info)
		}
	})
}

// A session that takes long to load stays its loader's.
func TestALoadIsNotFencedOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := &slowLister{Log: memlog.New()}
		b := newBench(t, Options{Log: log, Limits: Limits{RetainAge: 10 * time.Minute, Grace: time.Minute}})
		s, srv := b.open()
		b.ended(s, srv, `1`, 10, true)
		time.Sleep(9 * time.Minute)
		gate := make(chan struct{})
		log.gate.Store(&gate)
		var loads sync.WaitGroup
		var got [3]*Session
		for i := range got { // three want it at once, and share one load
			loads.Go(func() { got[i] = b.reopen(s) })
		}
		time.Sleep(2 * time.Minute) // meanwhile something in it becomes due
		close(gate)
		loads.Wait()
		time.Sleep(2 * time.Second)
		if got[0] != got[1] || got[0] != got[2] || b.reopen(s) != got[0] {
			t.Error("they do not have the same session")
		}
		if claim, err := log.Claim(t.Context(), s.name, false); err != nil || claim.Fence != got[0].claim.Fence+1 {
			t.Errorf("the session was claimed by somebody else: %v", err)
		}
	})
}

// The grace of a session begins when it is there, however long it took to load.
func TestALoadedSessionHasItsWholeGrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := &slowLister{Log: memlog.New()}
		b := newBench(t, Options{Log: log, Limits: Limits{Grace: time.Minute}})
		s, _ := b.open()
		time.Sleep(2 * time.Minute)
		gate := make(chan struct{})
		log.gate.Store(&gate)
		time.AfterFunc(150*time.Second, func() { close(gate) })
		b.reopen(s)
		time.Sleep(time.Minute - time.Second)
		if len(b.m.InMemory()) != 1 {
			t.Error("it is out of memory before its time")
		}
		time.Sleep(2 * time.Second)
		if len(b.m.InMemory()) != 0 {
			t.Error("it stays for ever")
		}
	})
}

// TestField105: sessions whose clients only go away.
func TestField105_SessionsWithoutDeleteLeaveNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTally()
		b := newBench(t, Options{Meter: n, Limits: Limits{Children: 10000, ChildrenPerPrincipal: 10000, Orphan: 10 * time.Minute}})
		heap := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		cycle := func() {
			for i := range 1000 {
				s, srv := b.openAs("p" + string(rune('a'+i%26)))
				c := b.tool(s, `1`)
				m := srv.recv()
				srv.progress(m, 1)
				r := s.AttachCall(c, Oldest)
				now(t, r)
				own := s.AttachOwn(Oldest)
				if i%2 == 0 {
					srv.answer(m, `{}`)
				}
				r.Close()
				own.Close()
				if i%10 == 0 {
					srv.c.Close()
				}
			}
			time.Sleep(90 * time.Minute)
			synctest.Wait()
		}
		cycle()
		base, goroutines := heap(), runtime.NumGoroutine()
		for range 4 {
			cycle()
		}
		if now := heap(); now > base+1<<20 {
			t.Errorf("the heap grew from %d to %d bytes", base, now)
		}
		if now := runtime.NumGoroutine(); now > goroutines {
			t.Errorf("%d goroutines became %d", goroutines, now)
		}
		for _, m := range []metric.Name{metric.SessionsOpen, metric.StreamsOpen, metric.ChildrenRunning, metric.RetainedEvents} {
			if got := n.of(m); got != 0 {
				t.Errorf("%s is %d", m, got)
			}
		}
		if len(b.m.accounts)+len(b.m.parked)+len(b.m.loading)+b.m.inMemory+b.m.children != 0 || b.m.log.Size() != 0 {
			t.Errorf("%d accounts, %d parked, %d names, %d bytes are left", len(b.m.accounts), len(b.m.parked), len(b.m.loading), b.m.log.Size())
		}
	})
}

// TestAnIdleSessionCostsLittle: without a child and connections, in memory.
func TestAnIdleSessionCostsLittle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{Grace: time.Hour, Keep: time.Hour}})
		var before, after runtime.MemStats
		const sessions = 500
		s, srv := b.open()
		s.stopChild("test")
		_ = srv
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range sessions {
			s, srv := b.open()
			for i := range 3 {
				c := b.tool(s, strconv.Itoa(i+1))
				srv.answer(srv.recv(), `{}`)
				r := s.AttachCall(c, Oldest)
				now(t, r)
				r.Close()
			}
			s.stopChild("test")
		}
		time.Sleep(30 * time.Minute) // retain-age is over
		runtime.GC()
		runtime.ReadMemStats(&after)
		inLog := b.m.log.Size() / (sessions + 1)
		each := int64(after.HeapAlloc-before.HeapAlloc) / sessions
		t.Logf("%d bytes a session with its log in memory; the log counts %d of them", each, inLog)
		if each-inLog > 10<<10 {
			t.Errorf("a session takes %d bytes", each-inLog)
		}
		for _, s := range b.m.all() {
			if len(s.streams) != 1 || len(s.kept) != 0 {
				t.Fatalf("%d streams and %d notes are left", len(s.streams), len(s.kept))
			}
		}
	})
}

// A connection that comes to a session just as it leaves the memory is sent
// back, instead of waiting for what nobody will write.
func TestAConnectionToASessionThatLeftTheMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, _ := b.open()
		time.Sleep(6 * time.Minute)
		r := s.AttachOwn(Oldest)
		defer r.Close()
		if d, err := r.Next(t.Context()); err != nil || !d.Ended {
			t.Errorf("it waits: %+v, %v", d, err)
		}
	})
}

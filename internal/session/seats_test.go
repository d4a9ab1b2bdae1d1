package session

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/notice"
)

func TestTheNewestConnectionGetsTheEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		n := 0
		step := func() string {
			n++
			srv.progress(m, n)
			return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}`, n)
		}
		first := s.AttachCall(c, Oldest)
		one := step()
		got, _ := now(t, first)
		same(t, got, one)
		second := b.resume(s, b.cursor(s, c.Stream, 2), Oldest).Reader
		two := step()
		got, _ = now(t, second)
		same(t, got, two)
		got, last := now(t, first)
		if len(got) != 0 || !last.Spare {
			t.Errorf("the older one got %q, %+v", got, last)
		}
		third, fourth := b.resume(s, b.cursor(s, c.Stream, 3), Oldest).Reader, b.resume(s, b.cursor(s, c.Stream, 3), Oldest).Reader
		if _, last := now(t, first); !last.Retired {
			t.Errorf("the oldest of four: %+v", last)
		}
		first.Close()
		for i, r := range []*Reader{second, third} {
			if _, last := now(t, r); !last.Spare {
				t.Errorf("spare %d: %+v", i, last)
			}
		}
		three := step()
		got, _ = now(t, fourth)
		same(t, got, three)
		fourth.Close()
		<-third.C() // it is told to take over
		got, last = now(t, third)
		same(t, got, three)
		if !last.Wait {
			t.Errorf("then %+v", last)
		}
		third.Close()
		got, _ = now(t, second) // from its own place
		same(t, got, three)
		second.Close()
		second.Close() // twice does no harm
		if n := s.readers.Load(); n != 0 {
			t.Errorf("%d connections are counted", n)
		}
	})
}

func TestField95_TenGetsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		var all []*Reader
		for range 10 {
			all = append(all, s.AttachOwn(Oldest))
		}
		srv.send(logLine, "x")
		served := 0
		for i, r := range all {
			got, last := now(t, r)
			served += len(got)
			if i < 7 != last.Retired {
				t.Errorf("connection %d: %+v", i, last)
			}
		}
		if served != 1 {
			t.Errorf("the message was handed out %d times", served)
		}
		for _, r := range all {
			r.Close()
		}
	})
}

// A GET without a cursor: no history again, and nothing lost while nobody
// listened or while the connection was already dead.
func TestWhatAGetWithoutACursorStartsWith(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := memlog.New()
		b := newBench(t, Options{Log: log})
		s, srv := b.open()
		say := func(what string) string {
			srv.send(logLine, what)
			synctest.Wait()
			return fmt.Sprintf(logLine, what)
		}
		a := say("a")
		r := s.AttachOwn(Oldest)
		got, _ := now(t, r)
		same(t, got, a)
		r.Beat() // it lived through one more heartbeat
		bb := say("b")
		got, _ = now(t, r)
		same(t, got, bb)
		r.Close() // it did not

		r = s.AttachOwn(Oldest)
		got, _ = now(t, r)
		same(t, got, bb)
		r.Beat()
		r.Close()
		r = s.AttachOwn(Oldest)
		if got, last := now(t, r); len(got) != 0 || !last.Wait {
			t.Errorf("history came again: %q", got)
		}
		r.Close()
		say("c")

		// A cursor is a proof too, and another process knows.
		res := b.resume(s, b.cursor(s, s.rec.Own, b.stat(s, s.rec.Own).Top), Oldest)
		if res.Result != Current || res.Reader == nil {
			t.Errorf("resuming the own stream: %+v", res)
		}
		res.Reader.Close()
		d := say("d")
		b2 := newBench(t, Options{Log: log})
		s2, err := b2.m.Open(t.Context(), "anon", s.ID())
		if err != nil {
			t.Fatal(err)
		}
		r = s2.AttachOwn(Oldest)
		got, _ = now(t, r)
		same(t, got, d)
		r.Close()
	})
}

// TestAStalledReaderHoldsUpNobody: promise 9.
func TestAStalledReaderHoldsUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{RetainEvents: 10}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		stalled := s.AttachCall(c, Oldest)
		defer stalled.Close()
		srv.progress(m, 1)
		synctest.Wait()
		// It takes one event to write, and never comes back.
		if d, err := stalled.Next(t.Context()); err != nil || len(d.Events) != 1 {
			t.Fatalf("%+v, %v", d, err)
		}
		for i := range 100 {
			srv.progress(m, i+2)
			synctest.Wait()
		}
		if info := b.stat(s, c.Stream); info.Top != 102 || info.Events != 102 {
			t.Errorf("a reader that may still move was overtaken: %+v", info)
		}
		time.Sleep(s.m.lim.WriteTimeout)
		for i := range 50 {
			srv.progress(m, i+102)
			synctest.Wait()
		}
		if info := b.stat(s, c.Stream); info.Top != 152 || info.Events > 13 {
			t.Errorf("a stalled reader keeps %+v", info)
		}
		got, _ := now(t, stalled)
		contains(t, got[0], `"reason":"slow_reader"`, `"after":2,"next":143,"lost":140`)
		if len(got) != 11 {
			t.Errorf("then it got %d events", len(got)-1)
		}
	})
}

func TestAMovingReaderIsNotOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{RetainEvents: 10, RetainBytes: 1000}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		r := s.AttachCall(c, Oldest)
		defer r.Close()
		sent, seen := 0, 0
		for seen < 1000 {
			for range 10 { // ten times as fast as it reads
				if sent < 1000 {
					sent++
					srv.progress(m, sent)
				}
			}
			synctest.Wait()
			d, err := r.Next(t.Context())
			if err != nil || d.Notice != nil {
				t.Fatalf("%s, %v", d.Notice, err)
			}
			for _, e := range d.Events {
				seen++
				contains(t, string(e.Data), fmt.Sprintf(`"progress":%d}`, seen))
				r.Sent(e.Seq, true)
				time.Sleep(29 * time.Second)
			}
		}
		r.Close()
		srv.progress(m, 0)
		synctest.Wait()
		if info := b.stat(s, c.Stream); info.Events > 13 {
			t.Errorf("after it left, %d events are kept", info.Events)
		}
	})
}

// A connection that takes the outcome alone passes over the rest: that is not
// kept for it.
func TestAReaderThatOnlyWaitsForTheOutcomeKeepsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{RetainEvents: 10}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		r := s.AttachCall(c, Oldest)
		defer r.Close()
		for i := range 200 {
			srv.progress(m, i)
			synctest.Wait()
			for d := (Delivery{}); !d.Wait; {
				var err error
				if d, err = r.Next(t.Context()); err != nil || d.Notice != nil {
					t.Fatalf("%+v, %v", d, err)
				}
			}
		}
		if info := b.stat(s, c.Stream); info.Events > 15 {
			t.Errorf("%d events are kept", info.Events)
		}
	})
}

// A hole that retention makes before a connection that moves, for want of room,
// is not the client's fault.
func TestAHoleForWantOfRoomIsNoSlowReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{SessionMax: 20000}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		r := s.AttachCall(c, Oldest)
		defer r.Close()
		srv.progress(m, 0)
		got, _ := now(t, r)
		if len(got) != 1 {
			t.Fatalf("%q", got)
		}
		for range 100 {
			srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"x":%q}}`, m.IDText(), strings.Repeat("x", 300))
			synctest.Wait()
		}
		got, _ = now(t, r)
		contains(t, got[0], `"reason":"`+notice.Retention+`"`, `"after":2`)
		if size := s.size(); size > 20000 {
			t.Errorf("the session has %d bytes", size)
		}
	})
}

func TestReadersOfAnEndedSessionEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		srv.recv()
		readers := []*Reader{s.AttachCall(c, Oldest), s.AttachOwn(Oldest), s.AttachOwn(Oldest)}
		for _, r := range readers {
			now(t, r)
		}
		go s.End(context.Background(), "DELETE")
		for i, r := range readers {
			<-r.C()
			if got, last := now(t, r); len(got) != 0 || !last.Ended {
				t.Errorf("reader %d: %q, %+v", i, got, last)
			}
			r.Close()
		}
	})
}

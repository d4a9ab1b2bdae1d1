package session

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/wire"
)

func TestCallStreamsProgressAndOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.call(s, `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x","_meta":{"progressToken":"tok"}}}`)
		m := srv.recv()
		if strings.Contains(string(m.Raw), "tok") {
			t.Errorf("the client's token reached the server: %s", m.Raw)
		}
		for i := range 2 {
			srv.progress(m, i)
		}
		srv.answer(m, `{"n":9007199254740993}`)
		r := s.AttachCall(c, Oldest)
		same(t, collect(t, r),
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":0}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok","progress":1}}`,
			`{"jsonrpc":"2.0","id":"a","result":{"n":9007199254740993}}`)
		id, err := r.PrimingID(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		if res := b.resume(s, id, Oldest); res.Result != Current || res.Reader != nil {
			t.Errorf("resuming at the end: %+v", res)
		}
	})
}

func TestField83_84_IdsComeBackAsTheyWere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		for _, id := range []string{`1`, `"1"`, `1.0`, `9007199254740993`, `"01"`, `""`, `"init-é"`, `1e3`, `0`, `-1`, `1774232524389`, `"\u0031"`} {
			c := b.tool(s, id)
			m := srv.recv()
			if _, own := wire.IntID(m.IDText()); !own {
				t.Errorf("%s reached the server as %s", id, m.IDText())
			}
			srv.progress(m, 1)
			// A sloppy server turns numbers into strings.
			srv.send(`{"jsonrpc":"2.0","id":"%s","result":{"x":9007199254740993,"y":1.10}}`, m.IDText())
			same(t, b.answers(s, c),
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`+id+`,"progress":1}}`,
				`{"jsonrpc":"2.0","id":`+id+`,"result":{"x":9007199254740993,"y":1.10}}`)
		}
	})
}

func TestField80_EqualIdsInFlightEachGetTheirOwnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		const text = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"n":%d}}}`
		first, second := b.call(s, text, 1), b.call(s, text, 2)
		m := [2]wire.Message{srv.recvOf(`"n":1`), srv.recvOf(`"n":2`)}
		srv.answer(m[1], `{"n":2}`)
		srv.answer(m[0], `{"n":1}`)
		same(t, b.answers(s, first), `{"jsonrpc":"2.0","id":1,"result":{"n":1}}`)
		same(t, b.answers(s, second), `{"jsonrpc":"2.0","id":1,"result":{"n":2}}`)
		if !s.rec.ReusesIDs {
			t.Error("the session is not marked")
		}
		// From now on the same bytes again are a call of their own.
		third := b.call(s, text, 2)
		srv.answer(srv.recv(), `{"n":3}`)
		same(t, b.answers(s, third), `{"jsonrpc":"2.0","id":1,"result":{"n":3}}`)
		synctest.Wait()
		raw, err := b.m.log.Record(t.Context(), s.name)
		if err != nil {
			t.Fatal(err)
		}
		contains(t, string(raw), `"reusesIds":true`)
	})
}

// recvOf receives the one message that contains the text; others were read before.
func (s *server) recvOf(text string) wire.Message {
	s.t.Helper()
	m := s.recv()
	if !strings.Contains(string(m.Raw), text) {
		s.t.Fatalf("%s was expected, got %s", text, m.Raw)
	}
	return m
}

func TestField51_NothingForACallThatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTally()
		b := newBench(t, Options{Meter: n})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		other := b.tool(s, `2`)
		m2 := srv.recv()
		srv.answer(m, `{}`)
		srv.progress(m, 1)
		srv.answer(m, `{"again":true}`)
		srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":77,"progress":1}}`)
		srv.answer(m2, `{}`)
		same(t, b.answers(s, c), `{"jsonrpc":"2.0","id":1,"result":{}}`)
		same(t, b.answers(s, other), `{"jsonrpc":"2.0","id":2,"result":{}}`)
		if got := n.of(metric.Dropped); got != 3 {
			t.Errorf("%d messages counted as dropped, want 3", got)
		}
	})
}

func TestField89_CancelEndsTheStreamWithoutAResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		s2, srv2 := b.open()
		c, c2 := b.tool(s, `5`), b.tool(s2, `5`)
		m, m2 := srv.recv(), srv2.recv()
		b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"5"}}`) // not the same id
		b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"reason":"why not"}}`)
		got := srv.recv()
		if string(got.Raw) != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+string(m.IDText())+`,"reason":"why not"}}` {
			t.Errorf("the server got %s", got.Raw)
		}
		srv.answer(m, `{"late":true}`)
		same(t, b.answers(s, c))
		if got := srv2.pending(); got != nil {
			t.Errorf("the other session's server got %s", got)
		}
		srv2.answer(m2, `{}`)
		same(t, b.answers(s2, c2), `{"jsonrpc":"2.0","id":5,"result":{}}`)
		b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
		if got := srv.pending(); got != nil {
			t.Errorf("a cancel for what has ended reached the server: %s", got)
		}
		if res := b.resume(s, b.cursor(s, c.Stream, 1), Oldest); res.Result != Current || res.Reader != nil {
			t.Errorf("resuming a cancelled call: %+v", res)
		}
	})
}

func TestACancelNeverOvertakesItsCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		gate := make(chan struct{})
		b.d.only = wire.ToolsCall
		b.d.gate.Store(&gate)
		called := make(chan *Call)
		go func() { called <- b.tool(s, `1`) }()
		synctest.Wait() // the call is recorded, and on its way to the server
		b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		synctest.Wait()
		close(gate)
		same(t, b.answers(s, <-called))
		synctest.Wait()
		var got []string
		for _, m := range srv.pending() {
			got = append(got, message(t, "%s", m).Method)
		}
		same(t, got, wire.ToolsCall, wire.Cancelled)
	})
}

func TestACallCancelledBeforeItsServerIsThereIsNotRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, init := b.create("anon")
		srv := b.server()
		c := b.tool(s, `1`)
		b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		same(t, b.answers(s, c))
		srv.greet()
		b.answers(s, init)
		if got := srv.pending(); got != nil {
			t.Errorf("the server got %s", got)
		}
	})
}

func TestField52_TheTotalTimeOfACallIsNotStretchedByProgress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{CallTimeout: 5 * time.Second}})
		s, srv := b.open()
		began := time.Now()
		c := b.tool(s, `1`)
		m := srv.recv()
		go func() {
			for i := range 10 {
				if srv.c.Send(t.Context(), fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.IDText(), i)) != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		got := b.answers(s, c)
		contains(t, got[len(got)-1], `"error"`, `call-timeout, 5s`, `"outcome":"unknown"`)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it ended after %v", took)
		}
		contains(t, string(srv.recv().Raw), "notifications/cancelled")
		time.Sleep(10 * time.Second)
	})
}

func TestACallNobodyIsConnectedToIsCancelledInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{Orphan: 10 * time.Minute, AskTimeout: time.Minute}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		r := s.AttachCall(c, Oldest)
		time.Sleep(30 * time.Minute)
		r.Close()
		time.Sleep(9 * time.Minute)
		r = s.AttachCall(c, Oldest) // in time
		r.Close()
		time.Sleep(9 * time.Minute)
		if got := srv.pending(); got != nil {
			t.Fatalf("the server got %s", got)
		}
		time.Sleep(time.Minute)
		contains(t, string(srv.recv().Raw), "notifications/cancelled")
		srv.answer(m, `{}`)
		got := b.answers(s, c)
		if len(got) != 1 {
			t.Fatalf("the call ended with %q", got)
		}
		contains(t, got[0], "nobody was connected to the call for 10m0s")
	})
}

// Outcome, cancel, the clocks and the server's end race for the same calls:
// each ends once.
func TestEveryCallEndsOnce(t *testing.T) {
	n := newTally()
	log := memlog.New()
	b := newBench(t, Options{Log: log, Meter: n, Limits: Limits{CallTimeout: time.Millisecond}})
	const rounds, calls = 20, 16
	for range rounds {
		s, srv := b.open()
		var all []*Call
		for i := range calls {
			all = append(all, b.call(s, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`, i+1))
		}
		go func() {
			for i := range calls {
				srv.c.Send(t.Context(), fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{}}`, i+2))
			}
			srv.c.Close()
		}()
		go func() {
			for i := range calls {
				s.Deliver(t.Context(), message(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i+1))
			}
		}()
		for i, c := range all {
			if got := b.answers(s, c); len(got) > 1 {
				t.Fatalf("call %d ended with %q", i, got)
			}
			checkEnd(t, log, eventlog.Key{Session: s.name, Stream: c.Stream})
		}
		if err := s.End(t.Context(), "DELETE"); err != nil {
			t.Fatal(err)
		}
	}
	if open := n.of(metric.StreamsOpen); open != 0 {
		t.Errorf("%d streams are counted as open", open)
	}
	if got := n.of(metric.Outcomes); got != rounds*(calls+1) {
		t.Errorf("%d outcomes for %d calls", got, rounds*(calls+1))
	}
}

func TestWhoComesSecondDoesNotEndACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		texts := []string{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`}
		c, err := s.Batch(t.Context(), []byte("["+strings.Join(texts, ",")+"]"), messages(t, texts), CallOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m := []wire.Message{srv.recv(), srv.recv()}
		one := s.callWith(func(c *call) bool { return string(c.id) == "1" })
		if !s.settle(one, []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`), "result") {
			t.Error("the first to come did not end it")
		}
		if s.settle(one, []byte(`{"jsonrpc":"2.0","id":1,"error":{}}`), "error") {
			t.Error("the second ended it again")
		}
		srv.answer(m[0], `{}`)
		srv.answer(m[1], `{}`)
		same(t, b.answers(s, c), `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":2,"result":{}}`)
	})
}

// checkEnd looks at what is in the log of a call that has ended.
func checkEnd(t *testing.T, log eventlog.Log, k eventlog.Key) {
	t.Helper()
	outcomes, ends := 0, 0
	for at := uint64(0); ; {
		page, err := log.Read(t.Context(), k, at, pageBytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			at = e.Seq
			switch e.Kind {
			case eventlog.Outcome:
				outcomes++
			case eventlog.End:
				ends++
			}
		}
		if len(page.Events) == 0 {
			break
		}
	}
	if outcomes > 1 || ends != 1 {
		t.Fatalf("%d outcomes and %d ends", outcomes, ends)
	}
}

// TestNothingIsSentBeforeItIsRecorded: the opening first, then the server.
func TestNothingIsSentBeforeItIsRecorded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := &flaky{Log: memlog.New()}
		b := newBench(t, Options{Log: log})
		s, srv := b.open()
		notes := len(s.kept)
		log.away.Store(true)
		_, err := s.Call(t.Context(), message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`), CallOptions{})
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Limit != "store" {
			t.Errorf("the call was answered with %v", err)
		}
		if got := srv.pending(); got != nil {
			t.Errorf("the server got %s", got)
		}
		if len(s.streams) != 1 || len(s.kept) != notes || len(s.byID) != notes {
			t.Errorf("%d streams, %d notes, %d ids are left of it", len(s.streams), len(s.kept), len(s.byID))
		}
		log.away.Store(false)
		c := b.call(s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
		srv.answer(srv.recv(), `{}`)
		same(t, b.answers(s, c), `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

func TestABatchIsOneStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		texts := []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`,
			`{"jsonrpc":"2.0","method":"notifications/x"}`,
			`{"jsonrpc":"2.0","id":2,"method":"ping"}`,
			`{"jsonrpc":"2.0","id":"3","method":"tools/list"}`,
		}
		c, err := s.Batch(t.Context(), []byte("["+strings.Join(texts, ",")+"]"), messages(t, texts), CallOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]wire.Message{}
		for range 3 {
			got := srv.recv()
			m[got.Method] = got
		}
		srv.answer(m[wire.ToolsList], `{"l":1}`)
		srv.answer(m[wire.ToolsCall], `{"c":1}`)
		same(t, b.answers(s, c), `{"jsonrpc":"2.0","id":2,"result":{}}`, `{"jsonrpc":"2.0","id":"3","result":{"l":1}}`, `{"jsonrpc":"2.0","id":1,"result":{"c":1}}`)
	})
}

func messages(t *testing.T, texts []string) (msgs []wire.Message) {
	for _, text := range texts {
		msgs = append(msgs, *message(t, "%s", text))
	}
	return msgs
}

func TestField86_WhatABatchMustNotHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{MaxBatch: 3}})
		s, srv := b.open()
		note := `{"jsonrpc":"2.0","method":"notifications/x"}`
		for _, texts := range [][]string{{note, initText}, {note, note, note, note}} {
			if c, err := s.Batch(t.Context(), []byte("["+strings.Join(texts, ",")+"]"), messages(t, texts), CallOptions{}); err == nil {
				t.Errorf("%q was taken: %v", texts, c)
			}
			if got := srv.pending(); got != nil {
				t.Errorf("a part of %q reached the server: %s", texts, got)
			}
		}
		if c, err := s.Batch(t.Context(), []byte("["+note+"]"), messages(t, []string{note}), CallOptions{}); c != nil || err != nil {
			t.Errorf("a batch without a request: %v, %v", c, err)
		}
	})
}

func TestPingAndLogLevelNeedNoServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, c := b.create("anon")
		srv := b.server()
		srv.answer(srv.recv(), `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{}}`)
		contains(t, b.answers(s, c)[0], `"logging":{}`, `"segno":{"onGap"`)
		if got := b.call(s, `{"jsonrpc":"2.0","id":1,"method":"ping"}`).Answer; string(got) != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("ping: %s", got)
		}
		if got := b.call(s, `{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"error"}}`).Answer; string(got) != `{"jsonrpc":"2.0","id":2,"result":{}}` || s.Level() != "error" {
			t.Errorf("setLevel: %s, level %q", got, s.Level())
		}
		contains(t, string(b.call(s, `{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"loud"}}`).Answer), "-32602")
		if got := srv.pending(); got != nil {
			t.Errorf("the server got %s", got)
		}
	})
}

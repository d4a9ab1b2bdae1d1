package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/notice"
)

func progressLine(token string, n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, n)
}

// running opens a call and lets it make progress n times, each an append of its own.
func (b *bench) running(s *Session, srv *server, id string, n int) (*Call, func(int)) {
	c := b.tool(s, id)
	m := srv.recv()
	more := func(n int) {
		srv.progress(m, n)
		synctest.Wait()
	}
	for i := range n {
		more(i + 1)
	}
	return c, more
}

func TestField16_17_18_ResumeAtEveryPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{RetainEvents: 5}})
		s, srv := b.open()
		c, _ := b.running(s, srv, `1`, 12) // progress n is seq n+1; 9 to 13 are kept
		for place := uint64(0); place <= 13; place++ {
			res := b.resume(s, b.cursor(s, c.Stream, place), Oldest)
			got, last := now(t, res.Reader)
			res.Reader.Close()
			want := []string{}
			result := Exact
			if place < 8 {
				result = Evicted
				lost := 8 - place
				if place == 0 {
					lost = 7 // the opening is not for clients
				}
				after := 8 - lost
				want = append(want, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"segno","data":{"gap":{"stream":"%s","reason":"retention","after":%d,"next":9,"lost":%d}}}}`, c.Stream, after, lost))
			}
			for n := max(place, 8); n < 13; n++ {
				want = append(want, progressLine("1", int(n)))
			}
			if place == 13 {
				result = Current
			}
			if res.Result != result || !last.Wait {
				t.Errorf("place %d: %s, then %+v", place, res.Result, last)
			}
			first, evicted, oldest := max(place, 8)+1, 8-min(place, 8), uint64(0)
			if place == 0 {
				evicted = 7
			}
			if evicted > 0 {
				oldest = 9 - evicted
			}
			if place == 13 {
				first = 0
			}
			if res.First != first || res.Evicted != evicted || res.Oldest != oldest || res.Top != 13 || res.Floor != 8 {
				t.Errorf("place %d: %+v", place, res)
			}
			same(t, got, want...)
		}
		// One beyond the end is not taken for one at the end.
		beyond := eventlog.Cursor{Stream: c.Stream, Term: b.stat(s, c.Stream).TermAt(13), Seq: 14}.String()
		res := b.resume(s, beyond, Oldest)
		got, _ := now(t, res.Reader)
		res.Reader.Close()
		if res.Result != Diverged || len(got) != 1 {
			t.Fatalf("%s: %q", res.Result, got)
		}
		contains(t, got[0], `"reason":"store","after":13,"next":14,"lost":1`)
	})
}

func TestANoticeStandsForThePlaceJustBeforeWhatFollows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{RetainEvents: 5}})
		s, srv := b.open()
		c, _ := b.running(s, srv, `1`, 12)
		res := b.resume(s, b.cursor(s, c.Stream, 2), Oldest)
		d, err := res.Reader.Next(t.Context())
		if err != nil || d.Notice == nil {
			t.Fatalf("%+v, %v", d, err)
		}
		res.Reader.Close()
		again := b.resume(s, d.NoticeID, Oldest)
		if again.Result != Exact || again.After != 8 || again.First != 9 {
			t.Errorf("from the notice: %+v", again)
		}
		again.Reader.Close()
		at, err := eventlog.ParseCursor(res.PrimingID)
		if err != nil || at.Seq != 2 || at.Again == "" {
			t.Errorf("the priming id stands for %+v", at)
		}
		one, two := b.resume(s, res.PrimingID, Oldest), b.resume(s, res.PrimingID, Oldest)
		if one.PrimingID == two.PrimingID || one.PrimingID == res.PrimingID {
			t.Error("the same priming id twice")
		}
		one.Reader.Close()
		two.Reader.Close()
	})
}

func TestField20_OnlyTheStreamOfTheCursorIsReplayed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		a := b.tool(s, `"a"`)
		ma := srv.recv()
		c := b.tool(s, `"b"`)
		mb := srv.recv()
		for i := range 3 {
			srv.progress(ma, i)
			srv.progress(mb, i)
			srv.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
		srv.answer(ma, `{}`)
		synctest.Wait()
		res := b.resume(s, b.cursor(s, a.Stream, 2), Oldest)
		same(t, collect(t, res.Reader), progressLine(`"a"`, 1), progressLine(`"a"`, 2), `{"jsonrpc":"2.0","id":"a","result":{}}`)
		res.Reader.Close()
		srv.answer(mb, `{}`)
		if got := b.answers(s, c); len(got) != 4 {
			t.Errorf("the other call got %q", got)
		}
		r := s.AttachOwn(Oldest)
		defer r.Close()
		if got, _ := now(t, r); len(got) != 3 {
			t.Errorf("the session's stream has %q", got)
		}
	})
}

// TestField21_ForeignCursors: promise 7.
func TestField21_76_NothingCrosses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.openAs("victim")
		c, _ := b.running(s, srv, `1`, 3)
		own := b.cursor(s, s.rec.Own, 1)
		other, _ := b.openAs("victim") // the same principal's other session
		foreign, _ := b.openAs("attacker")
		for _, from := range []*Session{other, foreign} {
			for _, id := range []string{b.cursor(s, c.Stream, 2), own, b.cursor(s, c.Stream, 99), "nonsense", strings.Repeat("x", 5000)} {
				res := b.resume(from, id, Oldest)
				if res.Result != Unknown || res.Reader != nil || res.Answers != nil || strings.Contains(string(res.Notice), c.Stream) {
					t.Errorf("%s: %+v", id, res)
				}
				if err := from.Ack(t.Context(), id); err != eventlog.ErrCursor {
					t.Errorf("acknowledging it: %v", err)
				}
				if again := b.resume(from, res.NoticeID, Oldest); again.Result != Dead || again.Notice != nil {
					t.Errorf("from the notice's id: %+v", again)
				}
			}
		}
		for _, id := range []string{s.ID(), s.ID() + "&owner=victim", "", "x"} {
			if got, err := b.m.Open(t.Context(), "attacker", id); err != eventlog.ErrNoSession {
				t.Errorf("the session was opened: %v, %v", got, err)
			}
		}
		if got, err := b.m.Open(t.Context(), "victim", s.ID()); got != s || err != nil {
			t.Errorf("its owner got %v, %v", got, err)
		}
	})
}

func TestField27_ResumeAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		res := b.resume(s, b.cursor(s, c.Stream, 1), Oldest)
		if _, last := now(t, res.Reader); res.Result != Current || !last.Wait {
			t.Errorf("%s, then %+v", res.Result, last)
		}
		srv.answer(m, `{}`)
		same(t, collect(t, res.Reader), `{"jsonrpc":"2.0","id":1,"result":{}}`)
		res.Reader.Close()
		for place := uint64(2); place <= 3; place++ {
			if res := b.resume(s, b.cursor(s, c.Stream, place), Oldest); res.Result != Current || res.Reader != nil {
				t.Errorf("a finished call at %d: %+v", place, res)
			}
		}
	})
}

// Where nothing for the client follows, an empty stream would be asked for
// again and again.
func TestResumeOfACancelledCallThatAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		srv.recv()
		srv.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		r := s.AttachCall(c, Oldest)
		got, _ := now(t, r)
		b.deliver(s, `{"jsonrpc":"2.0","id":%s,"result":{}}`, asked(t, got[0]))
		b.deliver(s, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		same(t, collect(t, r))
		r.Close()
		if res := b.resume(s, b.cursor(s, c.Stream, 1), Oldest); res.Result != Current || res.Reader != nil {
			t.Errorf("%+v", res)
		}
	})
}

func TestPolicyLive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTally()
		b := newBench(t, Options{Limits: Limits{RetainEvents: 5}, Meter: n})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		srv.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`) // seq 2, open
		synctest.Wait()
		for i := range 10 { // seq 3 to 12, 8 to 12 are kept
			srv.progress(m, i)
			synctest.Wait()
		}
		res := b.resume(s, b.cursor(s, c.Stream, 1), Live)
		got, _ := now(t, res.Reader)
		if res.Result != Evicted || res.First != 2 || res.Evicted != 5 || res.Oldest != 3 || res.Top != 12 || len(got) != 3 {
			t.Fatalf("%+v: %q", res, got)
		}
		contains(t, got[0], "elicitation/create")
		contains(t, got[1], `"reason":"retention","after":2,"next":8,"lost":5`)
		contains(t, got[2], `"reason":"policy","after":7,"next":13,"lost":5`)
		for _, reason := range []string{notice.Retention, notice.Policy} {
			if got := n.labelled(metric.Gaps, reason); got != 1 {
				t.Errorf("%d gaps by %s counted", got, reason)
			}
		}
		srv.progress(m, 99)
		got, _ = now(t, res.Reader)
		same(t, got, progressLine("1", 99))
		res.Reader.Close()

		// Without a hole the policy changes nothing.
		res = b.resume(s, b.cursor(s, c.Stream, 10), Live)
		if got, _ := now(t, res.Reader); len(got) != 3 {
			t.Errorf("%q", got)
		}
		res.Reader.Close()

		// The outcome always comes.
		srv.answer(m, `{}`)
		synctest.Wait()
		res = b.resume(s, b.cursor(s, c.Stream, 3), Live)
		got = collect(t, res.Reader)
		res.Reader.Close()
		if len(got) < 2 {
			t.Fatalf("%q", got)
		}
		if got[len(got)-1] != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("the outcome is missing: %q", got)
		}
		contains(t, got[0], `"after":3`)
	})
}

func TestPolicyError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{RetainEvents: 5}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		for i := range 10 {
			srv.progress(m, i)
			synctest.Wait()
		}
		res := b.resume(s, b.cursor(s, c.Stream, 2), Fail)
		got := collect(t, res.Reader)
		res.Reader.Close()
		if res.Result != Evicted || res.First != 0 || res.Evicted != 4 || len(got) != 3 {
			t.Fatalf("%+v: %q", res, got)
		}
		hole := fmt.Sprintf(`"gap":{"stream":"%s","reason":"retention","after":2,"next":7,"lost":4}`, c.Stream)
		contains(t, got[0], hole)
		contains(t, got[1], `"reason":"policy","after":6,"next":12,"lost":5`)
		contains(t, got[2], `"id":1,"error"`, "Segno-On-Gap", hole)
		contains(t, string(srv.recv().Raw), "notifications/cancelled")
		srv.answer(m, `{"late":1}`)
		// It is the call's one outcome, for everybody.
		again := b.answers(s, c)
		if again[len(again)-1] != got[2] {
			t.Errorf("another connection got %q", again)
		}

		// A call that has its outcome gets it.
		c = b.tool(s, `2`)
		m = srv.recv()
		for i := range 10 {
			srv.progress(m, i)
			synctest.Wait()
		}
		srv.answer(m, `{}`)
		synctest.Wait()
		res = b.resume(s, b.cursor(s, c.Stream, 2), Fail)
		got = collect(t, res.Reader)
		res.Reader.Close()
		if len(got) != 3 || got[2] != `{"jsonrpc":"2.0","id":2,"result":{}}` {
			t.Errorf("%q", got)
		}
	})
}

func TestDivergedThenByPolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c, _ := b.running(s, srv, `1`, 3) // seq 2 to 4
		unknownTerm := eventlog.Cursor{Stream: c.Stream, Term: "xxxxxx", Seq: 3}.String()
		res := b.resume(s, unknownTerm, Oldest)
		got, _ := now(t, res.Reader)
		res.Reader.Close()
		if res.Result != Diverged || res.After != 0 || len(got) != 4 {
			t.Fatalf("%+v: %q", res, got)
		}
		contains(t, got[0], `"reason":"store","after":0,"next":2,"lost":3`)

		res = b.resume(s, unknownTerm, Live)
		got, _ = now(t, res.Reader)
		res.Reader.Close()
		if len(got) != 2 || res.Result != Diverged || res.Evicted != 0 {
			t.Fatalf("%+v: %q", res, got)
		}
		contains(t, got[0], `"reason":"store","after":0,"next":2,"lost":3`)
		contains(t, got[1], `"reason":"policy","after":1,"next":5,"lost":3`)

		res = b.resume(s, unknownTerm, Fail)
		got = collect(t, res.Reader)
		res.Reader.Close()
		if len(got) != 3 {
			t.Fatalf("%q", got)
		}
		contains(t, got[2], `"id":1,"error"`, `"reason":"store","after":0,"next":2,"lost":3`)
	})
}

func TestACursorBeyondTheEndProvesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		srv.answer(srv.recv(), `{}`)
		synctest.Wait()
		info := b.stat(s, c.Stream)
		res := b.resume(s, eventlog.Cursor{Stream: c.Stream, Term: info.TermAt(3), Seq: 4}.String(), Oldest)
		res.Reader.Close()
		if s.keptOf(c.Stream).proven.Load() {
			t.Error("the outcome counts as received")
		}
	})
}

func TestGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		drop := func(c *Call, proven bool) {
			t.Helper()
			synctest.Wait()
			k := s.keptOf(c.Stream)
			k.idsOut.Store(true)
			k.proven.Store(proven)
			s.streamFor(c.Stream).received(0)
			if s.drop(k) == 0 {
				t.Fatal("the stream was not dropped")
			}
		}
		c := b.tool(s, `"one"`)
		srv.answer(srv.recv(), `{}`)
		synctest.Wait()
		id := b.cursor(s, c.Stream, 1)
		drop(c, false)
		res := b.resume(s, id, Oldest)
		if res.Result != GoneCall || res.Reader != nil || len(res.Answers) != 1 {
			t.Fatalf("%+v", res)
		}
		contains(t, string(res.Notice), `"reason":"gone"`, c.Stream)
		contains(t, string(res.Answers[0]), `"id":"one","error"`, `"outcome":"unknown"`)
		for _, id := range []string{res.PrimingID, res.NoticeID, res.AnswerID} {
			if again := b.resume(s, id, Oldest); again.Result != Dead {
				t.Errorf("from %s: %+v", id, again)
			}
		}

		texts := []string{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`, `{"jsonrpc":"2.0","id":"2","method":"ping"}`}
		c, err := s.Batch(t.Context(), []byte("["+strings.Join(texts, ",")+"]"), messages(t, texts), CallOptions{})
		if err != nil {
			t.Fatal(err)
		}
		srv.answer(srv.recv(), `{}`)
		synctest.Wait()
		id = b.cursor(s, c.Stream, 1)
		drop(c, false)
		res = b.resume(s, id, Oldest)
		if len(res.Answers) != 2 {
			t.Fatalf("a batch: %+v", res)
		}
		contains(t, string(res.Answers[0]), `"id":1,"error"`)
		contains(t, string(res.Answers[1]), `"id":"2","error"`)

		c = b.tool(s, `3`)
		srv.answer(srv.recv(), `{}`)
		synctest.Wait()
		id = b.cursor(s, c.Stream, 1)
		drop(c, true)
		if res = b.resume(s, id, Oldest); res.Result != GoneCall || res.Notice == nil || res.Answers != nil {
			t.Errorf("the client has its outcome and gets %+v", res)
		}
	})
}

func TestField26_ReplayIsIndependentOfTheClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		for i := range 200 { // within no time at all
			srv.progress(m, i)
		}
		synctest.Wait()
		res := b.resume(s, b.cursor(s, c.Stream, 101), Oldest)
		got, _ := now(t, res.Reader)
		res.Reader.Close()
		for i, line := range got {
			if line != progressLine("1", 100+i) {
				t.Fatalf("event %d is %s", i, line)
			}
		}
		if len(got) != 100 {
			t.Errorf("%d events", len(got))
		}
	})
}

// TestField23: written is not received.
func TestField23_TheOutcomeStaysUntilItIsProven(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Log: memlog.New(), Limits: Limits{RetainAge: time.Minute, Grace: 30 * time.Minute}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		srv.progress(m, 1)
		srv.answer(m, `{"n":1}`)
		if got := b.answers(s, c); len(got) != 2 {
			t.Fatalf("%q", got)
		}
		time.Sleep(20 * time.Minute) // the progress is gone, and all that was in memory
		if s.keptOf(c.Stream) != nil || s.liveStream(c.Stream) != nil {
			t.Error("an ended call costs memory for ever")
		}
		res := b.resume(s, b.cursor(s, c.Stream, 1), Oldest)
		got := collect(t, res.Reader)
		res.Reader.Close()
		if len(got) != 2 {
			t.Fatalf("%q", got)
		}
		contains(t, got[0], `"lost":1`)
		if got[1] != `{"jsonrpc":"2.0","id":1,"result":{"n":1}}` {
			t.Errorf("the outcome is %s", got[1])
		}
	})
}

// A resume is foreign if its session was with another instance until now: not
// after a restart under the same name, and once where it was taken over.
func TestForeignResumes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := memlog.New()
		b := newBench(t, Options{Log: log, Instance: "aaaa"})
		s, srv := b.open()
		c, _ := b.running(s, srv, `1`, 3)
		id, cursor := s.ID(), b.cursor(s, c.Stream, 2)
		for i, next := range []struct {
			instance, owner string
			foreign         int64
		}{{"aaaa", "aaaa", 0}, {"bbbb", "aaaa", 1}, {"bbbb", "bbbb", 0}, {"aaaa", "bbbb", 1}} {
			n := newTally()
			b := newBench(t, Options{Log: log, Instance: next.instance, Meter: n})
			s, err := b.m.Open(t.Context(), "anon", id)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for round, owner := range []string{next.owner, next.instance} {
				res := b.resume(s, cursor, Oldest)
				res.Reader.Close()
				if res.Owner != owner {
					t.Errorf("process %d, resume %d: the session was with %s, want %s", i, round, res.Owner, owner)
				}
			}
			if got := n.of(metric.ForeignResumes); got != next.foreign {
				t.Errorf("process %d: %d foreign resumes counted, want %d", i, got, next.foreign)
			}
		}
		n := newTally()
		b = newBench(t, Options{Instance: "cccc", Meter: n})
		for _, id := range []string{id, newID("aaaa"), newID("cccc"), "nonsense", "AAAA" + id[4:]} {
			if _, err := b.m.Open(t.Context(), "anon", id); err != eventlog.ErrNoSession {
				t.Errorf("%s: %v", id, err)
			}
		}
		if got := n.of(metric.ForeignResumes); got != 2 {
			t.Errorf("%d requests for sessions of others counted, want 2", got)
		}
	})
}

package streamable

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/wire"
)

func isPriming(id string, data []byte) bool { return id != "" && len(data) == 0 }

func TestField24_CutCallGoesOnWhereItStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		s := r.stream(r.post(id, callTool, `1`))
		m := child.recv()
		ids := map[string]bool{}
		e := s.next()
		if !isPriming(e.ID, e.Data) || e.Name != "" {
			t.Fatalf("the first event is %+v, want a priming one", e)
		}
		ids[e.ID] = true
		last := ""
		for n := 1; n <= 2; n++ {
			began := time.Now()
			child.progress(&m, n)
			e := s.next()
			if waited := time.Since(began); waited > time.Second {
				t.Fatalf("a single event took %v", waited)
			}
			if e.ID == "" || ids[e.ID] || !strings.Contains(string(e.Data), fmt.Sprintf(`"progress":%d`, n)) {
				t.Fatalf("event %d is %+v", n, e)
			}
			ids[e.ID], last = true, e.ID
		}
		r.net.Cut()
		child.progress(&m, 3)
		for range 3 { // quiet reconnects, as a client makes that only keeps the newest id
			s := r.stream(r.resume(id, last))
			e := s.next()
			if !isPriming(e.ID, e.Data) || ids[e.ID] {
				t.Fatalf("a resumed stream begins with %+v, want a new priming event", e)
			}
			ids[e.ID], last = true, e.ID
			r.net.Cut()
		}
		s = r.stream(r.resume(id, last))
		if e := s.next(); !isPriming(e.ID, e.Data) {
			t.Fatalf("a resumed stream begins with %+v", e)
		}
		child.answer(&m, `{"content":[]}`)
		rest := s.rest()
		if len(rest) != 2 || !strings.Contains(string(rest[0].Data), `"progress":3`) || string(rest[1].Data) != `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}` {
			t.Fatalf("the rest is %q", rest)
		}
		if got := r.logs.lines("msg=resume", "result=exact", "stream="); len(got) == 0 {
			t.Error("no log line tells of the exact resume")
		}
	})
}

func TestPrimingDependsOnTheRevisionAskedFor(t *testing.T) {
	for _, c := range []struct {
		asked, answered string
		primes          bool
	}{
		{"2025-11-25", "2025-11-25", true},
		{"2025-11-25", "2025-06-18", true},
		{"2025-06-18", "2025-06-18", false},
		{"2025-03-26", "2025-11-25", false},
	} {
		t.Run(c.asked+" answered "+c.answered, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, setup{})
				res := make(chan *http.Response, 1)
				go func() {
					got, err := r.client.Do(r.request("POST", "", initialize(c.asked)))
					if err != nil {
						t.Error(err)
					}
					res <- got
				}()
				child := &child{t: t, conn: <-r.conns}
				m := child.recv()
				child.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`, m.IDText(), c.answered)
				got := <-res
				id := got.Header.Get("Mcp-Session-Id")
				got.Body.Close()
				post := r.post(id, callTool, `1`)
				first := make([]byte, 1)
				if _, err := post.Body.Read(first); err != nil {
					t.Fatal(err)
				}
				call := child.recv()
				child.answer(&call, `{}`)
				all := string(first) + text(t, post)
				if c.primes != strings.HasPrefix(all, "id: ") || c.primes != strings.Contains(all, "\nretry: ") || c.primes != strings.Contains(all, "data: \n") {
					t.Errorf("the stream is %q", all)
				}
				if !c.primes && !strings.HasPrefix(all, ":\n") {
					t.Errorf("the first bytes are %q, want a comment", all[:2])
				}
				if !strings.Contains(all, `data: {"jsonrpc":"2.0","id":1,"result":{}}`+"\n\n") {
					t.Errorf("no outcome in %q", all)
				}
			})
		})
	}
}

func TestStrictReaderGetsNoRetryLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		r.agent = "Java-http-client/21.0.2"
		id, child := r.open("2025-11-25")
		res := r.post(id, callTool, `1`)
		m := child.recv()
		child.answer(&m, `{}`)
		if got := text(t, res); !strings.HasPrefix(got, "id: ") || strings.Contains(got, "retry:") {
			t.Errorf("the stream is %q", got)
		}
	})
}

func TestField11_OlderClientResumesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-06-18")
		s := r.stream(r.post(id, callTool, `1`))
		m := child.recv()
		child.progress(&m, 1)
		e := s.next()
		if len(e.Data) == 0 || e.ID == "" {
			t.Fatalf("the first event is %+v", e)
		}
		r.net.Cut()
		child.progress(&m, 2)
		child.answer(&m, `{}`)
		rest := r.stream(r.resume(id, e.ID)).rest()
		if len(rest) != 2 || len(rest[0].Data) == 0 {
			t.Fatalf("the rest is %q", rest)
		}
	})
}

func TestField17_EvictedCursorIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{limits: session.Limits{RetainEvents: 5}})
		id, child := r.open("2025-11-25")
		s := r.stream(r.post(id, callTool, `1`))
		m := child.recv()
		s.next()
		child.progress(&m, 0)
		first := s.next()
		r.net.Cut()
		synctest.Wait()
		for n := 1; n <= 30; n++ {
			child.progress(&m, n)
			synctest.Wait()
		}
		res := r.resume(id, first.ID)
		s = r.stream(res)
		if e := s.next(); !isPriming(e.ID, e.Data) {
			t.Fatalf("begins with %+v", e)
		}
		notice := s.next()
		if !strings.Contains(string(notice.Data), `"gap":{`) || notice.ID == "" {
			t.Fatalf("after it comes %+v, want a notice with an id", notice)
		}
		child.answer(&m, `{}`)
		rest := s.rest()
		if len(rest) < 2 || !strings.Contains(string(rest[len(rest)-1].Data), `"result"`) {
			t.Fatalf("the rest is %q", rest)
		}
	})
}

func TestUnknownCursorIsToldInTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, _ := r.open("2025-11-25")
		for _, cursor := range []string{"nonsense", "AAAAAAAAAAAAAAAAAAAAAA.abcdef.3", strings.Repeat("x", 300), "1", "_0"} {
			events := r.stream(r.resume(id, cursor)).rest()
			if len(events) != 2 || !isPriming(events[0].ID, events[0].Data) {
				t.Fatalf("%q: %q", cursor, events)
			}
			notice := events[1]
			if !strings.Contains(string(notice.Data), `"reason":"unknown"`) || !strings.HasSuffix(notice.ID, ".x") {
				t.Errorf("%q: the notice is %+v", cursor, notice)
			}
			if res := r.resume(id, notice.ID); res.StatusCode != http.StatusNoContent {
				t.Errorf("resuming from the notice: %s", res.Status)
			}
		}
		if got := r.logs.lines("msg=resume", "result=unknown"); len(got) != 5 {
			t.Errorf("%d log lines tell of an unknown cursor", len(got))
		}
	})
}

func TestField27_NothingToReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		s := r.stream(r.post(id, callTool, `1`))
		m := child.recv()
		s.next()
		child.progress(&m, 1)
		newest := s.next()
		r.net.Cut()
		began := time.Now()
		s = r.stream(r.resume(id, newest.ID))
		if e := s.next(); !isPriming(e.ID, e.Data) || time.Since(began) > time.Second {
			t.Fatalf("begins with %+v after %v", e, time.Since(began))
		}
		child.progress(&m, 2)
		if e := s.next(); !strings.Contains(string(e.Data), `"progress":2`) {
			t.Fatalf("goes live with %s", e.Data)
		}
		child.answer(&m, `{}`)
		rest := s.rest()
		if len(rest) != 1 {
			t.Fatalf("the rest is %q", rest)
		}
		for range 2 {
			if res := r.resume(id, rest[0].ID); res.StatusCode != http.StatusNoContent || res.ContentLength > 0 {
				t.Errorf("a call that is over: %s", res.Status)
			}
		}
	})
}

func TestField95_SecondConnectionTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		older := r.stream(r.resume(id, ""))
		older.next()
		var newest *stream
		for range 4 {
			newest = r.stream(r.resume(id, ""))
			newest.next()
		}
		child.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		if e := newest.next(); !strings.Contains(string(e.Data), "list_changed") {
			t.Fatalf("the newest got %s", e.Data)
		}
		if rest := older.rest(); len(rest) != 0 {
			t.Errorf("one that was given up got %q", rest)
		}
		synctest.Wait()
		if got := r.logs.lines("connection ended", "why=superseded"); len(got) != 2 {
			t.Errorf("%d connections ended as superseded, want 2 of 5", len(got))
		}
	})
}

func TestGoneCallEndsWithItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{limits: session.Limits{SessionMax: 300 << 10}})
		id, child := r.open("2025-11-25")
		s := r.stream(r.post(id, callTool, `"early"`))
		m := child.recv()
		priming := s.next()
		child.answer(&m, `{}`)
		r.net.Cut()
		for n := range 8 {
			s := r.stream(r.post(id, callTool, fmt.Sprint(n)))
			m := child.recv()
			child.answer(&m, fmt.Sprintf("%q", strings.Repeat("x", 100<<10)))
			rest := s.rest()
			// What was received may go first.
			r.resume(id, rest[len(rest)-1].ID)
		}
		synctest.Wait()
		events := r.stream(r.resume(id, priming.ID)).rest()
		// Either the outcome is still there, or the call ends with an error.
		last := events[len(events)-1]
		if !strings.Contains(string(last.Data), `"id":"early"`) {
			t.Fatalf("the call was left without an answer: %q", events)
		}
	})
}

func TestResumeTakesThePolicyOfItsHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{limits: session.Limits{RetainEvents: 5}})
		id, child := r.open("2025-11-25")
		s := r.stream(r.post(id, callTool, `1`))
		m := child.recv()
		s.next()
		child.progress(&m, 0)
		first := s.next()
		r.net.Cut()
		synctest.Wait()
		for n := 1; n <= 30; n++ {
			child.progress(&m, n)
			synctest.Wait()
		}
		q := r.request("GET", id, "")
		q.Header.Set("Last-Event-ID", first.ID)
		q.Header.Set("Segno-On-Gap", "error")
		events := r.stream(r.do(q)).rest()
		last := events[len(events)-1]
		if p, err := wire.Parse(last.Data); err != nil || p.Kind != wire.Failure {
			t.Fatalf("the call ended with %s", last.Data)
		}
		if c := child.recv(); c.Method != wire.Cancelled {
			t.Errorf("the server got %s, want a cancel", c.Raw)
		}
	})
}

// With a hole, what is lost and what the client does not want are told apart,
// and the log says how many of this client's events are gone.
func TestField17_WhatIsLostAndWhatIsNotWantedAreToldApart(t *testing.T) {
	for _, c := range []struct {
		wants    string
		counts   int64
		contains []string
	}{
		{"live", 0, []string{`"reason":"retention","after":12,"next":27,"lost":14`, `"reason":"policy","after":26,"next":32,"lost":5`, `"result"`}},
		{"error", 0, []string{`"reason":"retention","after":12,"next":27,"lost":14`, `"reason":"policy","after":26,"next":32,"lost":5`, `"reason":"retention","after":12,"next":27,"lost":14`}},
		{"everything", 1, []string{`"reason":"retention","after":12,"next":27,"lost":14`, `"progress":26`, `"progress":27`, `"progress":28`, `"progress":29`, `"progress":30`, `"result"`}},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &counter{}
			r := newRig(t, setup{limits: session.Limits{RetainEvents: 5}, meter: n})
			id, child := r.open("2025-11-25")
			s := r.stream(r.post(id, callTool, `1`))
			m := child.recv()
			s.next()
			last := ""
			for i := 1; i <= 30; i++ {
				child.progress(&m, i)
				synctest.Wait()
				if i <= 11 {
					last = s.next().ID
				}
				if i == 11 {
					r.net.Cut()
					synctest.Wait()
				}
			}
			q := r.request("GET", id, "")
			q.Header.Set("Last-Event-ID", last)
			q.Header.Set("Segno-On-Gap", c.wants)
			s = r.stream(r.do(q))
			s.next()
			synctest.Wait()
			if c.wants != "error" {
				child.answer(&m, `{}`)
			}
			events := s.rest()
			if len(events) != len(c.contains) {
				t.Fatalf("%s: %q", c.wants, events)
			}
			for i, want := range c.contains {
				if !strings.Contains(string(events[i].Data), want) {
					t.Errorf("%s: event %d is %s, want %s", c.wants, i, events[i].Data, want)
				}
			}
			first := "first=27"
			if c.wants != "everything" {
				first = "first=0"
			}
			if got := r.logs.lines("msg=resume", "result=evicted", "after=12", first, "top=31", "evicted=14", "oldest_evicted=13", "floor=26", "owner=test"); len(got) != 1 {
				t.Errorf("%s: %q", c.wants, r.logs.lines("msg=resume"))
			}
			if got := n.of(metric.Errors, "on_gap"); got != c.counts || int64(len(r.logs.lines("Segno-On-Gap", "value=everything"))) != c.counts {
				t.Errorf("%s: counted as no policy %d times", c.wants, got)
			}
		})
	}
}

func TestGoneBatchIsAnsweredCallByCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, _ := r.open("2025-03-26")
		s, err := r.man.Open(t.Context(), "ann", id)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		x := &exchange{f: r.front, w: w, rc: http.NewResponseController(w), r: r.request("GET", id, ""), s: s}
		res := &session.Resumption{PrimingID: "p", NoticeID: "n", Notice: []byte(`{"gap":1}`), AnswerID: "a",
			Answers: [][]byte{[]byte(`{"id":1}`), []byte(`{"id":2}`), []byte(`{"id":3}`)}}
		if err := x.told(s, res); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`data: {"gap":1}`, `data: {"id":1}`, `data: {"id":2}`, `data: {"id":3}`} {
			if got := w.Body.String(); strings.Count(got, want+"\n\n") != 1 {
				t.Errorf("%s is not there once in %q", want, got)
			}
		}
	})
}

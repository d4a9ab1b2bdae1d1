package remote

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/memnet"
	"github.com/segno-mcp/segno/internal/wire"
)

// breaks ends an answer as a reset does.
func breaks() { panic(http.ErrAbortHandler) }

func event(id, data string) string { return "id: " + id + "\ndata: " + data + "\n\n" }

func answerTo(h *hit) string { return result(string(h.msg.IDText()), `{"ok":true}`) }

// TestCursorIsKeptOverConnections: the cursor is the call's, not that of one
// response.
func TestCursorIsKeptOverConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		s.call = func(h *hit) {
			h.stream()
			h.write("retry: 100\n%s", event("a", progress("7", 1)))
			breaks()
		}
		s.get = func(h *hit, n int) {
			switch {
			case h.cursor == "":
				h.w.WriteHeader(http.StatusMethodNotAllowed)
			case n < 5: // nothing at all, by turns cleanly and not
				h.stream()
				if n%2 == 0 {
					breaks()
				}
			default:
				h.stream()
				h.write("%s", event("b", progress("7", 2))+event("c", answerTo(s.all("tools/call")[0])))
			}
		}
		r := newRig(t, s, Options{})
		r.init()
		r.callTool("7")
		contains(t, r.within(time.Minute, "7"), `"ok":true`)
		for _, g := range s.all("GET")[1:] {
			if g.cursor != "a" {
				t.Errorf("resumed from %q", g.cursor)
			}
		}
		if n := r.count(wire.ProgressNote); n != 2 || len(s.all("tools/call")) != 1 {
			t.Errorf("%d progress, %d calls", n, len(s.all("tools/call")))
		}
		synctest.Wait()
		sums := r.rec.Sums()
		if sums.Events != 3 || sums.Duplicates != 0 || sums.Empty != 3 || sums.Reconnects != 4 {
			t.Errorf("recorded %+v", sums)
		}
		for _, e := range r.rec.Reconnects() {
			if e.Stream == "7" && (e.Cursor != "a" || e.At.IsZero() || e.Status != 200) {
				t.Errorf("recorded %+v", e)
			}
		}
	})
}

func TestField12_CursorFollowsTheIDs(t *testing.T) {
	for _, c := range []struct {
		name, stream, want string
		lost               bool
	}{
		{"NUL is ignored", "id: 7\ndata: {}\n\nid: a\x00b\ndata: {}\n\ndata: {}\n\n", "7", false},
		{"id alone", "id: 7\ndata: {}\n\nid: 8\n\n", "8", false},
		{"unfinished", "id: 7\ndata: {}\n\nid: 8\ndata: {}\n", "7", false},
		{"taken back", "id: 7\ndata: {}\n\nid\ndata: {}\n\n", "", true},
		{"no header text", "id: 7\ndata: {}\n\nid: a\x01b\ndata: {}\n\n", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &scripted{}
				s.call = func(h *hit) {
					h.stream()
					h.write("%s", c.stream)
					breaks()
				}
				s.get = func(h *hit, n int) {
					if n == 1 {
						h.w.WriteHeader(http.StatusMethodNotAllowed)
						return
					}
					h.stream()
					h.write("data: %s\n\n", answerTo(s.all("tools/call")[0]))
				}
				r := newRig(t, s, Options{})
				r.init()
				r.callTool("7")
				got := r.within(time.Minute, "7")
				if c.lost {
					contains(t, got, `"outcome":"unknown"`)
					return
				}
				contains(t, got, `"ok":true`)
				if g := s.all("GET")[1]; g.cursor != c.want {
					t.Errorf("resumed from %q, want %q", g.cursor, c.want)
				}
			})
		})
	}
}

func TestField12_RetryIsHonoured(t *testing.T) {
	for _, c := range []struct {
		retry    string
		min, max time.Duration
	}{
		{"retry: 5000\n", 5 * time.Second, 6 * time.Second},
		{"retry: 5000abc\n", 0, time.Second},
		{"retry: 0\n", 0, time.Second},
		{"retry: 99999999999\n", maxRetry, maxRetry + time.Second},
	} {
		t.Run(c.retry, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &scripted{}
				var at atomic.Int64
				s.call = func(h *hit) {
					h.stream()
					h.write("%sid: 1\ndata:\n\n", c.retry)
					at.Store(time.Now().UnixNano())
				}
				s.get = func(h *hit, n int) {
					if n == 1 {
						h.w.WriteHeader(http.StatusMethodNotAllowed)
						return
					}
					h.stream()
					h.write("data: %s\n\n", answerTo(s.all("tools/call")[0]))
				}
				r := newRig(t, s, Options{})
				r.init()
				r.callTool("7")
				r.answer("7")
				if d := s.all("GET")[1].at.Sub(time.Unix(0, at.Load())); d < c.min || d > c.max {
					t.Errorf("came back after %v", d)
				}
			})
		})
	}
}

// TestDuplicatesAreDropped: a server that replays from the cursor on, and not
// from behind it, or from the start.
func TestDuplicatesAreDropped(t *testing.T) {
	for _, from := range []int{1, 3} {
		bubble(t, func(t *testing.T) {
			s := &scripted{}
			s.call = func(h *hit) {
				h.stream()
				for n := 1; n <= 3; n++ {
					h.write("%s", event(fmt.Sprint("s_", n), progress("7", n)))
				}
				breaks()
			}
			s.get = func(h *hit, n int) {
				if n == 1 {
					h.w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				h.stream()
				for n := from; n <= 5; n++ {
					h.write("%s", event(fmt.Sprint("s_", n), progress("7", n)))
				}
				h.write("%s", event("s_6", answerTo(s.all("tools/call")[0])))
			}
			r := newRig(t, s, Options{})
			r.init()
			r.callTool("7")
			r.answer("7")
			if n, sums := r.count(wire.ProgressNote), r.rec.Sums(); n != 5 || sums.Duplicates != 4-from || sums.Gaps != 0 {
				t.Errorf("%d progress, %+v", n, sums)
			}
		})
	}
}

// TestOneIDForAll: a server whose counter is stuck still gets its answer
// through.
func TestOneIDForAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		s.call = func(h *hit) {
			h.stream()
			h.write("%s", event("1", progress("7", 1))+event("1", progress("7", 2)))
			breaks()
		}
		s.get = func(h *hit, n int) {
			if n == 1 {
				h.w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			h.stream()
			h.write("%s", event("1", answerTo(s.all("tools/call")[0])))
		}
		r := newRig(t, s, Options{})
		r.init()
		r.callTool("7")
		contains(t, r.within(time.Minute, "7"), `"ok":true`)
		if n := r.count(wire.ProgressNote); n != 2 {
			t.Errorf("%d progress", n)
		}
	})
}

// TestResumeThatCannotWork ends the call at once, and says that nobody knows.
func TestResumeThatCannotWork(t *testing.T) {
	for _, status := range []int{204, 400, 401, 403, 404, 405, 410} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &scripted{}
				s.call = func(h *hit) {
					h.stream()
					h.write("%s", event("a", progress("7", 1)))
					breaks()
				}
				s.get = func(h *hit, n int) {
					if h.cursor == "" {
						h.w.WriteHeader(http.StatusMethodNotAllowed)
						return
					}
					h.w.WriteHeader(status)
				}
				r := newRig(t, s, Options{})
				r.init()
				r.callTool("7")
				contains(t, r.within(10*time.Second, "7"), `"outcome":"unknown"`)
				time.Sleep(time.Minute)
				if n := len(s.all("tools/call")); n != 1 {
					t.Errorf("called %d times", n)
				}
				if n := len(s.all("initialize")); n != map[bool]int{true: 2, false: 1}[status == 404 || status == 410] {
					t.Errorf("initialized %d times", n)
				}
			})
		})
	}
}

func TestServerThatNeverResumesIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		s.call = func(h *hit) {
			h.stream()
			h.write("%s", event("a", progress("7", 1)))
			breaks()
		}
		s.get = func(h *hit, n int) {
			if h.cursor == "" {
				h.w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			h.stream() // and ends
		}
		r := newRig(t, s, Options{GiveUp: 5 * time.Minute})
		r.init()
		began := time.Now()
		r.callTool("7")
		contains(t, r.answer("7"), `"outcome":"unknown"`)
		if d := time.Since(began); d < 5*time.Minute || d > 6*time.Minute {
			t.Errorf("given up after %v", d)
		}
		if n := len(s.all("GET")); n < 8 || n > 80 {
			t.Errorf("asked %d times: the wait must grow though each connection is made", n)
		}
	})
}

// TestPollingServer closes after each priming event, as MCP 2025-11-25 allows,
// for longer than the time to give up.
func TestPollingServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		ready := time.Now().Add(time.Hour)
		poll := func(h *hit) {
			h.stream()
			if time.Now().After(ready) {
				h.write("%s", event("z", answerTo(s.all("tools/call")[0])))
				return
			}
			h.write("retry: 2000\nid: p%d\ndata:\n\n", time.Now().UnixNano())
		}
		s.call = poll
		s.get = func(h *hit, n int) { poll(h) }
		r := newRig(t, s, Options{})
		r.init()
		r.callTool("7")
		contains(t, r.within(2*time.Hour, "7"), `"ok":true`)
	})
}

// TestOutage: requests that run are taken up again, requests made meanwhile
// wait, and all that in time.
func TestOutage(t *testing.T) {
	for _, outage := range []time.Duration{200 * time.Millisecond, 6 * time.Second, time.Minute, 9 * time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &scripted{}
				s.call = func(h *hit) {
					if string(h.msg.IDText()) != "7" {
						h.result(`{"late":true}`)
						return
					}
					h.stream()
					h.write("%s", event("a", progress("7", 1)))
					<-h.r.Context().Done()
				}
				s.get = func(h *hit, n int) {
					h.stream()
					if h.cursor == "a" {
						h.write("%s", event("b", answerTo(s.all("tools/call")[0])))
						return
					}
					<-h.r.Context().Done()
				}
				r := newRig(t, s, Options{})
				r.init()
				r.callTool("7")
				for r.count(wire.ProgressNote) == 0 {
					<-r.wake
				}
				r.net.Refuse(true)
				r.net.Cut()
				began := time.Now()
				for n := range 20 {
					r.callTool(fmt.Sprint(100 + n))
				}
				time.Sleep(outage)
				r.net.Refuse(false)
				r.answer("7")
				for n := range 20 {
					r.answer(fmt.Sprint(100 + n))
				}
				if d := time.Since(began); d > outage+31*time.Second {
					t.Errorf("it took %v", d)
				}
				if n := len(s.all("tools/call")); n != 21 {
					t.Errorf("%d calls reached the server", n)
				}
			})
		})
	}
}

func TestOutageThatLastsIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{call: func(h *hit) {
			h.stream()
			h.write("%s", event("a", progress("7", 1)))
			<-h.r.Context().Done()
		}}
		r := newRig(t, s, Options{})
		r.init()
		r.callTool("7")
		for r.count(wire.ProgressNote) == 0 {
			<-r.wake
		}
		r.net.Refuse(true)
		r.net.Cut()
		began := time.Now()
		r.callTool("8")
		contains(t, r.answer("7"), `"outcome":"unknown"`, "10m0s")
		contains(t, r.answer("8"), `"outcome":"not executed"`, "refused")
		if d := time.Since(began); d < 9*time.Minute || d > 11*time.Minute {
			t.Errorf("given up after %v", d)
		}
		r.net.Refuse(false)
		s.call = func(h *hit) { h.result(`{}`) }
		r.callTool("9")
		contains(t, r.answer("9"), `"result":{}`)
	})
}

func TestServerDownAtTheStartIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := memnet.Listen()
		n.Refuse(true)
		var s scripted
		memnet.Run(t, n, &http.Server{Handler: &s})
		r := newRigOn(t, n, Options{})
		time.AfterFunc(30*time.Second, func() { n.Refuse(false) })
		r.init()
		contains(t, r.logged(), "the server cannot be reached", "reached again")
	})
}

// TestField58_HalfOpen: nothing comes any more, and no end either.
func TestField58_HalfOpen(t *testing.T) {
	for _, known := range []time.Duration{0, 10 * time.Second} {
		bubble(t, func(t *testing.T) {
			s := &scripted{}
			s.call = func(h *hit) {
				h.stream()
				h.write("%s", event("a", progress("7", 1)))
				for n := 0; known == 0 && n < 2; n++ {
					time.Sleep(10 * time.Second)
					h.write(":\n")
				}
				<-h.r.Context().Done()
			}
			s.get = func(h *hit, n int) {
				if h.cursor == "" {
					h.w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				h.stream()
				h.write("%s", event("b", answerTo(s.all("tools/call")[0])))
			}
			r := newRig(t, s, Options{Heartbeat: known})
			r.init()
			r.callTool("7")
			time.Sleep(21 * time.Second * time.Duration(min(1, 1-known/(10*time.Second))))
			synctest.Wait()
			began := time.Now()
			r.net.Last().Freeze()
			r.answer("7")
			if d := time.Since(began); d > 30*time.Second {
				t.Errorf("found after %v, more than three heartbeats", d)
			}
		})
	}
}

// TestField48_NoTimeLimit: a stream that says something now and then lives for
// as long as it takes; so does one that is silent if its server sends no
// heartbeats and it could not be resumed.
func TestField48_NoTimeLimit(t *testing.T) {
	for _, every := range []time.Duration{time.Second, time.Hour} {
		bubble(t, func(t *testing.T) {
			s := &scripted{call: func(h *hit) {
				h.stream()
				for range 36 {
					time.Sleep(every)
					h.write("data: %s\n\n", progress("7", 1))
				}
				h.write("data: %s\n\n", answerTo(h))
			}}
			r := newRig(t, s, Options{})
			r.init()
			r.callTool("7")
			contains(t, r.within(48*time.Hour, "7"), `"ok":true`)
			if n := r.count(wire.ProgressNote); n != 36 {
				t.Errorf("%d progress", n)
			}
		})
	}
}

// TestField96_Spread: clients that lost their server together do not come back
// together.
func TestField96_Spread(t *testing.T) {
	var in [30]int
	for range 5000 {
		in[jitter(20)/time.Second]++
	}
	for second, n := range in {
		if n > 500 {
			t.Errorf("%d of 5000 come back in second %d", n, second)
		}
	}
	p := pace{retry: 2 * time.Second}
	for n := range 50 {
		if d := p.next(); d < 2*time.Second || d > 2*time.Second+min(backoffBase<<min(n, 6), backoffCeil) {
			t.Errorf("wait %d is %v", n, d)
		}
	}
}

func TestSlowReaderIsNotDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{call: func(h *hit) {
			h.stream()
			for n := range 400 {
				h.write("%s", event(fmt.Sprint("s_", n), strings.Replace(progress("7", n), "{", `{"pad":"`+strings.Repeat("x", 16<<10)+`",`, 1)))
			}
			h.write("%s", event("s_400", answerTo(h)))
		}}
		n := memnet.Listen()
		memnet.Run(t, n, &http.Server{Handler: s})
		srv, err := New(Options{URL: "http://x/mcp", Dial: n.Dial, Heartbeat: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		conn, _ := srv.Connect(t.Context(), "")
		defer conn.Close()
		conn.Send(t.Context(), []byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`))
		conn.Recv(t.Context())
		conn.Send(t.Context(), []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`))
		time.Sleep(time.Hour)
		got := 0
		for got <= 400 {
			msgs, err := conn.Recv(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got += len(msgs)
		}
		if gets := len(s.all("GET")); gets != 0 || got != 401 {
			t.Errorf("%d messages, %d GETs", got, gets)
		}
	})
}

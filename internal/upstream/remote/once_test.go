package remote

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/memnet"
	"github.com/segno-mcp/segno/internal/wire"
)

// TestField97_NothingRunsTwice cuts the connection before, while and after a
// call is written, and while its answer comes.
func TestField97_NothingRunsTwice(t *testing.T) {
	for _, c := range []struct {
		name string
		call func(h *hit)
		want string
		runs int
	}{
		{"after it was read", func(h *hit) { breaks() }, `"outcome":"unknown"`, 1},
		{"within the head of a stream", func(h *hit) { h.stream(); breaks() }, `"outcome":"unknown"`, 1},
		{"before an event was whole", func(h *hit) { h.stream(); h.write("id: 1\ndata: {"); breaks() }, `"outcome":"unknown"`, 1},
		{"without ids", func(h *hit) { h.stream(); h.write("data: %s\n\n", progress("7", 1)) }, `"outcome":"unknown"`, 1},
		{"within JSON", func(h *hit) {
			h.w.Header().Set("Content-Length", "1000")
			h.json(`{"jsonrpc":"2.0","id":7,"result":{}}`)
		}, `"outcome":"unknown"`, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &scripted{call: c.call}
				r := newRig(t, s, Options{})
				r.init()
				r.callTool("7")
				contains(t, r.within(time.Minute, "7"), c.want)
				time.Sleep(time.Hour)
				if n := len(s.all("tools/call")); n != c.runs {
					t.Errorf("ran %d times", n)
				}
				if list := r.answers("7"); len(list) != 1 {
					t.Errorf("answered %d times: %s", len(list), list)
				}
			})
		})
	}
}

// TestField97_CutWhileWriting cuts after each byte of the request.
func TestField97_CutWhileWriting(t *testing.T) {
	sent := int64(0)
	for at := int64(0); at <= sent+1; at++ {
		bubble(t, func(t *testing.T) {
			s := &scripted{call: func(h *hit) { h.result(`{"ok":true}`) }}
			r := newRig(t, s, Options{})
			r.init()
			synctest.Wait()
			time.Sleep(2 * idleTime) // a connection of its own for the call
			links := len(r.net.Links())
			r.net.OnDial = func(n int, l *memnet.Link) {
				if n == links && at > 0 {
					l.CutAfterUp(at)
				}
			}
			if at == 0 {
				r.net.Refuse(true)
				time.AfterFunc(time.Second, func() { r.net.Refuse(false) })
			}
			r.callTool("7")
			got := r.within(time.Minute, "7")
			runs := len(s.all("tools/call"))
			if strings.Contains(got, `"ok"`) && runs != 1 || strings.Contains(got, "unknown") && runs > 1 || at == 0 && runs != 1 {
				t.Errorf("cut after %d bytes: ran %d times: %s", at, runs, got)
			}
			if list := r.answers("7"); len(list) != 1 {
				t.Errorf("cut after %d bytes: %d answers", at, len(list))
			}
			if sent == 0 {
				sent = 420 // longer than the request
			}
		})
	}
}

// TestHarmlessRequestsAreSentAgain: what only reads is asked for until it is
// answered.
func TestHarmlessRequestsAreSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := 0
		s := &scripted{}
		s.post = func(h *hit) bool {
			if h.msg.Method != wire.ToolsList {
				return false
			}
			if n++; n < 4 {
				breaks()
			}
			return false
		}
		r := newRig(t, s, Options{})
		r.init()
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		contains(t, r.within(time.Minute, "1"), `"result":{}`)
	})
}

// TestReplaySafe: with the option, and only with it, tools that call themselves
// read-only or idempotent are run again.
func TestReplaySafe(t *testing.T) {
	const list = `{"tools":[{"name":"reads","annotations":{"readOnlyHint":true}},{"name":"sets","annotations":{"idempotentHint":true}},{"name":"writes","annotations":{"readOnlyHint":false}},{"name":"plain"}]}`
	for _, c := range []struct {
		tool    string
		allowed bool
		runs    int
	}{
		{"reads", true, 2}, {"sets", true, 2}, {"writes", true, 1}, {"plain", true, 1}, {"reads", false, 1},
	} {
		bubble(t, func(t *testing.T) {
			runs := 0
			s := &scripted{}
			s.post = func(h *hit) bool {
				if h.msg.Method == wire.ToolsList {
					h.result(list)
					return true
				}
				return false
			}
			s.call = func(h *hit) {
				if runs++; runs == 1 {
					breaks()
				}
				h.result(`{"ok":true}`)
			}
			r := newRig(t, s, Options{ReplaySafe: c.allowed})
			r.init()
			r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
			r.answer("1")
			r.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%q}}`, c.tool)
			got := r.within(time.Minute, "7")
			if runs != c.runs || strings.Contains(got, `"ok"`) != (c.runs == 2) {
				t.Errorf("%s: ran %d times: %s", c.tool, runs, got)
			}
		})
	}
}

// TestLostSession: one new session for everybody; what was never executed is
// sent, what was on the wire ends as unknown, later calls work.
func TestLostSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{caps: `{"tools":{"listChanged":true}}`}
		s.call = func(h *hit) {
			if h.session == "session-1" {
				h.stream()
				h.write("%s", event("a", progress("7", 1)))
				<-h.r.Context().Done()
				return
			}
			h.result(`{"ok":true}`)
		}
		r := newRig(t, s, Options{})
		r.init()
		r.send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}`)
		r.send(`{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"x:y"}}`)
		r.answer("3")
		r.callTool("7")
		for r.count(wire.ProgressNote) == 0 {
			<-r.wake
		}
		s.forget()
		for n := range 20 {
			r.callTool(fmt.Sprint(100 + n))
		}
		for n := range 20 {
			contains(t, r.answer(fmt.Sprint(100+n)), `"ok":true`)
		}
		r.net.Cut()
		contains(t, r.answer("7"), `"outcome":"unknown"`)
		time.Sleep(time.Minute)
		if n := len(s.all("initialize")); n != 2 {
			t.Errorf("initialized %d times", n)
		}
		for method, want := range map[string]int{"notifications/initialized": 2, "logging/setLevel": 2, "resources/subscribe": 2} {
			if n := len(s.all(method)); n != want {
				t.Errorf("%s was sent %d times, want %d", method, n, want)
			}
		}
		if n := r.count("notifications/tools/list_changed"); n != 1 {
			t.Errorf("told %d times that the tools may have changed", n)
		}
		for _, text := range r.messages() {
			if strings.Contains(text, `"segno-`) {
				t.Errorf("the client was told of %s", text)
			}
		}
	})
}

func TestServerThatForgetsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		s.post = func(h *hit) bool {
			if h.msg.Kind == wire.Request && h.msg.Method != wire.Initialize {
				s.forget()
			}
			return false
		}
		r := newRig(t, s, Options{})
		r.init()
		r.callTool("7")
		contains(t, r.within(time.Minute, "7"), `"outcome":"not executed"`, "forgets its sessions")
		if n := len(s.all("initialize")); n > 4 {
			t.Errorf("initialized %d times", n)
		}
	})
}

// TestSessionThatCannotBeOpenedAgain: everybody who waits hears why, and the
// next request tries once more.
func TestSessionThatCannotBeOpenedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		locked := false
		s.post = func(h *hit) bool {
			if locked {
				status := http.StatusNotFound
				if h.msg.Method == wire.Initialize {
					status = http.StatusUnauthorized
				}
				h.w.WriteHeader(status)
			}
			return locked
		}
		r := newRig(t, s, Options{})
		r.init()
		synctest.Wait()
		locked = true
		r.callTool("7")
		r.callTool("8")
		contains(t, r.within(time.Minute, "7"), `"outcome":"not executed"`, "credentials")
		contains(t, r.within(time.Minute, "8"), `"outcome":"not executed"`, "credentials")
		locked = false
		r.callTool("9")
		contains(t, r.within(time.Minute, "9"), `"result"`)
	})
}

func TestAsks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		s.call = func(h *hit) {
			if string(h.msg.IDText()) != "7" {
				h.result(`{}`)
				return
			}
			h.stream()
			h.write("%s", event("a", `{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{}}`))
			h.write("%s", event("b", `{"jsonrpc":"2.0","id":"q2","method":"elicitation/create","params":{}}`))
			<-h.r.Context().Done()
		}
		r := newRig(t, s, Options{})
		r.init()
		r.callTool("7")
		for r.count(wire.Elicitation) < 2 {
			<-r.wake
		}
		answers := func() (n int) {
			for _, h := range s.all("POST") {
				if h.msg.Kind == wire.Result {
					n++
				}
			}
			return n
		}
		r.send(`{"jsonrpc":"2.0","id":"q1","result":{}}`)
		synctest.Wait()
		if answers() != 1 {
			t.Errorf("%d answers arrived", answers())
		}
		s.forget()
		r.callTool("8")
		r.answer("8")
		synctest.Wait()
		if got := strings.Join(r.messages(), "\n"); !strings.Contains(got, `{"requestId":"q2"`) || strings.Contains(got, `{"requestId":"q1"`) {
			t.Errorf("the client was not told that a request is void: %s", got)
		}
		r.send(`{"jsonrpc":"2.0","id":"q2","result":{}}`)
		synctest.Wait()
		if answers() != 1 {
			t.Error("an answer to the old server reached the new one")
		}
	})
}

func TestCancel(t *testing.T) {
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
		r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		time.Sleep(time.Hour)
		if n := len(s.all(wire.Cancelled)); n != 1 || len(r.answers("7")) != 0 {
			t.Errorf("cancelled %d times, answers %s", n, r.answers("7"))
		}
		r.net.Refuse(true)
		r.net.Cut()
		r.callTool("8")
		time.Sleep(time.Minute)
		r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
		r.net.Refuse(false)
		time.Sleep(time.Hour)
		if n := len(s.all("tools/call")); n != 1 || len(r.answers("8")) != 0 {
			t.Errorf("a call that was cancelled before it was sent: sent %d times, answers %s", n, r.answers("8"))
		}
	})
}

// TestOrder: what is sent after a notification comes after it.
func TestOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		s.post = func(h *hit) bool {
			if h.msg.Kind == wire.Notification {
				time.Sleep(time.Second)
			}
			return false
		}
		r := newRig(t, s, Options{})
		r.init()
		for n := range 10 {
			r.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, n)
			r.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{"n":%d}}`, n)
		}
		r.answer("9")
		last := -1
		for _, h := range s.all("POST")[2:] {
			if h.msg.Kind == wire.Notification {
				last++
			} else if n, _ := wire.IntID(h.msg.IDText()); n > int64(last+1) {
				t.Errorf("request %d came before notification %d", n, last+1)
			}
		}
	})
}

// TestKeyHoldsInItsSessionOnly: a Segno runs what it is sent again once only,
// but not one that lost its session.
func TestKeyHoldsInItsSessionOnly(t *testing.T) {
	for _, lost := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := &scripted{caps: `{"experimental":{"segno":{}}}`}
			s.call = func(h *hit) {
				if len(s.all("tools/call")) == 1 {
					if lost {
						s.forget()
					}
					breaks()
				}
				h.result(`{"ok":true}`)
			}
			r := newRig(t, s, Options{})
			r.init()
			r.callTool("7")
			got := r.within(time.Minute, "7")
			calls := s.all("tools/call")
			if want := map[bool]string{true: `"outcome":"unknown"`, false: `"ok":true`}[lost]; !strings.Contains(got, want) {
				t.Errorf("lost %v: %s", lost, got)
			}
			for _, h := range calls {
				if h.session != "session-1" || h.r.Header.Get("Idempotency-Key") == "" || h.r.Header.Get("Idempotency-Key") != calls[0].r.Header.Get("Idempotency-Key") {
					t.Errorf("sent in %s with the key %q", h.session, h.r.Header.Get("Idempotency-Key"))
				}
			}
		})
	}
}

// TestInitializeIsMadeAgain: an answer that broke leaves no trace.
func TestInitializeIsMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		n := 0
		s.post = func(h *hit) bool {
			if h.msg.Method != wire.Initialize {
				return false
			}
			if h.session != "" {
				h.w.WriteHeader(http.StatusBadRequest)
				return true
			}
			if n++; n == 1 {
				h.w.Header().Set("Mcp-Session-Id", "old")
				h.w.Header().Set("Content-Length", "100")
				h.json("{")
				return true
			}
			return false
		}
		r := newRig(t, s, Options{})
		r.init()
		r.callTool("7")
		r.answer("7")
		if h := s.all("tools/call")[0]; h.session != "session-1" {
			t.Errorf("the session is %s", h.session)
		}
	})
}

// TestPingIsAnsweredHere, in an outage too, and reaches the server once for
// however many.
func TestPingIsAnsweredHere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		r := newRig(t, s, Options{})
		r.init()
		synctest.Wait()
		for _, down := range []bool{false, true} {
			r.net.Refuse(down)
			r.net.Cut()
			for n := range 10 {
				id := fmt.Sprintf(`"%v %d"`, down, n)
				r.send(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id)
				began := time.Now()
				contains(t, r.within(time.Second, id), `"result":{}`)
				if time.Since(began) != 0 {
					t.Errorf("ping %s took %v", id, time.Since(began))
				}
				time.Sleep(time.Second)
			}
		}
		r.net.Refuse(false)
		time.Sleep(time.Minute)
		if n := len(s.all(wire.Ping)); n != 11 {
			t.Errorf("%d pings reached the server", n)
		}
		if got := strings.Join(r.messages(), ""); strings.Contains(got, "segno-ping") {
			t.Errorf("the client got %s", got)
		}
	})
}

// TestCallBeforeInitialize is sent as it is: some servers have no sessions.
func TestCallBeforeInitialize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		s.post = func(h *hit) bool {
			h.stream()
			h.write("%s", event("a", result("7", `{"t":"`+strings.Repeat("x", 2*ackMin)+`"}`)))
			return true
		}
		r := newRig(t, s, Options{})
		r.callTool("7")
		contains(t, r.within(time.Minute, "7"), "xxx")
	})
}

// TestAnswerOnAnotherStream: a server that confuses its streams.
func TestAnswerOnAnotherStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{call: func(h *hit) {
			h.stream()
			if string(h.msg.IDText()) == "8" {
				h.write("data: %s\n\n", result("7", `{"ok":7}`))
				h.write("data: %s\n\n", result("8", `{"ok":8}`))
			}
			<-h.r.Context().Done()
		}}
		r := newRig(t, s, Options{})
		r.init()
		r.callTool("7")
		r.callTool("8")
		contains(t, r.within(time.Minute, "7"), `{"ok":7}`)
		contains(t, r.within(time.Minute, "8"), `{"ok":8}`)
	})
}

func TestEqualIDs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{call: func(h *hit) { h.result(`{"ok":true}`) }}
		r := newRig(t, s, Options{})
		r.init()
		for range 3 {
			r.callTool("1")
		}
		time.Sleep(time.Minute)
		if n := len(r.answers("1")); n != 3 {
			t.Errorf("%d answers", n)
		}
	})
}

// TestRefusedForNow: 429 and 503 say that nothing was executed.
func TestRefusedForNow(t *testing.T) {
	for _, status := range []int{429, 503} {
		bubble(t, func(t *testing.T) {
			until := time.Now().Add(30 * time.Second)
			s := &scripted{}
			s.call = func(h *hit) {
				if time.Now().Before(until) {
					h.w.Header().Set("Retry-After", "20")
					h.w.WriteHeader(status)
					return
				}
				h.result(`{"ok":true}`)
			}
			r := newRig(t, s, Options{})
			r.init()
			r.callTool("7")
			contains(t, r.within(2*time.Minute, "7"), `"ok":true`)
			if n := len(s.all("tools/call")); n != 3 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

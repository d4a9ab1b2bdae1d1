package remote

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

const segnoStream = "AAAAAAAAAAAAAAAAAAAAAA.abcdef."

const notice = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"segno","data":{"gap":{"stream":"AAAAAAAAAAAAAAAAAAAAAA","reason":"retention","after":2,"next":6,"lost":3}}}}`

// holed is a server that lost events 3 to 5 of a call and tells so, or not.
func holed(told bool, id func(int) string) *scripted {
	s := &scripted{caps: `{"logging":{}}`}
	runs := 0
	s.call = func(h *hit) {
		if runs++; runs > 1 {
			h.result(`{"ok":true}`)
			return
		}
		h.stream()
		for n := range 3 {
			h.write("%s", event(id(n), progress("7", n)))
		}
		breaks()
	}
	s.get = func(h *hit, n int) {
		if h.cursor == "" {
			h.w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		h.stream()
		if told {
			h.write("%s", event(id(5), notice))
		}
		h.write("%s", event(id(6), progress("7", 6))+event(id(7), result(`"7"`, `{"ok":true}`)))
		<-h.r.Context().Done()
	}
	return s
}

func TestGaps(t *testing.T) {
	segno := func(n int) string { return segnoStream + fmt.Sprint(n) }
	dense := func(n int) string { return fmt.Sprint("call_", n) }
	for _, c := range []struct {
		name   string
		told   bool
		id     func(int) string
		onGap  string
		safe   bool
		want   string
		runs   int
		notice bool
	}{
		{"told, continue", true, segno, Continue, false, `"ok":true`, 1, true},
		{"found, continue", false, segno, Continue, false, `"ok":true`, 1, true},
		{"told, fail", true, segno, Fail, false, `"gap":{"reason":"retention","after":2,"lost":3}`, 1, false},
		{"found, fail", false, segno, Fail, false, `"gap":{"reason":"not told","after":2,"lost":3}`, 1, false},
		{"told, reissue", true, segno, Reissue, true, `"ok":true`, 2, false},
		{"told, reissue of what is not safe", true, segno, Reissue, false, `"outcome":"unknown"`, 1, false},
		{"another server's ids, too few to tell", false, dense, Fail, false, `"ok":true`, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := holed(c.told, c.id)
				s.post = func(h *hit) bool {
					if h.msg.Method == wire.ToolsList {
						h.result(fmt.Sprintf(`{"tools":[{"name":"tool","annotations":{"readOnlyHint":%v}}]}`, c.safe))
						return true
					}
					return false
				}
				r := newRig(t, s, Options{OnGap: c.onGap, ReplaySafe: true})
				r.init()
				r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
				r.answer("1")
				r.callTool("7")
				contains(t, r.within(time.Minute, "7"), c.want, `"id":7`)
				time.Sleep(time.Minute)
				calls := s.all("tools/call")
				if len(calls) != c.runs || len(r.answers("7")) != 1 {
					t.Fatalf("ran %d times, %d answers", len(calls), len(r.answers("7")))
				}
				if n := r.count(wire.LogNote); (n == 1) != c.notice {
					t.Errorf("the client got %d notices", n)
				}
				if cancels := s.all(wire.Cancelled); (len(cancels) == 1) != (c.onGap != Continue && !strings.Contains(c.want, "ok") || c.runs == 2) {
					t.Errorf("cancelled %d times", len(cancels))
				}
				if c.runs == 2 && string(calls[1].msg.IDText()) == "7" {
					t.Error("the second call has the id of the first")
				}
				if gaps := r.rec.Gaps(); c.notice && (len(gaps) != 1 || gaps[0].Lost != 3 || gaps[0].After != 2) {
					t.Errorf("recorded %+v", gaps)
				}
			})
		})
	}
}

func TestDenseIDsShowGaps(t *testing.T) {
	for _, c := range []struct {
		ids  string
		lost uint64
	}{
		{"s_1 s_2 s_3 s_4 s_9", 4}, {"s_1 s_2 s_3 s_9", 0}, {"1 2 3 4 5 9", 0}, {"s_1 s_3 s_4 s_5 s_6 s_7 s_9", 0},
		{"a_1 a_2 a_3 a_4 b_9", 0}, {"s_1 s_2 s_3 s_4 s_5 s_6", 0}, {"s_4 s_3 s_4 s_5 s_6 s_9", 0}, {"s_x s_1", 0},
	} {
		var d dense
		lost := uint64(0)
		for _, id := range strings.Fields(c.ids) {
			lost += d.step(id)
		}
		if lost != c.lost {
			t.Errorf("%s: %d lost, want %d", c.ids, lost, c.lost)
		}
	}
}

// TestSegnoThatKnowsNothing: the notice of an unknown stream ends the call.
func TestSegnoThatKnowsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := holed(false, func(n int) string { return segnoStream + fmt.Sprint(n) })
		s.get = func(h *hit, n int) {
			if h.cursor == "" || strings.HasSuffix(h.cursor, ".x") {
				h.w.WriteHeader(http.StatusNoContent)
				return
			}
			h.stream()
			h.write("%s", event("abcdef.x", strings.Replace(notice, `"retention","after":2,"next":6,"lost":3`, `"unknown"`, 1)))
		}
		r := newRig(t, s, Options{})
		r.init()
		r.callTool("7")
		contains(t, r.within(10*time.Second, "7"), `"outcome":"unknown"`)
		if n := len(s.all("tools/call")); n != 1 {
			t.Errorf("called %d times", n)
		}
	})
}

func TestSeenForgetsTheOldest(t *testing.T) {
	var s seen
	for n := range 3 * seenMax {
		s.add(fmt.Sprint(n))
	}
	if len(s.all) != seenMax || len(s.ring) != seenMax || s.all["0"] != 0 || s.all[fmt.Sprint(3*seenMax-1)] != 1 {
		t.Errorf("%d ids are remembered", len(s.all))
	}
}

// A server may call a loss what it likes; the answer made of it must be one.
func TestAGapsReasonIsQuotedAsJSON(t *testing.T) {
	g := Gap{Reason: "a\x7f\"\\\x01\u2028", After: 3, Lost: 2}
	raw := outcome([]byte("1"), "unknown", "x", append([]byte(`,"gap":`), g.text()...))
	m, err := wire.Parse(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	if got := m.StringAt("error", "data", "gap", "reason"); got != g.Reason {
		t.Errorf("the reason became %q", got)
	}
}

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

// plain answers calls in one of three ways: as JSON, as a stream with ids that
// can be resumed, as one without.
func plain(way string) *scripted {
	s := &scripted{}
	say := func(h *hit, after int) {
		for n := after + 1; n <= 3; n++ {
			h.write("%s", event(fmt.Sprint("s_", n), progress("7", n)))
		}
		h.write("%s", event("s_4", result("7", `{"ok":true}`)))
	}
	s.call = func(h *hit) {
		if way == "JSON" {
			h.result(`{"ok":true}`)
			return
		}
		h.stream()
		if way == "ids" {
			say(h, 0)
			return
		}
		h.write("data: %s\n\ndata: %s\n\n", progress("7", 1), answerTo(h))
	}
	s.get = func(h *hit, _ int) {
		if h.cursor == "" {
			h.w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		var n int
		fmt.Sscanf(h.cursor, "s_%d", &n)
		h.stream()
		say(h, n)
	}
	return s
}

// TestCutAtEveryByteOfAPlainServer: there is one answer wherever the connection
// breaks, and the tool runs once. Once an event id has come, that is the result.
func TestCutAtEveryByteOfAPlainServer(t *testing.T) {
	for _, way := range []string{"JSON", "ids", "no ids"} {
		t.Run(way, func(t *testing.T) {
			for at, whole := int64(1), int64(2); at < whole; at++ {
				bubble(t, func(t *testing.T) { whole = max(whole, cutAt(t, way, at)) })
				if t.Failed() {
					t.Fatalf("cut after %d bytes", at)
				}
			}
		})
	}
}

// cutAt cuts after so many bytes of the answer, and returns how many there are,
// as far as can be seen.
func cutAt(t *testing.T, way string, at int64) int64 {
	s := plain(way)
	r := newRig(t, s, Options{})
	r.init()
	synctest.Wait()
	time.Sleep(2 * idleTime)
	links := len(r.net.Links())
	var link *memnet.Link
	r.net.OnDial = func(n int, l *memnet.Link) {
		if n == links {
			link = l
			l.CutAfter(at)
		}
	}
	r.callTool("7")
	got := r.within(time.Minute, "7")
	time.Sleep(time.Minute)
	steps, seen := r.count(wire.ProgressNote), len(r.rec.Events())
	ok := strings.Contains(got, `"ok":true`)
	switch {
	case len(r.answers("7")) != 1 || len(s.all("tools/call")) != 1:
		t.Errorf("%d answers, %d calls", len(r.answers("7")), len(s.all("tools/call")))
	case !ok && !strings.Contains(got, `"outcome":"unknown"`):
		t.Errorf("the answer is %s", got)
	case way == "ids" && seen > 0 && (!ok || steps != 3):
		t.Errorf("an id had come, and then there were %d reports and %s", steps, got)
	}
	if ok && len(s.all("GET")) == 1 {
		return link.Down() // the cut came after everything
	}
	return link.Down() + 2
}

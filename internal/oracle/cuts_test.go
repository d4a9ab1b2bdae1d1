package oracle

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/fakemcp"
)

// TestEveryCut records the stream of one call and then cuts it at every byte,
// in both ways, at 2025-11-25 with priming and at 2025-06-18 without. The client
// resumes with what it has, and together it has everything once.
func TestEveryCut(t *testing.T) {
	for _, asked := range []string{"2025-11-25", "2025-06-18"} {
		for _, how := range []string{"reset", "clean"} {
			t.Run(asked+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { everyCut(t, asked, how) })
			})
		}
	}
}

// atOnce is how many cuts are made in one session.
const atOnce = 60

func everyCut(t *testing.T, asked, how string) {
	length := int64(0)
	for from := int64(1); from <= max(length, 1); from += atOnce {
		w := newWorld(0, inMemory{memlog.New()}, knobs{
			retainEvents: 10000, repost: time.Minute, grace: 5 * time.Minute, ask: 10 * time.Minute, orphan: time.Hour, retainAge: 15 * time.Minute,
		})
		w.start()
		c := newClient(w, person{who: "ann", asked: asked})
		c.initialize()
		whole := c.counted(cut{})
		whole.chain.conn.wait(10 * time.Second)
		if length = whole.chain.conn.link.Down(); length < 500 {
			t.Fatalf("the whole answer has %d bytes", length)
		}
		for at := from; at < from+atOnce && at <= length; at++ {
			c.cutAt(t, how, at)
		}
		c.delete()
		time.Sleep(time.Millisecond)
		w.end(0)
		w.store.forget()
		w.checkSaid()
		w.checkSeen()
		for _, f := range w.faults {
			t.Errorf("%s: %s", f.check, f.text)
		}
	}
}

// cutAt makes a call whose stream is cut at a byte, and follows it to its end.
func (c *client) cutAt(t *testing.T, how string, at int64) {
	t.Helper()
	k := c.counted(cut{how: how, down: at})
	for range rounds {
		k.chain.conn.wait(10 * time.Second)
		if k.followed() && len(k.outcomes) > 0 {
			break
		}
		k.follow()
	}
	k.checkWhole(t, at)
}

// counted makes a call with reports and a result.
func (c *client) counted(how cut) *call {
	n := len(c.calls)
	k := &call{c: c, n: n, key: fmt.Sprintf("%s-%d", c.name, n), id: fmt.Sprint(n + 2), token: fmt.Sprint(n), tool: "count"}
	k.body = string(fakemcp.Call(k.id, "count", fmt.Sprintf(`{"key":%q,"n":4,"pad":9}`, k.key), k.token))
	c.w.mu.Lock()
	c.calls = append(c.calls, k)
	c.w.mu.Unlock()
	c.request(k, "call", how, "")
	return k
}

// checkWhole: over all connections of the call there is each event once. A
// connection that was cut before it had an id begins again from the start.
func (k *call) checkWhole(t *testing.T, at int64) {
	t.Helper()
	var got []string
	for _, x := range k.c.w.conns {
		if x.o.chain != &k.chain {
			continue
		}
		if x.o.method == http.MethodPost {
			got = nil
		}
		for _, e := range x.events {
			if e.data != "" {
				got = append(got, e.data)
			}
		}
	}
	text := strings.Join(got, "\n")
	if len(got) != 5 || strings.Count(text, `"total":4`) != 4 || !strings.Contains(got[4], `"result"`) {
		t.Errorf("cut at byte %d: the client has\n%s", at, text)
		return
	}
	for n := 1; n <= 4; n++ {
		if !strings.Contains(got[n-1], fmt.Sprintf(`"progress":%d,`, n)) {
			t.Errorf("cut at byte %d: event %d is %s", at, n, got[n-1])
		}
	}
}

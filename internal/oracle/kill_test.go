package oracle

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/segno-mcp/segno/internal/fakemcp"
)

// point is a moment at which the real segno is killed with kill -9: it can be
// seen from outside, so nothing in the product has to know of it.
type point struct {
	name string
	tool string
	args string
	// reach brings a call to the point; the kill follows at once.
	reach func(v *victim)
	// outcome is what the call's one outcome must have in it; empty: one of the
	// two, as the kill came at any moment.
	outcome string
}

const (
	ran     = `"result":{`
	unknown = `"outcome":"unknown"`
)

// After each: every event that a client had is still there under its id, the
// call has exactly one outcome, and the tool was not run again.
var points = []point{
	{"the opening is on the wire", "hang", `"n":1`, func(v *victim) { v.events(1) }, unknown},
	{"between two reports", "count", `"n":1000,"interval_ms":3`, func(v *victim) { v.events(4 + v.r.IntN(20)) }, unknown},
	{"in a flood", "flood", `"n":200000,"size":300`, func(v *victim) { v.events(20 + v.r.IntN(200)) }, unknown},
	{"the outcome is logged, nobody read it", "quiet", `"ms":120`, (*victim).unread, ran},
	{"the server waits for an answer", "ask", `"n":1`, (*victim).asked, unknown},
	{"the outcome was read", "count", `"n":3`, func(v *victim) { <-v.k.chain.conn.done }, ran},
	{"at any moment after the request", "count", `"n":20,"interval_ms":1`, func(v *victim) { time.Sleep(time.Duration(v.r.IntN(25)) * time.Millisecond) }, ""},
	{"while the restart recovers", "hang", `"n":1`, (*victim).twice, unknown},
}

func TestKill(t *testing.T) {
	if _, err := command(); err != nil {
		t.Fatal(err)
	}
	for _, pt := range points {
		for seed := range uint64(*killSeeds) {
			t.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(pt.name, " ", "-"), seed), func(t *testing.T) {
				t.Parallel()
				killAt(t, pt, seed)
			})
		}
	}
}

// victim is a call whose segno is about to be killed.
type victim struct {
	t *testing.T
	r *rand.Rand
	p *process
	c *client
	k *call
}

func killAt(t *testing.T, pt point, seed uint64) {
	v := &victim{t: t, r: rand.New(rand.NewPCG(seed, 9)), p: newProcess(t)}
	v.p.start()
	v.c = v.p.client()
	v.k = &call{c: v.c, key: "the-call", id: `"c"`, token: `"t"`, tool: pt.tool}
	v.k.body = string(fakemcp.Call(v.k.id, pt.tool, `{"key":"the-call",`+pt.args+`}`, v.k.token))
	v.c.calls = append(v.c.calls, v.k)
	first := v.c.request(v.k, "call", cut{}, "")
	pt.reach(v)
	v.p.kill()
	<-first.done // with what was on its way
	had := v.ids()
	v.p.start()
	v.goOn()
	v.check(pt, had)
	v.alive()
}

// events waits until the client has so many, the priming one included.
func (v *victim) events(n int) {
	v.until(fmt.Sprint(n, " events"), func() bool { return len(v.ids()) >= n })
}

func (v *victim) until(what string, ok func() bool) {
	v.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			v.t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// ids are all events that the client ever had, in order.
func (v *victim) ids() (all []seen) {
	v.c.w.mu.Lock()
	defer v.c.w.mu.Unlock()
	for _, x := range v.c.w.conns {
		if x.o.chain == &v.k.chain {
			all = append(all, x.events...)
		}
	}
	return all
}

// unread leaves before the outcome; an observer sees that it is in the log.
func (v *victim) unread() {
	v.events(1)
	v.k.chain.conn.drop("is closed by the client", nil)
	observer := v.c.probe("observer", v.c.w.cursor(&v.k.chain), cut{}, "")
	<-observer.done
}

func (v *victim) asked() {
	v.c.w.mu.Lock()
	v.c.mute = true
	v.c.w.mu.Unlock()
	v.events(2)
}

// twice kills a segno that was just started again, as it ends the call.
func (v *victim) twice() {
	v.events(1)
	v.p.kill()
	v.p.start()
	v.c.resume(&v.k.chain, "resume", cut{}, "")
	time.Sleep(time.Duration(v.r.IntN(10)) * time.Millisecond)
}

// goOn follows the call to its end.
func (v *victim) goOn() {
	for range rounds {
		v.k.follow()
		v.k.chain.conn.wait(10 * time.Second)
		if v.k.followed() {
			return
		}
	}
	v.t.Errorf("the call has no end")
}

// check compares what the client had with what is there, and with what the
// server did.
func (v *victim) check(pt point, had []seen) {
	all := v.ids()
	seqs := map[uint64]string{}
	for _, e := range all {
		c, ok := parseCursor(e.id)
		if !ok {
			v.t.Errorf("an event has the id %q", e.id)
			continue
		}
		if was, twice := seqs[c.seq]; twice && e.data != "" && was != e.data {
			v.t.Errorf("%d was %s and is %s", c.seq, was, e.data)
		}
		if e.data != "" {
			seqs[c.seq] = e.data
		}
	}
	v.replay(had, seqs)
	outcomes := map[string]bool{}
	for _, o := range v.k.outcomes {
		outcomes[o] = true
	}
	if len(outcomes) != 1 {
		v.t.Errorf("the call has %d outcomes: %v", len(outcomes), v.k.outcomes)
	}
	for o := range outcomes {
		if !strings.Contains(o, pt.outcome) || !strings.Contains(o, ran) && !strings.Contains(o, unknown) {
			v.t.Errorf("the outcome is %s, want %s", o, pt.outcome)
		}
	}
	said := strings.Contains(seqs[2], "progress") || pt.outcome == ran
	if n := v.p.executed("the-call"); n > 1 || n == 0 && said {
		v.t.Errorf("the tool was run %d times", n)
	}
}

// replay asks for everything again from the first id on: what the client had is
// there, byte for byte, and a report that it had does not come before the
// outcome twice.
func (v *victim) replay(had []seen, seqs map[uint64]string) {
	if len(had) == 0 {
		return
	}
	x := v.c.probe("everything again", had[0].id, cut{}, "")
	x.wait(20 * time.Second)
	got := map[uint64]string{}
	last := uint64(0)
	for _, e := range x.events {
		c, ok := parseCursor(e.id)
		if !ok || e.data == "" {
			continue
		}
		if c.seq <= last {
			v.t.Errorf("%d comes after %d", c.seq, last)
		}
		last = c.seq
		got[c.seq] = e.data
	}
	for seq, data := range seqs {
		asked := strings.Contains(data, `"elicitation/create"`) // nobody waits for its answer any more
		if got[seq] != data && !asked {
			v.t.Errorf("the client had %d %s, now it is %q", seq, short(data), short(got[seq]))
		}
	}
}

// alive: the session goes on.
func (v *victim) alive() {
	k := &call{c: v.c, key: "the-next", id: `"d"`, tool: "echo"}
	k.body = string(fakemcp.Call(k.id, "echo", `{"key":"the-next"}`, ""))
	v.c.calls = append(v.c.calls, k)
	v.c.request(k, "call", cut{}, "").wait(20 * time.Second)
	if len(k.outcomes) != 1 || !strings.Contains(k.outcomes[0], ran) || v.p.executed("the-next") != 1 {
		v.t.Errorf("the next call was answered %v and run %d times", k.outcomes, v.p.executed("the-next"))
	}
	if x := v.c.open(v.c.opening("DELETE", http.MethodDelete)); true {
		<-x.done
		if x.status != http.StatusNoContent {
			v.t.Errorf("DELETE was answered %d", x.status)
		}
	}
}

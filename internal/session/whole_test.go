package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
)

// recorder remembers the kind of everything that was ever appended.
type recorder struct {
	eventlog.Log
	mu    sync.Mutex
	kinds map[string][]eventlog.Kind // by stream, seq-1
}

func (r *recorder) Append(ctx context.Context, a eventlog.Append) error {
	kinds := make([]eventlog.Kind, len(a.Events))
	for i := range a.Events {
		kinds[i] = a.Events[i].Kind
	}
	err := r.Log.Append(ctx, a)
	if err == nil {
		r.mu.Lock()
		r.kinds[a.Stream] = append(r.kinds[a.Stream], kinds...)
		r.mu.Unlock()
	}
	return err
}

// step is one thing that happens to a running call and a connection to it.
type step struct{ what, n int }

const (
	makeProgress = iota // n events
	makeLog
	makeAsk
	answerAsk // the nth that is open
	giveBack  // retention drops all it may
	ackHalf   // the client acknowledges the nth part of what it has
	readOn    // n deliveries
	reconnect // at the nth place, counted from the end of what was seen
	endCall
	steps
)

// reading is a connection together with what it must come to.
type reading struct {
	r       *Reader
	at      uint64 // delivered or told up to here
	seen    map[uint64]bool
	told    []eventlog.Gap
	problem string
}

func (g *reading) fail(format string, a ...any) {
	if g.problem == "" {
		g.problem = fmt.Sprintf(format, a...)
	}
}

// take checks a delivery: rising, once, and every jump told before.
func (g *reading) take(w *world, d Delivery) {
	if d.Notice != nil {
		gap := gapOf(w.t, d.Notice)
		if gap.After < g.at || gap.Next <= gap.After || gap.Lost == 0 || gap.Lost > gap.Next-gap.After-1 {
			g.fail("at %d a gap %+v was told", g.at, gap)
		}
		g.told = append(g.told, gap)
		for seq := g.at + 1; seq <= gap.After; seq++ {
			g.missing(w, seq)
		}
		g.at = gap.Next - 1
	}
	for _, e := range d.Events {
		if e.Seq <= g.at {
			g.fail("event %d came at %d", e.Seq, g.at)
		}
		for seq := g.at + 1; seq < e.Seq; seq++ {
			g.missing(w, seq)
		}
		g.at = e.Seq
		g.seen[e.Seq] = true
		g.r.Sent(e.Seq, true)
	}
}

// missing is called for a seq that was passed over in silence: only what is
// not for clients, or needs no answer any more, may be.
func (g *reading) missing(w *world, seq uint64) {
	switch w.kind(seq) {
	case eventlog.Opening, eventlog.End:
		return
	case eventlog.Request:
		if !w.openAt[seq] {
			return
		}
	}
	g.fail("%d was passed over in silence", seq)
}

func gapOf(t *testing.T, text []byte) (g eventlog.Gap) {
	m := message(t, "%s", text)
	for name, to := range map[string]*uint64{"after": &g.After, "next": &g.Next, "lost": &g.Lost} {
		at, err := m.Find("params", "data", "gap", name)
		if err != nil || !at.Ok() {
			t.Fatalf("a notice without %s: %s", name, text)
		}
		fmt.Sscan(string(m.Text(at)), to)
	}
	return g
}

type world struct {
	t      *testing.T
	b      *bench
	s      *Session
	srv    *server
	c      *Call
	inner  string
	log    *recorder
	openAt map[uint64]bool
	asked  int
	over   bool
}

func (w *world) kind(seq uint64) eventlog.Kind {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return w.log.kinds[w.c.Stream][seq-1]
}

// opens lists the seqs of the requests that wait.
func (w *world) opens() []uint64 {
	w.openAt = map[uint64]bool{}
	var list []uint64
	w.c.st.mu.Lock()
	for seq := range w.c.st.open {
		w.openAt[seq] = true
		list = append(list, seq)
	}
	w.c.st.mu.Unlock()
	slices.Sort(list)
	return list
}

func (w *world) do(st step, g *reading, p Policy) *reading {
	switch st.what {
	case makeProgress, makeLog, makeAsk, endCall:
		w.say(st)
	case answerAsk:
		if open := w.opens(); len(open) > 0 {
			w.c.st.mu.Lock()
			a := w.c.st.open[open[st.n%len(open)]]
			w.c.st.mu.Unlock()
			w.b.deliver(w.s, `{"jsonrpc":"2.0","id":%s,"result":{}}`, a.id)
		}
	case giveBack:
		w.s.trimRunning(1)
		if w.over {
			w.s.trimEnded(1)
		}
	case ackHalf:
		place := g.at * uint64(st.n%4) / 3
		w.s.Ack(w.t.Context(), w.b.cursor(w.s, w.c.Stream, place))
	case readOn:
		w.opens()
		for range st.n {
			d, err := g.r.Next(w.t.Context())
			if err != nil {
				g.fail("%v", err)
				return g
			}
			g.take(w, d)
		}
	case reconnect:
		return w.connect(g, uint64(st.n), p)
	}
	synctest.Wait()
	w.opens()
	return g
}

func (w *world) say(st step) {
	for range st.n {
		switch {
		case w.over:
		case st.what == makeProgress:
			w.srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, w.inner)
		case st.what == makeLog:
			w.srv.send(logLine, "x")
		case st.what == makeAsk:
			w.asked++
			w.srv.send(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{}}`, w.asked)
		case st.n > 8:
			w.over = true
			w.srv.send(`{"jsonrpc":"2.0","id":%s,"result":{}}`, w.inner)
		}
	}
}

// connect comes back at a place that was reached before.
func (w *world) connect(g *reading, back uint64, p Policy) *reading {
	place := g.at - min(back, g.at)
	res, err := w.s.Resume(w.t.Context(), w.b.cursor(w.s, w.c.Stream, place), p)
	if err != nil {
		g.fail("%v", err)
		return g
	}
	if res.Reader == nil {
		return g // nothing more to come
	}
	g.r.Close()
	next := &reading{r: res.Reader, at: place, seen: map[uint64]bool{}, problem: g.problem}
	return next
}

// finish reads all that is there and looks at the whole.
func (w *world) finish(g *reading, p Policy) string {
	for {
		synctest.Wait()
		w.opens()
		d, err := g.r.Next(w.t.Context())
		if err != nil {
			return err.Error()
		}
		g.take(w, d)
		if d.Ended || d.Wait {
			break
		}
	}
	info := w.b.stat(w.s, w.c.Stream)
	for seq := g.at + 1; seq <= info.Top; seq++ {
		g.missing(w, seq)
	}
	for seq := range info.Top {
		lost := slices.ContainsFunc(g.told, func(t eventlog.Gap) bool { return seq+1 > t.After && seq+1 < t.Next })
		pinned := w.kind(seq+1) == eventlog.Outcome || p != Fail && w.openAt[seq+1]
		if pinned && lost && !g.seen[seq+1] {
			g.fail("%d, of kind %d, was told as lost", seq+1, w.kind(seq+1))
		}
	}
	return g.problem
}

// TestDeliveredAndToldIsEverything: promises 1 and 5, whatever happens to the
// stream and whenever the client comes back.
func TestDeliveredAndToldIsEverything(t *testing.T) {
	one := rapid.Custom(func(rt *rapid.T) step {
		return step{rapid.IntRange(0, steps-1).Draw(rt, "what"), rapid.IntRange(1, 9).Draw(rt, "n")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		list := rapid.SliceOfN(one, 1, 60).Draw(rt, "steps")
		policy := rapid.SampledFrom([]Policy{Oldest, Live, Fail}).Draw(rt, "policy")
		problem := ""
		synctest.Test(t, func(t *testing.T) { problem = play(t, list, policy) })
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

func play(t *testing.T, list []step, policy Policy) string {
	log := &recorder{Log: memlog.New(), kinds: map[string][]eventlog.Kind{}}
	b := newBench(t, Options{Log: log, Limits: Limits{RetainEvents: 6}})
	s, srv := b.open()
	w := &world{t: t, b: b, s: s, srv: srv, log: log, openAt: map[uint64]bool{}}
	w.c = b.tool(s, `1`)
	m := srv.recv()
	w.inner = string(m.IDText())
	g := &reading{r: s.AttachCall(w.c, policy), at: 1, seen: map[uint64]bool{}}
	for _, st := range list {
		if g = w.do(st, g, policy); g.problem != "" {
			break
		}
	}
	problem := g.problem
	if problem == "" {
		problem = w.finish(g, policy)
	}
	g.r.Close()
	if problem != "" {
		problem += "\n" + strings.Join(strings.Fields(fmt.Sprint(log.kinds[w.c.Stream])), " ")
	}
	return problem
}

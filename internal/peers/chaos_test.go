package peers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// chaos is what happens to the connections of one call.
type chaos struct {
	name string
	plan plan
	slow bool // needs the default --retry, as a client waits a multiple of it
}

// storms are the rows of the table.
var storms = []chaos{
	{name: "abort1", plan: plan{how: abort, cuts: 1}},
	{name: "abort5", plan: plan{how: abort, cuts: 5}},
	{name: "clean10", plan: plan{how: clean, cuts: 10}},
	{name: "down3s", plan: plan{how: down, cuts: 1, gap: 3 * time.Second}, slow: true},
}

// revisions are what the servers behind Segno speak. What a client gets depends
// on what the client asked for, so the cells are the same for all.
var revisions = []string{"2024-11-05", "2025-06-18", "2025-11-25"}

const steps = 20 // of a call with progress

// TestChaos breaks the connections of a call in every way, for every client,
// before servers of three revisions, with a tool that reports progress and one
// that says nothing: each progress event comes once, the result once, and the
// tool runs once.
func TestChaos(t *testing.T) {
	need(t, "npm")
	clients := kinds(t)
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			quick, quickRuns := behind(t, version, "--retry", "300ms")
			usual, usualRuns := behind(t, version)
			for _, k := range clients {
				for _, c := range storms {
					s, l := quick, quickRuns
					if c.slow {
						s, l = usual, usualRuns
					}
					t.Run(k.name+"/"+c.name+"/progress", func(t *testing.T) { t.Parallel(); withProgress(t, k, c, s.url, l) })
					t.Run(k.name+"/"+c.name+"/quiet", func(t *testing.T) { t.Parallel(); quietly(t, k, c, s.url, l) })
				}
			}
		})
	}
}

// withProgress breaks a call that reports progress.
func withProgress(t *testing.T, k kind, c chaos, url string, l ledger) {
	p := c.plan
	p.after = max(1, 15/p.cuts) // so that the events last for all cuts
	ctx := within(t, 60*time.Second)
	proxy := cutBefore(t, url, p)
	client := k.open(t, proxy.url())
	defer client.close()
	tag, seen := tagOf(t), &progress{}
	text, err := client.call(ctx, "count", map[string]any{"tag": tag, "n": steps, "pace_ms": 30}, seen)
	if k.cleanOnly && p.how != clean {
		lostByClient(t, ctx, err, proxy, url, l, tag)
		onlyOnce(t, seen.numbers())
		return
	}
	if err != nil || text != "done "+tag {
		t.Fatalf("result %q, error %v; %s", text, err, proxy.story())
	}
	settled(t, k, seen)
	if conns, resumes := proxy.seen(); resumes < p.cuts {
		t.Errorf("only %d of %d connections were resumes: the call was not broken %d times", resumes, conns, p.cuts)
	}
	ranOnce(t, l, tag)
}

// quietly breaks a call that says nothing until all cuts were made.
func quietly(t *testing.T, k kind, c chaos, url string, l ledger) {
	ctx := within(t, 60*time.Second)
	proxy := cutBefore(t, url, c.plan)
	client := k.open(t, proxy.url())
	defer client.close()
	tag := tagOf(t)
	type end struct {
		text string
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		text, err := client.call(ctx, "quiet", map[string]any{"tag": tag}, nil)
		ended <- end{text, err}
	}()
	if k.cleanOnly && c.plan.how != clean {
		e := <-ended
		l.open(t, tag)
		lostByClient(t, ctx, e.err, proxy, url, l, tag)
		return
	}
	select {
	case <-proxy.broken:
	case e := <-ended:
		t.Fatalf("before all cuts: result %q, error %v; %s", e.text, e.err, proxy.story())
	}
	until(t, "the call is resumed after the last cut", 30*time.Second, func() bool {
		_, resumes := proxy.seen()
		return resumes >= c.plan.cuts
	})
	l.open(t, tag)
	if e := <-ended; e.err != nil || e.text != "done "+tag {
		t.Fatalf("result %q, error %v; %s", e.text, e.err, proxy.story())
	}
	ranOnce(t, l, tag)
}

func tagOf(t *testing.T) string { return strings.ReplaceAll(t.Name(), "/", "_") }

// settled waits for the last progress, which some clients hand over after the
// result, and checks that every step came once.
func settled(t *testing.T, k kind, seen *progress) {
	t.Helper()
	eventually(5*time.Second, func() bool { return len(seen.numbers()) >= steps })
	got := seen.numbers()
	if !k.ordered {
		slices.Sort(got)
	}
	var want []int
	for i := range steps {
		want = append(want, i+1)
	}
	if !slices.Equal(got, want) {
		t.Errorf("progress %v, want 1 to %d, each once", got, steps)
	}
}

func onlyOnce(t *testing.T, got []int) {
	t.Helper()
	slices.Sort(got)
	if len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("progress %v: something came twice", got)
	}
}

func ranOnce(t *testing.T, l ledger, tag string) {
	t.Helper()
	if n := l.runs(t, tag); n != 1 {
		t.Errorf("the tool ran %d times", n)
	}
}

// lostByClient states what a client that cannot resume after a break leaves: an
// error at once, one execution, and the outcome waiting in Segno for whoever
// holds the session and an event id.
func lostByClient(t *testing.T, ctx context.Context, err error, proxy *cutter, url string, l ledger, tag string) {
	t.Helper()
	if err == nil {
		t.Error("the client survived the break: it can do more than it could, so take it off cleanOnly")
		return
	}
	r := &raw{t: t, url: url, session: proxy.sessionID()}
	found := r.outcomes(r.resume(ctx, proxy.first()))
	if len(found) != 1 || !strings.Contains(string(found[0].Result), "done "+tag) {
		t.Errorf("resuming from the call's first id gave %+v, want its one result", found)
	}
	ranOnce(t, l, tag)
}

package peers

import (
	"slices"
	"testing"
	"time"
)

// TestField17_ClientsLiveThroughAGap lets events be dropped while a client is
// away: each client goes on with what is kept, gets the result and can use its
// session further, and the wire says how many events are missing.
func TestField17_ClientsLiveThroughAGap(t *testing.T) {
	need(t, "npm")
	s, l := behind(t, "2025-11-25", "--retain-events", "5")
	for _, k := range kinds(t) {
		if !k.cleanOnly {
			t.Run(k.name, func(t *testing.T) { t.Parallel(); throughGap(t, k, s.url, l) })
		}
	}
}

func throughGap(t *testing.T, k kind, url string, l ledger) {
	const n = 40
	ctx := within(t, 60*time.Second)
	proxy := cutBefore(t, url, plan{how: down, cuts: 1, after: 2, gap: 3 * time.Second})
	client := k.open(t, proxy.url())
	defer client.close()
	seen := &progress{}
	tag := tagOf(t)
	text, err := client.call(ctx, "count", map[string]any{"tag": tag, "n": n, "pace_ms": 20}, seen)
	if err != nil || text != "done "+tag {
		t.Fatalf("result %q, error %v; %s", text, err, proxy.story())
	}
	eventually(5*time.Second, func() bool { return slices.Contains(seen.numbers(), n) })
	got := seen.numbers()
	onlyOnce(t, got)
	if !slices.Contains(got, 1) || !slices.Contains(got, n) || len(got) >= n-5 {
		t.Errorf("progress %v: want 1, 2, a hole, and the last up to %d", got, n)
	}
	ranOnce(t, l, tag)
	if text, err := client.call(ctx, "count", map[string]any{"tag": tag + "-next", "n": 1}, nil); err != nil {
		t.Errorf("the next call: %q, %v", text, err)
	}
	r := &raw{t: t, url: url, session: proxy.sessionID()}
	toldAll(t, r, within(t, 20*time.Second), proxy.first(), n)
}

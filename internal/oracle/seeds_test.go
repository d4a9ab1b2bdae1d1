package oracle

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/segno-mcp/segno/internal/fakemcp"
)

var (
	oneSeed   = flag.Uint64("seed", 0, "run this seed alone and tell its story")
	seeds     = flag.Uint64("seeds", 1000, "run so many seeds")
	from      = flag.Uint64("from", 1, "the first of them")
	killSeeds = flag.Uint("kills", 2, "kill at each point so many times")
	during    = flag.Duration("for", 0, "run seeds for so long instead, from a random one on")
)

func TestMain(m *testing.M) {
	fakemcp.Main()
	flag.Parse()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(workshop); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

// lanes is how many seeds run side by side.
const lanes = 4

func TestSeeds(t *testing.T) {
	if *oneSeed != 0 {
		p := newPlan(*oneSeed)
		w := run1(t, p)
		t.Logf("seed %d\n%s", p.seed, w.tale(""))
		report(t, p, w)
		return
	}
	var next, ran atomic.Uint64
	next.Store(*from)
	until := *from + *seeds
	deadline := time.Time{}
	if *during > 0 {
		next.Store(uint64(time.Now().UnixNano()))
		deadline, until = time.Now().Add(*during), ^uint64(0)
	}
	t.Run("all", func(t *testing.T) {
		for lane := range lanes {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				for !t.Failed() && (deadline.IsZero() || time.Now().Before(deadline)) {
					seed := next.Add(1) - 1
					if seed >= until {
						return
					}
					p := newPlan(seed)
					report(t, p, run1(t, p))
					ran.Add(1)
				}
			})
		}
	})
	t.Logf("%d seeds", ran.Load())
}

// run1 plays a plan in a bubble of its own.
func run1(t *testing.T, p plan) (w *world) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { w = p.play() })
	return w
}

// report tells of a seed that failed, after making it as short as it gets.
func report(t *testing.T, p plan, w *world) {
	t.Helper()
	if len(w.faults) == 0 {
		return
	}
	first := w.faults[0]
	p, w = shrink(t, p, w, first.check)
	var b strings.Builder
	for _, f := range w.faults {
		fmt.Fprintf(&b, "  %s: %s\n", f.check, f.text)
	}
	t.Errorf("seed %d: %s: %s\nto see it again: go test ./internal/oracle -run TestSeeds -seed %d -v\nwith %d steps left:\n%s%s",
		p.seed, first.check, first.text, p.seed, len(p.steps), b.String(), w.tale(w.faults[0].text))
}

// shrink leaves out steps as long as the same check fails.
func shrink(t *testing.T, p plan, w *world, check string) (plan, *world) {
	for size := len(p.steps) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(p.steps); {
			less := p.without(at, at+size)
			if got := run1(t, less); got.has(check) {
				p, w = less, got
			} else {
				at += size
			}
		}
	}
	return p, w
}

func (w *world) has(check string) bool {
	for _, f := range w.faults {
		if f.check == check {
			return true
		}
	}
	return false
}

// tale is the story, or the part of it that concerns whom the fault is about.
func (w *world) tale(fault string) string {
	who, _, _ := strings.Cut(fault, ":")
	var b strings.Builder
	fmt.Fprintf(&b, "with %+v\n", w.knobs)
	for _, c := range w.story {
		name := c.who
		for _, cl := range w.clients {
			if name != "" && strings.HasPrefix(cl.id, name+"-") {
				name = cl.name
			}
		}
		if who == "" || name == "" || name == who {
			fmt.Fprintf(&b, "%12v %-6s %s\n", c.at, name, c.text)
		}
	}
	return b.String()
}

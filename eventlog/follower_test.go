package eventlog_test

import (
	"slices"
	"testing"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"pgregory.net/rapid"
)

var key = eventlog.Key{Session: "s", Stream: "x"}

// client is somebody who follows a stream over connections that break.
type client struct {
	*rapid.T
	log   eventlog.Log
	f     *eventlog.Follower
	hint  chan struct{}
	place uint64
	got   map[uint64]bool
	told  map[uint64]bool
	skips map[uint64]bool
	kinds []eventlog.Kind // what was appended
	gone  map[uint64]bool // what trims removed
	fence uint64
}

// A connection gets the kept events after its place in rising order, each once,
// and what is gone is told, with the right number, before what follows it.
// Delivered plus told is everything.
func TestFollowerTellsEverything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &client{T: rt, log: memlog.New(), got: map[uint64]bool{}, told: map[uint64]bool{}, skips: map[uint64]bool{}, gone: map[uint64]bool{}}
		owner, err := c.log.Claim(t.Context(), "s", true)
		if err != nil {
			t.Fatal(err)
		}
		c.fence = owner.Fence
		c.append(rt)
		c.connect()
		rt.Repeat(map[string]func(*rapid.T){
			"append": c.append,
			"trim":   c.trim,
			"claim": func(*rapid.T) {
				owner, err := c.log.Claim(t.Context(), "s", false)
				if err != nil {
					rt.Fatal(err)
				}
				c.fence = owner.Fence
			},
			"read": func(rt *rapid.T) {
				for range rapid.IntRange(1, 3).Draw(rt, "pages") {
					c.step(rapid.IntRange(0, 60).Draw(rt, "max"))
				}
			},
			"cut": func(rt *rapid.T) {
				c.f.Close()
				c.connect()
			},
			"skip": func(rt *rapid.T) {
				if rapid.IntRange(0, 4).Draw(rt, "seldom") > 0 {
					return
				}
				to := c.f.At() + rapid.Uint64Range(0, 3).Draw(rt, "by")
				to = min(to, uint64(len(c.kinds)))
				for seq := c.f.At() + 1; seq <= to; seq++ {
					c.skips[seq] = true
				}
				c.f.Skip(to)
				c.place = c.f.At()
			},
		})
		for c.step(1 << 20) {
		}
		c.account()
		c.f.Close()
	})
}

func (c *client) connect() {
	c.hint = make(chan struct{}, 1)
	c.f = eventlog.Follow(c.log, key, c.place, c.hint)
}

func (c *client) append(rt *rapid.T) {
	a := eventlog.Append{Key: key, Fence: c.fence, After: uint64(len(c.kinds))}
	for range rapid.IntRange(1, 9).Draw(rt, "events") {
		kind := rapid.SampledFrom([]eventlog.Kind{eventlog.Progress, eventlog.Progress, eventlog.Other, eventlog.Request}).Draw(rt, "kind")
		a.Events = append(a.Events, eventlog.Event{Kind: kind, Data: make([]byte, 10)})
		c.kinds = append(c.kinds, kind)
	}
	if err := c.log.Append(rt.Context(), a); err != nil {
		rt.Fatal(err)
	}
}

func (c *client) trim(rt *rapid.T) {
	through := rapid.Uint64Range(0, uint64(len(c.kinds))).Draw(rt, "through")
	keep := rapid.SampledFrom([]eventlog.Kinds{eventlog.Pinned, 0, eventlog.Of(eventlog.Other)}).Draw(rt, "keep")
	if _, err := c.log.Trim(rt.Context(), key, c.fence, through, keep); err != nil {
		rt.Fatal(err)
	}
	for seq := uint64(1); seq <= through && seq < uint64(len(c.kinds)); seq++ {
		if !keep.Has(c.kinds[seq-1]) {
			c.gone[seq] = true
		}
	}
}

// step takes the follower's next step and tells whether there was one.
func (c *client) step(max int) bool {
	step, err := c.f.Next(c.Context(), max)
	if err != nil {
		c.Fatal(err)
	}
	if g := step.Gap; g != nil {
		if g.After != c.place || g.Next <= g.After+1 || g.Lost != g.Next-g.After-1 || len(step.Page.Events) > 0 {
			c.Fatalf("at %d: gap %+v with %d events", c.place, *g, len(step.Page.Events))
		}
		for seq := g.After + 1; seq < g.Next; seq++ {
			if !c.gone[seq] {
				c.Fatalf("%d is told as lost and is there", seq)
			}
			c.told[seq] = true
		}
		c.place = g.Next - 1
	}
	for _, e := range step.Page.Events {
		if e.Seq != c.place+1 || c.got[e.Seq] || e.Kind != c.kinds[e.Seq-1] {
			c.Fatalf("at %d: event %d of kind %d", c.place, e.Seq, e.Kind)
		}
		c.got[e.Seq] = true
		c.place = e.Seq
	}
	if c.f.At() != c.place {
		c.Fatalf("the follower is at %d, the client at %d", c.f.At(), c.place)
	}
	return step.Gap != nil || len(step.Page.Events) > 0
}

func (c *client) account() {
	for seq := uint64(1); seq <= uint64(len(c.kinds)); seq++ {
		if n := slices.Index([]bool{c.got[seq], c.told[seq], c.skips[seq]}, true); n < 0 {
			c.Fatalf("%d was neither delivered nor told as lost", seq)
		}
		if c.got[seq] && c.told[seq] {
			c.Fatalf("%d was both delivered and told as lost", seq)
		}
	}
	if c.place != uint64(len(c.kinds)) {
		c.Fatalf("the client is at %d of %d", c.place, len(c.kinds))
	}
}

func TestFollowerEnds(t *testing.T) {
	log := memlog.New()
	owner, err := log.Claim(t.Context(), "s", true)
	if err != nil {
		t.Fatal(err)
	}
	a := eventlog.Append{Key: key, Fence: owner.Fence, Events: []eventlog.Event{{Kind: eventlog.Opening}, {Kind: eventlog.End}}}
	if err := log.Append(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	f := eventlog.Follow(log, key, 0, make(chan struct{}, 1))
	step, err := f.Next(t.Context(), 100)
	if err != nil || len(step.Page.Events) != 2 {
		t.Fatalf("first %+v, %v", step, err)
	}
	step, err = f.Next(t.Context(), 100)
	if err != nil || len(step.Page.Events) != 0 || !step.Page.Ended {
		t.Fatalf("then %+v, %v", step, err)
	}
	f.Close()
	f.Close()
}

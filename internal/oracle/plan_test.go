package oracle

import (
	"math/rand/v2"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/eventlog/pebblelog"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// plan is what happens in a run: steps, each with the source of its own
// choices, so that leaving one out leaves the others what they were.
type plan struct {
	seed   uint64
	knobs  knobs
	pebble bool
	ending string
	people []person
	steps  []planned
}

type planned struct {
	step *step
	salt uint64
	then time.Duration // to pass afterwards; 0: everything comes to rest; negative: nothing is waited for
}

// person is a session that is opened at the start.
type person struct {
	who, asked string
	sloppy     bool
}

func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 0x5e610))
	p := plan{seed: seed, knobs: randomKnobs(r), pebble: r.IntN(10) == 0, ending: pick(r, "delete", "delete", "expire")}
	for _, who := range []string{"ann", "bob"} {
		for range 1 + r.IntN(2) {
			p.people = append(p.people, randomPerson(r, who))
		}
	}
	for range 8 + r.IntN(24) {
		p.steps = append(p.steps, planned{step: chooseStep(r), salt: r.Uint64(), then: randomPause(r)})
	}
	return p
}

func randomPerson(r *rand.Rand, who string) person {
	return person{who: who, sloppy: r.IntN(4) == 0,
		asked: pick(r, "2025-11-25", "2025-11-25", "2025-11-25", "2025-06-18", "2025-03-26")}
}

func randomPause(r *rand.Rand) time.Duration {
	switch n := r.IntN(20); {
	case n < 5:
		return -1
	case n < 8:
		return 0
	case n < 17:
		return time.Duration(r.Int64N(int64(200 * time.Millisecond)))
	case n < 19:
		return time.Duration(r.Int64N(int64(4 * time.Second)))
	}
	return time.Duration(r.Int64N(int64(25 * time.Second)))
}

// without is the plan with some steps left out.
func (p plan) without(from, to int) plan {
	p.steps = append(append([]planned(nil), p.steps[:from]...), p.steps[to:]...)
	return p
}

// store is what outlives a Segno.
type store interface {
	open() (eventlog.Log, error)
	close(killed bool)
	forget()
}

type inMemory struct{ log *memlog.Log }

func (s inMemory) open() (eventlog.Log, error) { return s.log, nil }
func (inMemory) close(bool)                    {}
func (s inMemory) forget()                     { s.log.Close() }

// onDisk is a store whose disk is in memory.
type onDisk struct {
	fs  *vfs.MemFS
	log *pebblelog.Log
}

func (s *onDisk) open() (log eventlog.Log, err error) {
	s.log, err = pebblelog.Open("store", pebblelog.Options{FS: s.fs})
	return s.log, err
}
func (s *onDisk) close(bool) { s.log.Close() }
func (s *onDisk) forget()    {}

// play runs the plan and returns the world as it was left.
func (p plan) play() *world {
	var s store = inMemory{memlog.New()}
	if p.pebble {
		s = &onDisk{fs: vfs.NewMem()}
	}
	w := newWorld(p.seed, s, p.knobs)
	w.pebble = p.pebble
	w.start()
	for _, one := range p.people {
		c := newClient(w, one)
		c.initialize()
	}
	for _, one := range p.steps {
		r := rand.New(rand.NewPCG(p.seed, one.salt))
		one.step.do(w, r)
		switch {
		case one.then > 0:
			time.Sleep(one.then)
		case one.then == 0:
			synctest.Wait()
		}
		w.revive()
	}
	w.finale(p.ending)
	return w
}

package logtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/segno-mcp/segno/eventlog"
)

// scene is a log with an owner of session "s", and short words to use it.
type scene struct {
	*testing.T
	ctx   context.Context
	log   eventlog.Log
	owner eventlog.Claim
}

const everything = 1 << 30

var (
	call  = eventlog.Key{Session: "s", Stream: "call"}
	other = eventlog.Key{Session: "s", Stream: "other"}
)

func newScene(t *testing.T, log eventlog.Log) *scene {
	s := &scene{T: t, ctx: t.Context(), log: log}
	s.owner = s.claim("s")
	return s
}

func (s *scene) claim(session string) eventlog.Claim {
	s.Helper()
	c, err := s.log.Claim(s.ctx, session, true)
	s.ok(err)
	return c
}

func (s *scene) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) wants(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("got error %v, want %v", err, want)
	}
}

// add appends one event for each kind, its data named after its seq.
func (s *scene) add(k eventlog.Key, after uint64, kinds ...eventlog.Kind) {
	s.Helper()
	s.ok(s.try(k, after, kinds...))
}

func (s *scene) try(k eventlog.Key, after uint64, kinds ...eventlog.Kind) error {
	return s.log.Append(s.ctx, s.step(k, after, kinds...))
}

func (s *scene) step(k eventlog.Key, after uint64, kinds ...eventlog.Kind) eventlog.Append {
	return eventlog.Append{Key: k, Fence: s.owner.Fence, After: after, Events: events(after, kinds...)}
}

func events(after uint64, kinds ...eventlog.Kind) []eventlog.Event {
	var out []eventlog.Event
	for n, kind := range kinds {
		seq := after + uint64(n) + 1
		out = append(out, eventlog.Event{Time: int64(seq) * 1000, Kind: kind, Data: fmt.Appendf(nil, "event %d", seq)})
	}
	return out
}

func times(n int, kind eventlog.Kind) []eventlog.Kind {
	return slices.Repeat([]eventlog.Kind{kind}, n)
}

// all reads everything after a place, page by page.
func (s *scene) all(k eventlog.Key, after uint64) []eventlog.Event {
	s.Helper()
	var out []eventlog.Event
	for {
		p, err := s.log.Read(s.ctx, k, after, everything)
		s.ok(err)
		if len(p.Events) == 0 {
			return out
		}
		for _, e := range p.Events {
			if e.Seq <= after {
				s.Fatalf("read after %d yields seq %d", after, e.Seq)
			}
			after = e.Seq
			out = append(out, e)
		}
	}
}

func (s *scene) seqs(k eventlog.Key, after uint64, want ...uint64) {
	s.Helper()
	var got []uint64
	for _, e := range s.all(k, after) {
		got = append(got, e.Seq)
	}
	if !slices.Equal(got, want) {
		s.Fatalf("after %d: got events %v, want %v", after, got, want)
	}
}

func (s *scene) stat(k eventlog.Key) eventlog.Info {
	s.Helper()
	info, err := s.log.Stat(s.ctx, k)
	s.ok(err)
	return info
}

func (s *scene) absent(k eventlog.Key) {
	s.Helper()
	_, err := s.log.Stat(s.ctx, k)
	s.wants(err, eventlog.ErrNoStream)
	_, err = s.log.Read(s.ctx, k, 0, everything)
	s.wants(err, eventlog.ErrNoStream)
}

func (s *scene) trim(k eventlog.Key, through uint64, keep eventlog.Kinds) eventlog.Trimmed {
	s.Helper()
	gone, err := s.log.Trim(s.ctx, k, s.owner.Fence, through, keep)
	s.ok(err)
	return gone
}

func (s *scene) drop(k eventlog.Key, memo string) {
	s.Helper()
	var m []byte
	if memo != "" {
		m = []byte(memo)
	}
	s.ok(s.log.Drop(s.ctx, k, s.owner.Fence, m))
}

// release forgets what is in memory of session "s", so that the next read goes
// to where it is kept. A back end may release behind the caller's back, but not
// after a later step.
func (s *scene) release() {
	s.Helper()
	s.log.Release("s")
	s.ok(s.log.Arm(s.ctx, eventlog.Key{Session: "s"}, time.Time{}))
}

func (s *scene) due(at int64, max int, want ...eventlog.Key) {
	s.Helper()
	got, err := s.log.Due(s.ctx, time.Unix(at, 0), max)
	s.ok(err)
	if !slices.Equal(got, want) {
		s.Fatalf("due at %d: got %v, want %v", at, got, want)
	}
}

func (s *scene) hinted(hint <-chan struct{}) {
	s.Helper()
	select {
	case <-hint:
	case <-time.After(10 * time.Second):
		s.Fatal("no hint came")
	}
}

// follow runs a follower until nothing new is there.
func (s *scene) follow(f *eventlog.Follower) (got []uint64, gaps []eventlog.Gap) {
	s.Helper()
	for {
		step, err := f.Next(s.ctx, everything)
		s.ok(err)
		switch {
		case step.Gap != nil:
			gaps = append(gaps, *step.Gap)
		case len(step.Page.Events) == 0:
			return got, gaps
		}
		for _, e := range step.Page.Events {
			got = append(got, e.Seq)
		}
	}
}

func key(session string, n int) eventlog.Key {
	return eventlog.Key{Session: session, Stream: fmt.Sprintf("stream-%05d", n)}
}

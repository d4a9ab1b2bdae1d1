package logtest

import (
	"context"
	"sync/atomic"

	"github.com/segno-mcp/segno/eventlog"
)

var watchRules = []rule{
	{"WatchHints", "a reader that waits is woken by what it waits for", func(s *scene) {
		hint := make(chan struct{}, 1)
		stop := s.log.Watch(call, hint)
		s.add(call, 0, eventlog.Opening)
		s.hinted(hint)
		s.add(call, 1, eventlog.Progress)
		s.add(call, 2, eventlog.Progress) // hints merge, nobody waits for room
		s.hinted(hint)
		s.drop(call, "memo")
		s.hinted(hint)
		stop()
		stop()
		late := make(chan struct{}, 1)
		defer s.log.Watch(other, late)()
		s.add(other, 0, eventlog.Opening)
		s.hinted(late)
		s.ok(s.log.DropSession(s.ctx, "s", s.owner.Fence))
		s.hinted(late)
		if len(hint) != 0 {
			s.Error("a hint after stop")
		}
	}},
	{"TwoWatchers", "one reader's end must not silence another", func(s *scene) {
		one, two := make(chan struct{}, 1), make(chan struct{}, 1)
		stop := s.log.Watch(call, one)
		defer s.log.Watch(call, two)()
		s.add(call, 0, eventlog.Opening)
		s.hinted(one)
		s.hinted(two)
		stop()
		s.add(call, 1, eventlog.End)
		s.hinted(two)
		s.seqs(call, 1, 2)
	}},
	{"NoLostWakeUp", "an event that comes between the last read and the wait must wake the reader", func(s *scene) {
		s.add(call, 0, eventlog.Opening)
		sly := &slyLog{Log: s.log}
		hint := make(chan struct{}, 1)
		f := eventlog.Follow(sly, call, 0, hint)
		defer f.Close()
		for seq := uint64(1); seq < 50; seq++ {
			step, err := f.Next(s.ctx, everything)
			s.ok(err)
			if len(step.Page.Events) != 1 || f.At() != seq {
				s.Fatalf("at %d: %+v", seq, step)
			}
			// The next event comes at the very end of the read that finds
			// nothing, so that only the hint can tell of it.
			sly.after.Store(seq)
			sly.write = func(after uint64) { s.add(call, after, eventlog.Progress) }
			step, err = f.Next(s.ctx, everything)
			s.ok(err)
			if len(step.Page.Events) != 0 {
				s.Fatalf("at %d: %+v", seq, step)
			}
			s.hinted(hint)
			for len(hint) > 0 {
				<-hint
			}
		}
	}},
}

// slyLog writes at the very end of a read.
type slyLog struct {
	eventlog.Log
	after atomic.Uint64
	write func(after uint64)
}

func (l *slyLog) Read(ctx context.Context, k eventlog.Key, after uint64, max int) (eventlog.Page, error) {
	p, err := l.Log.Read(ctx, k, after, max)
	if write := l.write; write != nil {
		l.write = nil
		write(l.after.Load())
	}
	return p, err
}

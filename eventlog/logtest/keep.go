package logtest

import (
	"github.com/segno-mcp/segno/eventlog"
)

// pattern has pinned events between others.
var pattern = []eventlog.Kind{
	eventlog.Opening, eventlog.Progress, eventlog.Progress, eventlog.Request, eventlog.Other,
	eventlog.Progress, eventlog.Request, eventlog.Progress, eventlog.Other, eventlog.Outcome,
}

var keepRules = []rule{
	{"PinnedStays", "an outcome and an open question to the client live as long as their session", func(s *scene) {
		s.add(call, 0, pattern...)
		gone := s.trim(call, 9, eventlog.Pinned)
		s.seqs(call, 0, 1, 4, 7, 10)
		s.seqs(call, 4, 7, 10)
		info := s.stat(call)
		if gone.Events != 6 || gone.Bytes != 6*7 || info.Events != 4 || info.Floor != 9 || info.Top != 10 {
			s.Fatalf("trimmed %+v, left %+v", gone, info)
		}
		s.add(call, 10, eventlog.End)
		s.seqs(call, 8, 10, 11)
	}},
	{"TrimInSteps", "retention trims a little at a time, and counts each event once", func(s *scene) {
		s.add(call, 0, pattern...)
		sum := eventlog.Trimmed{}
		for through := range uint64(12) {
			gone := s.trim(call, through, eventlog.Pinned)
			again := s.trim(call, through, eventlog.Pinned)
			if again != (eventlog.Trimmed{}) {
				s.Errorf("a second trim through %d removes %+v", through, again)
			}
			sum.Events += gone.Events
			sum.Bytes += gone.Bytes
			if info := s.stat(call); info.Events != 10-sum.Events {
				s.Errorf("through %d: %d events kept, %d trimmed", through, info.Events, sum.Events)
			}
		}
		s.seqs(call, 0, 1, 4, 7, 10)
		s.trim(call, 3, eventlog.Pinned)
		if floor := s.stat(call).Floor; floor != 9 {
			s.Errorf("floor %d, want 9", floor)
		}
	}},
	{"NewestStays", "the top is known from the newest event, whatever its size or kind", func(s *scene) {
		s.add(call, 0, eventlog.Opening, eventlog.Progress, eventlog.Progress)
		s.trim(call, 100, 0)
		s.seqs(call, 0, 3)
		s.add(call, 3, eventlog.Progress)
		s.seqs(call, 0, 3, 4)
		s.trim(call, 4, eventlog.Pinned)
		s.seqs(call, 0, 4)
		s.add(call, 4, eventlog.Outcome)
		s.trim(call, 5, 0)
		s.seqs(call, 0, 5)
		if info := s.stat(call); info.Top != 5 || info.Events != 1 || info.Floor != 4 {
			s.Fatalf("left %+v", info)
		}
	}},
	{"ProgressFirst", "what is worth least goes first: a trim may spare any set of kinds", func(s *scene) {
		s.add(call, 0, pattern...)
		gone := s.trim(call, 8, eventlog.Pinned|eventlog.Of(eventlog.Other))
		s.seqs(call, 0, 1, 4, 5, 7, 9, 10)
		if info := s.stat(call); gone.Events != 4 || info.Floor != 0 || info.Events != 6 {
			s.Fatalf("trimmed %+v, left %+v", gone, info)
		}
		gone = s.trim(call, 9, eventlog.Pinned)
		s.seqs(call, 0, 1, 4, 7, 10)
		if gone.Events != 2 || s.stat(call).Floor != 9 {
			s.Fatalf("then trimmed %+v", gone)
		}
	}},
	{"AnsweredQuestionsGo", "a pinned kind may be trimmed too, once it is proven of no use", func(s *scene) {
		s.add(call, 0, pattern...)
		gone := s.trim(call, 6, eventlog.Pinned&^eventlog.Of(eventlog.Request))
		s.seqs(call, 0, 1, 7, 8, 9, 10)
		if gone.Events != 5 || s.stat(call).Events != 5 {
			s.Fatalf("trimmed %+v", gone)
		}
		gone = s.trim(call, 9, eventlog.Of(eventlog.Opening))
		s.seqs(call, 0, 1, 10)
		if gone.Events != 3 {
			s.Fatalf("then trimmed %+v", gone)
		}
	}},
	{"TrimAcrossAppends", "retention keeps a window over a long stream", func(s *scene) {
		after := uint64(0)
		for range 40 {
			s.add(call, after, times(50, eventlog.Progress)...)
			s.add(call, after+50, eventlog.Request)
			after += 51
			if after > 300 {
				s.trim(call, after-300, eventlog.Pinned)
			}
		}
		info := s.stat(call)
		got := s.all(call, 0)
		bytes := int64(0)
		for _, e := range got {
			bytes += int64(len(e.Data))
			if e.Kind == eventlog.Progress && e.Seq <= info.Floor {
				s.Errorf("seq %d is below the floor %d", e.Seq, info.Floor)
			}
		}
		if info.Floor != after-300 || int64(len(got)) != info.Events || bytes != info.Bytes {
			s.Fatalf("%d events of %d bytes are there, told is %+v", len(got), bytes, info)
		}
	}},
	{"TrimOfNothing", "keeping what is not there is an error", func(s *scene) {
		_, err := s.log.Trim(s.ctx, call, s.owner.Fence, 1, 0)
		s.wants(err, eventlog.ErrNoStream)
		_, err = s.log.Trim(s.ctx, eventlog.Key{Session: "nobody", Stream: "call"}, 1, 1, 0)
		s.wants(err, eventlog.ErrNoSession)
	}},
	{"OvertakenReader", "a reader that retention overtakes is told what it lost before it gets the rest", func(s *scene) {
		s.add(call, 0, pattern...)
		f := eventlog.Follow(s.log, call, 0, make(chan struct{}, 1))
		defer f.Close()
		step, err := f.Next(s.ctx, 1)
		s.ok(err)
		if len(step.Page.Events) != 1 || f.At() != 1 {
			s.Fatalf("first step %+v", step)
		}
		s.trim(call, 6, eventlog.Pinned)
		got, gaps := s.follow(f)
		wantGaps := []eventlog.Gap{{After: 1, Next: 4, Lost: 2}, {After: 4, Next: 7, Lost: 2}}
		if len(gaps) != 2 || gaps[0] != wantGaps[0] || gaps[1] != wantGaps[1] {
			s.Errorf("gaps %v, want %v", gaps, wantGaps)
		}
		if len(got) != 5 || got[0] != 4 || got[1] != 7 || got[4] != 10 {
			s.Errorf("events %v", got)
		}
	}},
}

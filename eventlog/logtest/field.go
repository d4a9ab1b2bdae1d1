package logtest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/segno-mcp/segno/eventlog"
)

// Failures seen in the field, by their number in the research.
var fieldRules = []rule{
	{"Field16_SeqsAreNumbers", "ids compared as text put 10 before 9", func(s *scene) {
		s.add(call, 0, times(1005, eventlog.Other)...)
		for _, after := range []uint64{9, 10, 99, 100, 255, 256, 999, 1000} {
			got := s.all(call, after)
			for n, e := range got {
				if e.Seq != after+uint64(n)+1 {
					s.Fatalf("after %d: seq %d at position %d", after, e.Seq, n)
				}
			}
			if len(got) != 1005-int(after) {
				s.Fatalf("after %d: %d events", after, len(got))
			}
		}
	}},
	{"Field17_EvictedCursorIsTold", "a cursor that retention passed must not count as caught up", func(s *scene) {
		s.add(call, 0, times(12, eventlog.Progress)...)
		s.trim(call, 7, eventlog.Pinned)
		f := eventlog.Follow(s.log, call, 3, make(chan struct{}, 1))
		defer f.Close()
		got, gaps := s.follow(f)
		if len(gaps) != 1 || gaps[0] != (eventlog.Gap{After: 3, Next: 8, Lost: 4}) || len(got) != 5 || got[0] != 8 {
			s.Fatalf("events %v, gaps %v", got, gaps)
		}
	}},
	{"Field18_EdgeOfRetention", "the place just left of the oldest kept event misses nothing, the one before it one event", func(s *scene) {
		s.add(call, 0, times(12, eventlog.Progress)...)
		s.trim(call, 7, eventlog.Pinned)
		for after, lost := range map[uint64]uint64{7: 0, 6: 1, 12: 0, 0: 7, 8: 0} {
			f := eventlog.Follow(s.log, call, after, make(chan struct{}, 1))
			got, gaps := s.follow(f)
			f.Close()
			told := uint64(0)
			for _, g := range gaps {
				told += g.Lost
			}
			if told != lost || uint64(len(got))+told != 12-after {
				s.Errorf("after %d: %d events, %d told as lost, want %d", after, len(got), told, lost)
			}
		}
		s.place(s.stat(call), s.owner.Term, 13, 12, false)
	}},
	{"Field20_OneStreamOnly", "a replay must bring nothing of another stream", func(s *scene) {
		one, two := key("s", 1), key("s", 2)
		for n := range uint64(20) {
			s.add(one, n, eventlog.Progress)
			s.add(two, n, eventlog.Other)
		}
		for _, e := range s.all(one, 5) {
			if e.Kind != eventlog.Progress {
				s.Fatalf("seq %d is the other stream's", e.Seq)
			}
		}
	}},
	{"Field21_GuessedCursor", "a guessed or leaked id must not open another session's backlog", func(s *scene) {
		s.add(call, 0, eventlog.Opening, eventlog.Outcome)
		s.claim("attacker")
		for _, stream := range []string{"call", "../s/call", "s\x00call", ""} {
			s.absent(eventlog.Key{Session: "attacker", Stream: stream})
		}
	}},
	{"Field22_ReplayThenLive", "between a replay and what comes live nothing may be lost or doubled", func(s *scene) {
		const total = 3000
		var readers sync.WaitGroup
		s.add(call, 0, eventlog.Opening)
		for r := range uint64(6) {
			readers.Go(func() { s.readFrom(r%2, r, total) })
		}
		for seq := uint64(1); seq < total; {
			n := min(1+seq%7, total-seq)
			s.add(call, seq, times(int(n), eventlog.Progress)...)
			seq += n
		}
		s.add(call, total, eventlog.End)
		readers.Wait()
	}},
	{"Field23_OutcomeStays", "a result that was written to a socket is not yet received", func(s *scene) {
		s.add(call, 0, eventlog.Opening, eventlog.Progress, eventlog.Outcome, eventlog.End)
		stop := s.log.Watch(call, make(chan struct{}, 1))
		s.all(call, 0)
		stop()
		s.release()
		s.trim(call, 4, eventlog.Pinned)
		s.seqs(call, 1, 3, 4)
	}},
	{"Field25_SeqsRise", "ids are unique and rise whatever the batches", func(s *scene) {
		after := uint64(0)
		for n := range 10 {
			s.add(call, after, times(n+1, eventlog.Other)...)
			after += uint64(n) + 1
		}
		for n, e := range s.all(call, 0) {
			if e.Seq != uint64(n)+1 {
				s.Fatalf("event %d has seq %d", n+1, e.Seq)
			}
		}
	}},
	{"Field26_ClockSteps", "the order of a replay must not hang on the clock", func(s *scene) {
		a := s.step(call, 0, times(200, eventlog.Other)...)
		for n := range a.Events {
			a.Events[n].Time = 5e9
			if n > 100 {
				a.Events[n].Time = 3e9
			}
			a.Events[n].Data = fmt.Append(nil, n)
		}
		s.ok(s.log.Append(s.ctx, a))
		s.release()
		for n, e := range s.all(call, 50) {
			if string(e.Data) != fmt.Sprint(n+50) || e.Time != a.Events[n+50].Time {
				s.Fatalf("position %d holds %+v", n+50, e)
			}
		}
	}},
}

// readFrom reads from a place to the end, with a new follower every few pages.
func (s *scene) readFrom(at, salt, total uint64) {
	hint := make(chan struct{}, 1)
	var got []uint64
	for ended := false; !ended; {
		f := eventlog.Follow(s.log, call, at, hint)
		for range 3 + salt {
			step, err := f.Next(s.ctx, 500)
			if err != nil || step.Gap != nil {
				s.Errorf("reader %d: gap %v, %v", salt, step.Gap, err)
				f.Close()
				return
			}
			for _, e := range step.Page.Events {
				got = append(got, e.Seq)
			}
			if len(step.Page.Events) == 0 {
				if ended = step.Page.Ended; ended {
					break
				}
				<-hint
			}
		}
		at = f.At()
		f.Close()
	}
	if !slices.IsSorted(got) || len(got) == 0 || got[0] != salt%2+1 || uint64(len(got)) != total+1-salt%2 || len(slices.Compact(slices.Clone(got))) != len(got) {
		s.Errorf("reader %d: %d events, from %d", salt, len(got), got[0])
	}
}

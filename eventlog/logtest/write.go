package logtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/segno-mcp/segno/eventlog"
)

var writeRules = []rule{
	{"AppendThenRead", "an event is delivered by reading it back: what was appended must come back as it was", func(s *scene) {
		a := s.step(call, 0, eventlog.Opening, eventlog.Progress, eventlog.Request, eventlog.Other, eventlog.Progress, eventlog.Outcome, eventlog.End)
		a.Events[2].Data = nil
		a.Events[3].Time = -5
		a.Events[4].Seq = 77
		s.ok(s.log.Append(s.ctx, a))
		got := s.all(call, 0)
		if len(got) != len(a.Events) {
			s.Fatalf("got %d events, want %d", len(got), len(a.Events))
		}
		for n, e := range got {
			want := a.Events[n]
			if e.Seq != uint64(n)+1 || e.Kind != want.Kind || e.Time != want.Time || string(e.Data) != string(want.Data) {
				s.Errorf("event %d came back as %+v", n+1, e)
			}
		}
	}},
	{"AfterMustBeTheTop", "a writer that counts wrongly, or a store that lost its tail, must not go unseen", func(s *scene) {
		s.add(call, 0, eventlog.Opening, eventlog.Progress)
		for _, after := range []uint64{0, 1, 3, 100} {
			err := s.try(call, after, eventlog.Progress)
			var wrong *eventlog.AfterError
			if after == 0 {
				err = s.try(call, 0, eventlog.Opening)
			}
			if !errors.As(err, &wrong) || wrong.After != after || wrong.Top != 2 {
				s.Errorf("append after %d: %v", after, err)
			}
		}
		s.seqs(call, 0, 1, 2)
		s.wants(s.try(other, 1, eventlog.Progress), eventlog.ErrNoStream)
	}},
	{"FenceLost", "two writers on one stream would give one seq to two events", func(s *scene) {
		s.add(call, 0, eventlog.Opening)
		newer := s.claim("s")
		if newer.Fence <= s.owner.Fence || newer.Term == s.owner.Term || len(newer.Term) != eventlog.TermLen {
			s.Fatalf("claim %+v after %+v", newer, s.owner)
		}
		a := s.step(call, 1, eventlog.Progress)
		a.Record, a.Bind = []byte("stale"), "stale"
		s.wants(s.log.Append(s.ctx, a), eventlog.ErrFenced)
		_, err := s.log.Trim(s.ctx, call, s.owner.Fence, 1, 0)
		s.wants(err, eventlog.ErrFenced)
		s.wants(s.log.Drop(s.ctx, call, s.owner.Fence, nil), eventlog.ErrFenced)
		s.wants(s.log.DropSession(s.ctx, "s", s.owner.Fence), eventlog.ErrFenced)
		s.seqs(call, 0, 1)
		_, err = s.log.Lookup(s.ctx, "stale")
		s.wants(err, eventlog.ErrNoStream)
		s.owner = newer
		s.add(call, 1, eventlog.Progress)
	}},
	{"FenceOfAFormerSession", "an owner must not write into a session that was dropped and made anew", func(s *scene) {
		s.ok(s.log.DropSession(s.ctx, "s", s.owner.Fence))
		s.wants(s.try(call, 0, eventlog.Opening), eventlog.ErrNoSession)
		if newer := s.claim("s"); newer.Fence <= s.owner.Fence {
			s.Fatalf("claim %+v after %+v", newer, s.owner)
		}
		s.wants(s.try(call, 0, eventlog.Opening), eventlog.ErrFenced)
	}},
	{"ClaimOfNothing", "only who begins a session may create it", func(s *scene) {
		_, err := s.log.Claim(s.ctx, "nobody", false)
		s.wants(err, eventlog.ErrNoSession)
		_, err = s.log.Claim(s.ctx, "s", false)
		s.ok(err)
	}},
	{"ReleaseLosesNothing", "what is kept in memory for a writer is only a copy", func(s *scene) {
		s.add(call, 0, eventlog.Opening, eventlog.Progress)
		s.release()
		s.log.Release("nobody")
		s.seqs(call, 0, 1, 2)
		s.add(call, 2, eventlog.Outcome, eventlog.End)
		s.release()
		if info := s.stat(call); info.Top != 4 || !info.Ended || info.Events != 4 || len(info.Terms) != 1 {
			s.Fatalf("after release: %+v", info)
		}
	}},
	{"EndIsARecord", "nothing new yet and nothing ever again are two answers", func(s *scene) {
		s.add(call, 0, eventlog.Opening, eventlog.Outcome)
		p, err := s.log.Read(s.ctx, call, 2, everything)
		s.ok(err)
		if len(p.Events) != 0 || p.Ended || p.Top != 2 {
			s.Fatalf("before the end: %+v", p)
		}
		s.add(call, 2, eventlog.End)
		for after := range uint64(5) {
			p, err := s.log.Read(s.ctx, call, after, everything)
			s.ok(err)
			if !p.Ended || p.Top != 3 || (len(p.Events) == 0) != (after >= 3) {
				s.Fatalf("after %d: %+v", after, p)
			}
		}
		s.wants(s.try(call, 3, eventlog.Progress), eventlog.ErrEnded)
		s.seqs(call, 0, 1, 2, 3)
	}},
	{"RecordInTheSameStep", "a session must never speak of events that are not there, nor the other way round", func(s *scene) {
		a := s.step(call, 0, eventlog.Opening)
		a.Record = []byte("one")
		s.ok(s.log.Append(s.ctx, a))
		s.record("one")
		s.add(call, 1, eventlog.Progress)
		s.record("one")
		a = s.step(call, 0, eventlog.Opening)
		a.Record = []byte("two")
		if s.log.Append(s.ctx, a) == nil {
			s.Fatal("append after a wrong place succeeds")
		}
		s.record("one")
		s.ok(s.log.Append(s.ctx, eventlog.Append{Key: eventlog.Key{Session: "s"}, Fence: s.owner.Fence, Record: []byte{}}))
		s.record("")
	}},
	{"AppendWithoutEvents", "a record, a name or a date alone can change too, in the same order as events", func(s *scene) {
		bind := eventlog.Append{Key: call, Fence: s.owner.Fence, Bind: "name"}
		s.wants(s.log.Append(s.ctx, bind), eventlog.ErrNoStream)
		s.add(call, 0, eventlog.Opening)
		var wrong *eventlog.AfterError
		if err := s.log.Append(s.ctx, bind); !errors.As(err, &wrong) {
			s.Fatalf("bind after a wrong place: %v", err)
		}
		bind.After = 1
		s.ok(s.log.Append(s.ctx, bind))
		k, err := s.log.Lookup(s.ctx, "name")
		s.ok(err)
		if k != call || s.stat(call).Top != 1 {
			s.Fatalf("bound to %v, top %d", k, s.stat(call).Top)
		}
	}},
	{"NonsenseIsRefused", "bad input gives an error and changes nothing", func(s *scene) {
		s.add(call, 0, eventlog.Opening, eventlog.Progress)
		bad := []eventlog.Append{
			s.step(eventlog.Key{Stream: "call"}, 0, eventlog.Opening),
			s.step(eventlog.Key{Session: "s"}, 0, eventlog.Opening),
			s.step(eventlog.Key{Session: "s", Stream: "a\x00b"}, 0, eventlog.Opening),
			s.step(call, 2, eventlog.Kind(0)),
			s.step(call, 2, eventlog.Kind(7)),
			s.step(call, 2, eventlog.Opening),
			s.step(call, 2, eventlog.End, eventlog.Progress),
			s.step(eventlog.Key{Session: "nobody", Stream: "call"}, 0, eventlog.Opening),
		}
		for n, a := range bad {
			if err := s.log.Append(s.ctx, a); err == nil {
				s.Errorf("nonsense %d was taken", n)
			}
		}
		if _, err := s.log.Claim(s.ctx, "", true); err == nil {
			s.Error("a session without a name was claimed")
		}
		s.seqs(call, 0, 1, 2)
	}},
	{"CancelledBefore", "who gave up before the append began must find nothing written", func(s *scene) {
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		s.wants(s.log.Append(ctx, s.step(call, 0, eventlog.Opening)), context.Canceled)
		s.absent(call)
	}},
	{"ManyWriters", "streams must not wait for, or mix with, each other", manyWriters},
	{"Closed", "a log that is closed says so", func(s *scene) {
		s.add(call, 0, eventlog.Opening)
		s.ok(s.log.Close())
		s.wants(s.try(call, 1, eventlog.Progress), eventlog.ErrClosed)
		_, err := s.log.Read(s.ctx, call, 0, 1)
		s.wants(err, eventlog.ErrClosed)
		_, err = s.log.Claim(s.ctx, "s", true)
		s.wants(err, eventlog.ErrClosed)
		_, err = s.log.Sessions(s.ctx, "", 1)
		s.wants(err, eventlog.ErrClosed)
		s.wants(s.log.Close(), eventlog.ErrClosed)
	}},
}

func (s *scene) record(want string) {
	s.Helper()
	got, err := s.log.Record(s.ctx, "s")
	s.ok(err)
	if string(got) != want {
		s.Fatalf("record %q, want %q", got, want)
	}
}

// manyWriters has every stream written and followed at the same time.
func manyWriters(s *scene) {
	const streams, steps = 24, 60
	var all sync.WaitGroup
	for n := range streams {
		k := key("s", n)
		all.Go(func() {
			after := uint64(0)
			for i := range steps {
				a := s.step(k, after, times(1+i%3, eventlog.Progress)...)
				a.Durable = i%10 == 0
				a.Events[0].Data = fmt.Appendf(nil, "%s/%d", k.Stream, after+1)
				if err := s.log.Append(s.ctx, a); err != nil {
					s.Errorf("%s: %v", k.Stream, err)
					return
				}
				after += uint64(len(a.Events))
			}
			if err := s.try(k, after, eventlog.End); err != nil {
				s.Errorf("%s: %v", k.Stream, err)
			}
		})
		all.Go(func() { s.followToEnd(k, 2*steps+1) })
	}
	all.Wait()
}

func (s *scene) followToEnd(k eventlog.Key, want uint64) {
	hint := make(chan struct{}, 1)
	f := eventlog.Follow(s.log, k, 0, hint)
	defer f.Close()
	for seq := uint64(0); ; {
		step, err := f.Next(s.ctx, 100)
		switch {
		case errors.Is(err, eventlog.ErrNoStream):
			<-hint
			continue
		case err != nil || step.Gap != nil:
			s.Errorf("%s at %d: gap %v, %v", k.Stream, f.At(), step.Gap, err)
			return
		case len(step.Page.Events) > 0:
			for _, e := range step.Page.Events {
				if seq++; e.Seq != seq {
					s.Errorf("%s: seq %d where %d is due", k.Stream, e.Seq, seq)
					return
				}
			}
		case step.Page.Ended:
			if seq != want {
				s.Errorf("%s: %d events, want %d", k.Stream, seq, want)
			}
			return
		default:
			<-hint
		}
	}
}

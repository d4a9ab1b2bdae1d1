package logtest

import (
	"errors"
	"testing"
	"time"

	"github.com/segno-mcp/segno/eventlog"
)

type reopenRule struct {
	name string
	why  string
	test func(t *testing.T, reopen func() eventlog.Log)
}

var reopenRules = []reopenRule{
	{"ResumeBeforeAnyAppend", "a client that comes back right after a restart must find its events, before anyone writes", func(t *testing.T, reopen func() eventlog.Log) {
		s := newScene(t, reopen())
		s.add(call, 0, pattern...)
		s.trim(call, 5, eventlog.Pinned)
		before := s.stat(call)
		s.restart(reopen)
		hint := make(chan struct{}, 1)
		f := eventlog.Follow(s.log, call, 2, hint)
		defer f.Close()
		got, gaps := s.follow(f)
		if len(got) != 6 || got[0] != 4 || got[5] != 10 || len(gaps) != 2 {
			s.Fatalf("events %v, gaps %v", got, gaps)
		}
		after := s.stat(call)
		if after.Top != before.Top || after.Floor != before.Floor || after.Events != before.Events || after.Bytes != before.Bytes {
			s.Fatalf("before %+v, after %+v", before, after)
		}
	}},
	{"WriterNeedsAClaim", "after a restart the old owner is gone, and what is written belongs to a new term", func(t *testing.T, reopen func() eventlog.Log) {
		s := newScene(t, reopen())
		s.add(call, 0, eventlog.Opening, eventlog.Progress)
		old := s.owner
		s.restart(reopen)
		s.wants(s.try(call, 2, eventlog.Progress), eventlog.ErrFenced)
		s.owner = s.claim("s")
		if s.owner.Fence <= old.Fence || s.owner.Term == old.Term {
			s.Fatalf("claim %+v after %+v", s.owner, old)
		}
		s.add(call, 2, eventlog.Progress)
		info := s.stat(call)
		if len(info.Terms) != 2 || info.Terms[1] != (eventlog.Term{Name: s.owner.Term, First: 3}) {
			s.Fatalf("terms %v", info.Terms)
		}
		s.restart(reopen)
		if again := s.stat(call); len(again.Terms) != 2 || again.Terms[1] != info.Terms[1] {
			s.Fatalf("terms %v, before the restart %v", again.Terms, info.Terms)
		}
		s.seqs(call, 0, 1, 2, 3)
	}},
	{"AllIsStillThere", "a restart on the same store serves every stream that was there", func(t *testing.T, reopen func() eventlog.Log) {
		s := newScene(t, reopen())
		a := s.step(call, 0, eventlog.Opening)
		a.Bind, a.Due, a.Record = "key", time.Unix(5, 0), []byte("record")
		s.ok(s.log.Append(s.ctx, a))
		s.add(call, 1, eventlog.Outcome, eventlog.End)
		s.add(other, 0, eventlog.Opening)
		s.drop(other, "memo")
		s.ok(s.log.Arm(s.ctx, eventlog.Key{Session: "s"}, time.Unix(4, 0)))
		gone := s.claim("gone")
		s.ok(s.log.DropSession(s.ctx, "gone", gone.Fence))
		s.restart(reopen)
		s.record("record")
		k, err := s.log.Lookup(s.ctx, "key")
		s.ok(err)
		if k != call {
			s.Fatalf("bound to %v", k)
		}
		s.due(10, 10, eventlog.Key{Session: "s"}, call)
		if info := s.stat(call); !info.Ended || info.Top != 3 {
			s.Fatalf("got %+v", info)
		}
		if info := s.stat(other); !info.Dropped || string(info.Memo) != "memo" {
			s.Fatalf("got %+v", info)
		}
		s.list(s.log.Sessions(s.ctx, "", 10))("s")
		s.owner = s.claim("s")
		var wrong *eventlog.AfterError
		if err := s.try(call, 0, eventlog.Opening); !errors.As(err, &wrong) || wrong.Top != 3 {
			s.Fatalf("opened twice: %v", err)
		}
		s.wants(s.try(call, 3, eventlog.Progress), eventlog.ErrEnded)
		s.ok(s.log.Arm(s.ctx, call, time.Time{}))
		s.due(10, 10, eventlog.Key{Session: "s"})
	}},
}

func (s *scene) restart(reopen func() eventlog.Log) {
	s.Helper()
	s.ok(s.log.Close())
	s.log = reopen()
}

package logtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/segno-mcp/segno/eventlog"
)

var dropRules = []rule{
	{"DroppedIsRemembered", "a client that comes back for a call that is gone deserves an answer for its id", func(s *scene) {
		s.add(call, 0, eventlog.Opening, eventlog.Progress, eventlog.Outcome)
		s.add(other, 0, eventlog.Opening)
		s.drop(call, "id 7")
		info := s.stat(call)
		if !info.Dropped || string(info.Memo) != "id 7" || info.Top != 0 {
			s.Fatalf("got %+v", info)
		}
		_, err := s.log.Read(s.ctx, call, 0, everything)
		s.wants(err, eventlog.ErrNoStream)
		s.wants(s.try(call, 3, eventlog.End), eventlog.ErrNoStream)
		s.wants(s.try(call, 0, eventlog.Opening), eventlog.ErrNoStream)
		s.wants(s.log.Drop(s.ctx, call, s.owner.Fence, nil), eventlog.ErrNoStream)
		s.drop(other, "")
		s.absent(other)
		s.wants(s.try(other, 1, eventlog.Progress), eventlog.ErrNoStream)
	}},
	{"RememberedIsBounded", "memos must not grow for as long as a session lives", func(s *scene) {
		for n := range eventlog.Remembered + 2 {
			k := key("s", n)
			s.add(k, 0, eventlog.Opening)
			s.drop(k, fmt.Sprint("memo ", n))
		}
		s.absent(key("s", 0))
		s.absent(key("s", 1))
		for _, n := range []int{2, 3, eventlog.Remembered + 1} {
			if info := s.stat(key("s", n)); string(info.Memo) != fmt.Sprint("memo ", n) {
				s.Errorf("stream %d: %+v", n, info)
			}
		}
	}},
	{"NamesAreTakenOnce", "the same idempotency key must lead to the same call", func(s *scene) {
		a := s.step(call, 0, eventlog.Opening)
		a.Bind = "key"
		s.ok(s.log.Append(s.ctx, a))
		b := s.step(other, 0, eventlog.Opening)
		b.Bind, b.Record = "key", []byte("wrong")
		var taken *eventlog.TakenError
		if err := s.log.Append(s.ctx, b); !errors.As(err, &taken) || taken.Holder != call || taken.Name != "key" {
			s.Fatalf("second bind: %v", err)
		}
		s.absent(other)
		s.record("")
		again := s.step(call, 1, eventlog.Progress)
		again.Bind = "key"
		s.ok(s.log.Append(s.ctx, again))
		k, err := s.log.Lookup(s.ctx, "key")
		s.ok(err)
		if k != call {
			s.Fatalf("bound to %v", k)
		}
		s.drop(call, "memo")
		_, err = s.log.Lookup(s.ctx, "key")
		s.wants(err, eventlog.ErrNoStream)
		s.ok(s.log.Append(s.ctx, b))
		k, err = s.log.Lookup(s.ctx, "key")
		s.ok(err)
		if k != other {
			s.Fatalf("bound to %v", k)
		}
	}},
	{"NamesRace", "of two requests with one key that come at the same moment one wins", func(s *scene) {
		const racers = 16
		errs := make(chan error, racers)
		for n := range racers {
			a := s.step(key("s", n), 0, eventlog.Opening)
			a.Bind = "key"
			go func() { errs <- s.log.Append(s.ctx, a) }()
		}
		won := 0
		for range racers {
			err := <-errs
			var taken *eventlog.TakenError
			if err == nil {
				won++
			} else if !errors.As(err, &taken) {
				s.Error(err)
			}
		}
		if won != 1 {
			s.Fatalf("%d appends took the name", won)
		}
	}},
	{"SessionDropRemovesAll", "after a session ends nothing of it may be found or kept", func(s *scene) {
		a := s.step(call, 0, eventlog.Opening, eventlog.Progress)
		a.Bind, a.Due, a.Record = "key", time.Unix(5, 0), []byte("record")
		s.ok(s.log.Append(s.ctx, a))
		s.ok(s.log.Arm(s.ctx, eventlog.Key{Session: "s"}, time.Unix(6, 0)))
		s.add(other, 0, eventlog.Opening)
		s.drop(other, "memo")
		mine := s.owner
		s.owner = s.claim("s2")
		stays := eventlog.Key{Session: "s2", Stream: "call"}
		s.add(stays, 0, eventlog.Opening)
		s.ok(s.log.DropSession(s.ctx, "s", mine.Fence))
		s.absent(call)
		s.absent(other)
		_, err := s.log.Lookup(s.ctx, "key")
		s.wants(err, eventlog.ErrNoStream)
		_, err = s.log.Record(s.ctx, "s")
		s.wants(err, eventlog.ErrNoSession)
		s.due(100, 10)
		s.wants(s.log.DropSession(s.ctx, "s", mine.Fence), eventlog.ErrNoSession)
		s.seqs(stays, 0, 1)
		mine = s.claim("s")
		s.absent(call)
		names, err := s.log.Streams(s.ctx, "s", "", 10)
		s.ok(err)
		if len(names) != 0 {
			s.Fatalf("a new session has streams %v", names)
		}
		s.record("")
	}},
}

var dueRules = []rule{
	{"DueInOrder", "expiry takes what is due from an index, earliest first", func(s *scene) {
		session := eventlog.Key{Session: "s"}
		for n, at := range []int64{30, 10, 20} {
			a := s.step(key("s", n), 0, eventlog.Opening)
			a.Due = time.Unix(at, 0)
			s.ok(s.log.Append(s.ctx, a))
		}
		s.ok(s.log.Arm(s.ctx, session, time.Unix(15, 0)))
		s.due(9, 10)
		s.due(10, 10, key("s", 1))
		s.due(100, 10, key("s", 1), session, key("s", 2), key("s", 0))
		s.due(100, 2, key("s", 1), session)
		s.ok(s.log.Arm(s.ctx, key("s", 1), time.Unix(25, 0)))
		s.ok(s.log.Arm(s.ctx, session, time.Time{}))
		s.due(100, 10, key("s", 2), key("s", 1), key("s", 0))
		a := s.step(key("s", 0), 1, eventlog.Progress)
		a.Due = time.Unix(1, 0)
		s.ok(s.log.Append(s.ctx, a))
		s.due(5, 10, key("s", 0))
		s.add(key("s", 0), 2, eventlog.Progress)
		s.due(5, 10, key("s", 0))
		s.drop(key("s", 0), "memo")
		s.due(100, 10, key("s", 2), key("s", 1))
		s.release()
		s.ok(s.log.Arm(s.ctx, key("s", 2), time.Time{}))
		s.ok(s.log.Arm(s.ctx, key("s", 2), time.Time{}))
		s.due(100, 10, key("s", 1))
	}},
	{"ArmOfNothing", "a date for what is not there would come due for ever", func(s *scene) {
		s.wants(s.log.Arm(s.ctx, call, time.Unix(1, 0)), eventlog.ErrNoStream)
		s.wants(s.log.Arm(s.ctx, eventlog.Key{Session: "nobody"}, time.Unix(1, 0)), eventlog.ErrNoSession)
		s.add(call, 0, eventlog.Opening)
		s.drop(call, "memo")
		s.wants(s.log.Arm(s.ctx, call, time.Unix(1, 0)), eventlog.ErrNoStream)
		s.due(100, 10)
	}},
}

package logtest

import (
	"bytes"

	"github.com/segno-mcp/segno/eventlog"
)

var readRules = []rule{
	{"ReadIsBounded", "a reader's memory is what it asked for, however long the stream", func(s *scene) {
		a := s.step(call, 0, times(100, eventlog.Other)...)
		for n := range a.Events {
			a.Events[n].Data = make([]byte, 100)
		}
		s.ok(s.log.Append(s.ctx, a))
		for _, max := range []int{0, 1, 99, 100, 101, 1000} {
			p, err := s.log.Read(s.ctx, call, 10, max)
			s.ok(err)
			if n := len(p.Events); n < 1 || n > max/100+1 {
				s.Errorf("read of %d bytes yields %d events of 100", max, n)
			}
			if p.Events[0].Seq != 11 {
				s.Errorf("read after 10 begins with %d", p.Events[0].Seq)
			}
		}
	}},
	{"LargerThanAnyLimit", "a limit that an event cannot pass would end its stream for good", func(s *scene) {
		big := bytes.Repeat([]byte("0123456789abcdef"), 3<<16)
		s.add(call, 0, eventlog.Opening)
		a := s.step(call, 1, eventlog.Progress, eventlog.Outcome)
		a.Events[0].Data, a.Events[1].Data, a.Durable = big, big[1:], true
		s.ok(s.log.Append(s.ctx, a))
		p, err := s.log.Read(s.ctx, call, 1, 1)
		s.ok(err)
		if len(p.Events) != 1 || !bytes.Equal(p.Events[0].Data, big) {
			s.Fatalf("got %d events", len(p.Events))
		}
		s.trim(call, 2, eventlog.Pinned)
		got := s.all(call, 1)
		if len(got) != 1 || !bytes.Equal(got[0].Data, big[1:]) {
			s.Fatalf("after the trim: %d events", len(got))
		}
	}},
	{"ReadBeyondTheTop", "a place that the stream has not reached yields nothing, not an error", func(s *scene) {
		s.add(call, 0, eventlog.Opening, eventlog.Progress)
		p, err := s.log.Read(s.ctx, call, 9, everything)
		s.ok(err)
		if len(p.Events) != 0 || p.Top != 2 || p.Term != s.owner.Term {
			s.Fatalf("got %+v", p)
		}
	}},
	{"SlicesAreStable", "a reader may hold a page while it writes it to a slow client", func(s *scene) {
		s.add(call, 0, eventlog.Opening, eventlog.Progress, eventlog.Request)
		held, err := s.log.Read(s.ctx, call, 0, everything)
		s.ok(err)
		copied := append([]eventlog.Event(nil), held.Events...)
		for seq := uint64(3); seq < 600; seq += 3 {
			s.add(call, seq, eventlog.Progress, eventlog.Request, eventlog.Other)
			s.trim(call, seq, eventlog.Pinned)
		}
		s.trim(call, 500, eventlog.Of(eventlog.Opening))
		s.drop(call, "memo")
		for n, e := range copied {
			if h := held.Events[n]; h.Seq != e.Seq || h.Kind != e.Kind || !bytes.Equal(h.Data, events(e.Seq-1, e.Kind)[0].Data) {
				s.Errorf("event %d became %+v", e.Seq, h)
			}
		}
	}},
	{"EventsSliceIsTheCallers", "a writer may use its slice of events again", func(s *scene) {
		a := s.step(call, 0, eventlog.Opening, eventlog.Progress)
		s.ok(s.log.Append(s.ctx, a))
		a.Events[1] = eventlog.Event{Kind: eventlog.End, Data: []byte("other")}
		if got := s.all(call, 1); string(got[0].Data) != "event 2" || got[0].Kind != eventlog.Progress {
			s.Fatalf("event 2 became %+v", got[0])
		}
	}},
	{"ForeignSession", "a stream of another session is absent, whatever its name", func(s *scene) {
		s.add(call, 0, eventlog.Opening)
		mine := s.owner
		s.owner = s.claim("s2")
		for _, session := range []string{"s2", "s3", "", "sc", "s\x00call"} {
			s.absent(eventlog.Key{Session: session, Stream: "call"})
		}
		s.absent(eventlog.Key{Session: "s", Stream: "cal"})
		s.absent(eventlog.Key{Session: "s", Stream: ""})
		same := eventlog.Key{Session: "s2", Stream: "call"}
		s.add(same, 0, eventlog.Opening, eventlog.Progress)
		s.seqs(call, 0, 1)
		s.seqs(same, 0, 1, 2)
		s.drop(same, "")
		s.owner = mine
		s.add(call, 1, eventlog.Progress)
	}},
	{"StatCounts", "limits by count and bytes need numbers that are true", func(s *scene) {
		a := s.step(call, 0, eventlog.Opening, eventlog.Progress, eventlog.Request)
		a.Events[1].Data = make([]byte, 1000)
		s.ok(s.log.Append(s.ctx, a))
		info := s.stat(call)
		if want := int64(1000 + 2*len("event 1")); info.Events != 3 || info.Bytes != want || info.Floor != 0 || info.Top != 3 || info.Ended {
			s.Fatalf("got %+v", info)
		}
	}},
}

var termRules = []rule{
	{"TwoTerms", "a cursor holds only in the term that wrote its place", func(s *scene) {
		s.add(call, 0, eventlog.Opening, eventlog.Progress)
		first := s.owner.Term
		s.claim("s") // one that never writes leaves no trace
		s.owner = s.claim("s")
		second := s.owner.Term
		s.add(call, 2, eventlog.Progress)
		s.add(call, 3, eventlog.Progress)
		info := s.stat(call)
		want := []eventlog.Term{{Name: first, First: 1}, {Name: second, First: 3}}
		if len(info.Terms) != 2 || info.Terms[0] != want[0] || info.Terms[1] != want[1] {
			s.Fatalf("terms %v, want %v", info.Terms, want)
		}
		s.place(info, first, 2, 2, true)
		s.place(info, first, 3, 2, false)
		s.place(info, second, 3, 3, true)
		s.place(info, second, 9, 4, false)
		s.place(info, "zzzzzz", 3, 0, false)
		for after, term := range map[uint64]string{0: first, 1: first, 2: second, 3: second, 4: second} {
			p, err := s.log.Read(s.ctx, call, after, everything)
			s.ok(err)
			if p.Term != term {
				s.Errorf("page after %d is of term %q", after, p.Term)
			}
			for _, e := range p.Events {
				if info.TermAt(e.Seq) != p.Term {
					s.Errorf("page of %q has seq %d", p.Term, e.Seq)
				}
			}
		}
	}},
	{"TermsOutliveTrims", "a cursor to a trimmed place must still be told from a diverged one", func(s *scene) {
		s.add(call, 0, eventlog.Opening, eventlog.Progress, eventlog.Request)
		first := s.owner.Term
		s.owner = s.claim("s")
		s.add(call, 3, eventlog.Progress, eventlog.Progress)
		s.owner = s.claim("s")
		s.add(call, 5, eventlog.Request, eventlog.Progress)
		before := s.stat(call).Terms
		s.trim(call, 7, eventlog.Pinned)
		s.release()
		info := s.stat(call)
		if len(info.Terms) != 3 || info.Terms[1] != before[1] || info.Terms[0] != before[0] {
			s.Fatalf("terms %v, before %v", info.Terms, before)
		}
		s.place(info, first, 2, 2, true)
		s.place(info, first, 4, 3, false)
		s.seqs(call, 0, 1, 3, 6, 7)
		p, err := s.log.Read(s.ctx, call, 2, everything)
		s.ok(err)
		if p.Term != first || len(p.Events) != 1 {
			s.Fatalf("page %+v", p)
		}
		s.trim(call, 7, 0)
		if info := s.stat(call); len(info.Terms) != 3 {
			s.Fatalf("after all is trimmed: %+v", info)
		}
	}},
}

func (s *scene) place(info eventlog.Info, term string, seq, want uint64, holds bool) {
	s.Helper()
	got, ok := info.Place(eventlog.Cursor{Term: term, Seq: seq})
	if got != want || ok != holds {
		s.Errorf("cursor %s.%d stands at %d (%v), want %d (%v)", term, seq, got, ok, want, holds)
	}
}

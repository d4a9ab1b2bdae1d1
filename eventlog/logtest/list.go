package logtest

import (
	"slices"

	"github.com/segno-mcp/segno/eventlog"
)

var listRules = []rule{
	{"ListsInPages", "a store with many sessions is listed a page at a time", func(s *scene) {
		for _, session := range []string{"c", "a", "b-2", "b"} {
			s.claim(session)
		}
		for n := range 5 {
			s.add(key("s", n), 0, eventlog.Opening, eventlog.Request, eventlog.Progress)
		}
		s.drop(key("s", 1), "memo")
		s.drop(key("s", 3), "")
		s.list(s.log.Sessions(s.ctx, "", 10))("a", "b", "b-2", "c", "s")
		s.list(s.log.Sessions(s.ctx, "", 2))("a", "b")
		s.list(s.log.Sessions(s.ctx, "b", 2))("b-2", "c")
		s.list(s.log.Sessions(s.ctx, "aa", 1))("b")
		s.list(s.log.Sessions(s.ctx, "s", 10))()
		s.list(s.log.Streams(s.ctx, "s", "", 10))("stream-00000", "stream-00001", "stream-00002", "stream-00004")
		s.list(s.log.Streams(s.ctx, "s", "stream-00000", 2))("stream-00001", "stream-00002")
		s.list(s.log.Streams(s.ctx, "s", "stream-00001", 1))("stream-00002")
		s.list(s.log.Streams(s.ctx, "nobody", "", 10))()
		s.list(s.log.Streams(s.ctx, "a", "", 10))()
	}},
	{"RecordOfNothing", "a session that is not there is told from one without a record", func(s *scene) {
		_, err := s.log.Record(s.ctx, "nobody")
		s.wants(err, eventlog.ErrNoSession)
		s.record("")
		_, err = s.log.Lookup(s.ctx, "nothing")
		s.wants(err, eventlog.ErrNoStream)
	}},
}

func (s *scene) list(got []string, err error) func(want ...string) {
	s.Helper()
	s.ok(err)
	return func(want ...string) {
		s.Helper()
		if !slices.Equal(got, want) {
			s.Errorf("listed %v, want %v", got, want)
		}
	}
}

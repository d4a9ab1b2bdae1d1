package logtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"pgregory.net/rapid"
)

// checkModel runs random steps on a log and on lists of events, and compares.
func checkModel(t *testing.T, open func() (log eventlog.Log, reopen func() eventlog.Log)) {
	rapid.Check(t, func(rt *rapid.T) {
		log, reopen := open()
		m := &model{T: rt, t: t, log: log, reopen: reopen, sessions: map[string]*modelSession{}, fences: map[string]eventlog.Claim{}}
		defer func() { m.log.Close() }()
		steps := map[string]func(*rapid.T){
			"": m.check, "append": m.append, "append again": m.append, "claim": m.claim, "trim": m.trim,
			"drop": m.drop, "drop session": m.dropSession, "arm": m.arm, "release": m.release,
		}
		if reopen != nil {
			steps["restart"] = m.restart
		}
		rt.Repeat(steps)
	})
}

type model struct {
	*rapid.T
	t        *testing.T
	log      eventlog.Log
	reopen   func() eventlog.Log
	sessions map[string]*modelSession
	fences   map[string]eventlog.Claim
}

type modelSession struct {
	record  string
	streams map[string]*modelStream
	memos   map[string]string
	due     int64
}

type modelStream struct {
	events []eventlog.Event
	top    uint64
	floor  uint64
	terms  []eventlog.Term
	name   string
	due    int64
}

func (m *modelStream) ended() bool {
	return m.events[len(m.events)-1].Kind == eventlog.End
}

func (m *model) session(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "session")
}
func (m *model) key(rt *rapid.T) eventlog.Key {
	return eventlog.Key{Session: m.session(rt), Stream: rapid.SampledFrom([]string{"x", "y", "xx"}).Draw(rt, "stream")}
}

func (m *model) stream(k eventlog.Key) *modelStream {
	if s := m.sessions[k.Session]; s != nil {
		return s.streams[k.Stream]
	}
	return nil
}

func (m *model) claim(rt *rapid.T) {
	name, create := m.session(rt), rapid.Bool().Draw(rt, "create")
	c, err := m.log.Claim(m.t.Context(), name, create)
	if m.sessions[name] == nil && !create {
		m.wants(err, eventlog.ErrNoSession)
		return
	}
	m.wants(err, nil)
	if c.Fence <= m.fences[name].Fence {
		m.Fatalf("fence %d after %d", c.Fence, m.fences[name].Fence)
	}
	m.fences[name] = c
	if m.sessions[name] == nil {
		m.sessions[name] = &modelSession{streams: map[string]*modelStream{}, memos: map[string]string{}}
	}
}

// refused is what the model says to a step with the session's last fence.
func (m *model) refused(session string) error {
	switch {
	case m.sessions[session] == nil:
		return eventlog.ErrNoSession
	case m.fences[session].Fence == 0:
		return eventlog.ErrFenced
	}
	return nil
}

func (m *model) append(rt *rapid.T) {
	k := m.key(rt)
	st := m.stream(k)
	a := eventlog.Append{Key: k, Fence: m.fences[k.Session].Fence, Durable: rapid.Bool().Draw(rt, "durable")}
	if st != nil {
		a.After = st.top
	}
	for n := range rapid.IntRange(1, 8).Draw(rt, "events") {
		e := eventlog.Event{
			Kind: rapid.SampledFrom([]eventlog.Kind{eventlog.Progress, eventlog.Progress, eventlog.Other, eventlog.Request, eventlog.Outcome}).Draw(rt, "kind"),
			Time: rapid.Int64Range(-1e18, 1e18).Draw(rt, "time"),
			Data: fmt.Appendf(nil, "%s %d", k.Stream, a.After+uint64(n)),
		}
		a.Events = append(a.Events, e)
	}
	if rapid.IntRange(0, 20).Draw(rt, "end") == 0 {
		a.Events[len(a.Events)-1].Kind = eventlog.End
	}
	if rapid.IntRange(0, 5).Draw(rt, "bind") == 0 {
		a.Bind = "name of " + k.Session + k.Stream
	}
	if rapid.IntRange(0, 5).Draw(rt, "due") == 0 {
		a.Due = time.Unix(0, rapid.Int64Range(1, 1000).Draw(rt, "at"))
	}
	if rapid.IntRange(0, 5).Draw(rt, "record") == 0 {
		a.Record = fmt.Append(nil, "record ", k, a.After)
	}
	err := m.log.Append(m.t.Context(), a)
	if want := m.refusedAppend(k, st); want != nil {
		m.wants(err, want)
		return
	}
	m.wants(err, nil)
	m.write(a, st)
}

func (m *model) refusedAppend(k eventlog.Key, st *modelStream) error {
	if err := m.refused(k.Session); err != nil {
		return err
	}
	if _, dropped := m.sessions[k.Session].memos[k.Stream]; dropped {
		return eventlog.ErrNoStream
	}
	if st != nil && st.ended() {
		return eventlog.ErrEnded
	}
	return nil
}

func (m *model) write(a eventlog.Append, st *modelStream) {
	s := m.sessions[a.Session]
	if st == nil {
		st = &modelStream{}
		s.streams[a.Stream] = st
	}
	if term := m.fences[a.Session].Term; len(st.terms) == 0 || st.terms[len(st.terms)-1].Name != term {
		st.terms = append(st.terms, eventlog.Term{Name: term, First: st.top + 1})
	}
	for _, e := range a.Events {
		st.top++
		e.Seq = st.top
		st.events = append(st.events, e)
	}
	if a.Bind != "" {
		st.name = a.Bind
	}
	if !a.Due.IsZero() {
		st.due = a.Due.UnixNano()
	}
	if a.Record != nil {
		s.record = string(a.Record)
	}
}

func (m *model) trim(rt *rapid.T) {
	k := m.key(rt)
	st := m.stream(k)
	through := rapid.Uint64Range(0, 60).Draw(rt, "through")
	keep := rapid.SampledFrom([]eventlog.Kinds{
		eventlog.Pinned, eventlog.Pinned, eventlog.Pinned, 0, eventlog.Pinned | eventlog.Of(eventlog.Other),
		eventlog.Pinned &^ eventlog.Of(eventlog.Request), eventlog.Of(eventlog.Progress),
	}).Draw(rt, "keep")
	gone, err := m.log.Trim(m.t.Context(), k, m.fences[k.Session].Fence, through, keep)
	want := m.refused(k.Session)
	if want == nil && st == nil {
		want = eventlog.ErrNoStream
	}
	if want != nil {
		m.wants(err, want)
		return
	}
	m.wants(err, nil)
	var left []eventlog.Event
	for _, e := range st.events {
		if e.Seq > through || e.Seq == st.top || keep.Has(e.Kind) {
			left = append(left, e)
			continue
		}
		gone.Events--
		gone.Bytes -= int64(len(e.Data))
	}
	st.events = left
	if keep&^eventlog.Pinned == 0 {
		st.floor = max(st.floor, min(through, st.top-1))
	}
	if gone != (eventlog.Trimmed{}) {
		m.Fatalf("trim through %d keeping %b: counted %+v too many", through, keep, gone)
	}
}

func (m *model) drop(rt *rapid.T) {
	k := m.key(rt)
	var memo []byte
	if rapid.Bool().Draw(rt, "memo") {
		memo = []byte("memo of " + k.Stream)
	}
	err := m.log.Drop(m.t.Context(), k, m.fences[k.Session].Fence, memo)
	want := m.refused(k.Session)
	if want == nil && m.stream(k) == nil {
		want = eventlog.ErrNoStream
	}
	m.wants(err, want)
	if want != nil {
		return
	}
	delete(m.sessions[k.Session].streams, k.Stream)
	if memo != nil {
		m.sessions[k.Session].memos[k.Stream] = string(memo)
	}
}

func (m *model) dropSession(rt *rapid.T) {
	name := m.session(rt)
	want := m.refused(name)
	m.wants(m.log.DropSession(m.t.Context(), name, m.fences[name].Fence), want)
	if want == nil {
		delete(m.sessions, name)
	}
}

func (m *model) arm(rt *rapid.T) {
	k := m.key(rt)
	if rapid.Bool().Draw(rt, "whole session") {
		k.Stream = ""
	}
	at := rapid.Int64Range(0, 1000).Draw(rt, "at")
	date := time.Time{}
	if at > 0 {
		date = time.Unix(0, at)
	}
	err := m.log.Arm(m.t.Context(), k, date)
	s, st := m.sessions[k.Session], m.stream(k)
	switch {
	case s == nil:
		m.wants(err, eventlog.ErrNoSession)
	case k.Stream == "":
		m.wants(err, nil)
		s.due = at
	case st == nil:
		m.wants(err, eventlog.ErrNoStream)
	default:
		m.wants(err, nil)
		st.due = at
	}
}

func (m *model) release(rt *rapid.T) { m.log.Release(m.session(rt)) }

func (m *model) restart(*rapid.T) {
	if err := m.log.Close(); err != nil {
		m.Fatal(err)
	}
	m.log = m.reopen()
	for name, c := range m.fences {
		c.Term = ""
		m.fences[name] = c // its fence holds no more, but the next must rise above it
		_, err := m.log.Trim(m.t.Context(), eventlog.Key{Session: name, Stream: "x"}, c.Fence, 0, 0)
		if m.sessions[name] == nil {
			m.wants(err, eventlog.ErrNoSession)
			continue
		}
		m.wants(err, eventlog.ErrFenced)
		m.claimAfterRestart(name)
	}
}

func (m *model) claimAfterRestart(name string) {
	c, err := m.log.Claim(m.t.Context(), name, false)
	m.wants(err, nil)
	m.fences[name] = c
}

func (m *model) wants(err, want error) {
	m.Helper()
	if !errors.Is(err, want) {
		m.Fatalf("got error %v, want %v", err, want)
	}
}

func (m *model) check(*rapid.T) {
	var due []eventlog.Key
	at := map[eventlog.Key]int64{}
	for name, s := range m.sessions {
		k := eventlog.Key{Session: name}
		at[k] = s.due
		for stream, st := range s.streams {
			k.Stream = stream
			at[k] = st.due
			m.checkStream(k, st)
		}
		m.checkSession(name, s)
	}
	for k, date := range at {
		if date > 0 {
			due = append(due, k)
		}
	}
	slices.SortFunc(due, func(a, b eventlog.Key) int { return int(at[a] - at[b]) })
	got, err := m.log.Due(m.t.Context(), time.Unix(0, 1000), 100)
	m.wants(err, nil)
	if len(got) != len(due) || !slices.IsSortedFunc(got, func(a, b eventlog.Key) int { return int(at[a] - at[b]) }) {
		m.Fatalf("due %v, want %v", got, due)
	}
}

func (m *model) checkSession(name string, s *modelSession) {
	record, err := m.log.Record(m.t.Context(), name)
	m.wants(err, nil)
	names := slices.Concat(slices.Collect(maps.Keys(s.streams)), slices.Collect(maps.Keys(s.memos)))
	slices.Sort(names)
	got, err := m.log.Streams(m.t.Context(), name, "", 100)
	m.wants(err, nil)
	if string(record) != s.record || !slices.Equal(got, names) {
		m.Fatalf("record %q, want %q; streams %v, want %v", record, s.record, got, names)
	}
}

func (m *model) checkStream(k eventlog.Key, want *modelStream) {
	var got []eventlog.Event
	for after := uint64(0); ; after = got[len(got)-1].Seq {
		p, err := m.log.Read(m.t.Context(), k, after, 20)
		m.wants(err, nil)
		if p.Top != want.top || p.Ended != want.ended() {
			m.Fatalf("%v: page %+v, top %d", k, p, want.top)
		}
		if len(p.Events) == 0 {
			break
		}
		got = append(got, p.Events...)
	}
	if !slices.EqualFunc(got, want.events, func(a, b eventlog.Event) bool {
		return a.Seq == b.Seq && a.Kind == b.Kind && a.Time == b.Time && string(a.Data) == string(b.Data)
	}) {
		m.Fatalf("%v: events %v, want %v", k, got, want.events)
	}
	bytes := int64(0)
	for _, e := range got {
		bytes += int64(len(e.Data))
	}
	info, err := m.log.Stat(m.t.Context(), k)
	m.wants(err, nil)
	if info.Top != want.top || info.Floor != want.floor || info.Events != int64(len(got)) || info.Bytes != bytes || !slices.Equal(info.Terms, want.terms) {
		m.Fatalf("%v: told %+v, want %+v", k, info, *want)
	}
	if want.name != "" {
		holder, err := m.log.Lookup(m.t.Context(), want.name)
		m.wants(err, nil)
		if holder != k {
			m.Fatalf("%q is bound to %v", want.name, holder)
		}
	}
}

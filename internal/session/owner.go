package session

import (
	"context"
	"errors"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/notice"
	"github.com/segno-mcp/segno/internal/wire"
)

// Create opens a session for an initialize request and hands the request to a
// child. A *Refusal says that there may be no more sessions now.
func (m *Manager) Create(ctx context.Context, principal string, msg *wire.Message, client ClientInfo) (*Session, *Call, error) {
	acc, err := m.room(principal)
	if err != nil {
		return nil, nil, err
	}
	id := newID(m.inst)
	s := m.newSession(nameOf(principal, id), &record{
		Version: recordVersion, Public: publicOf(id), Principal: principal, Created: time.Now(), Own: newStreamName(),
		Init: append([]byte(nil), msg.Raw...), Asked: msg.StringAt("params", "protocolVersion"),
		ClientName: msg.StringAt("params", "clientInfo", "name"), ClientVer: msg.StringAt("params", "clientInfo", "version"),
		UserAgent: client.UserAgent,
	}, acc)
	s.id = id
	if err := s.open(ctx); err != nil {
		s.retire()
		s.uncount(false)
		m.vacate(acc)
		return nil, nil, err
	}
	m.list(s)
	call, err := s.Call(ctx, msg, CallOptions{})
	if err != nil {
		s.End(context.WithoutCancel(ctx), "refused")
		return nil, nil, err
	}
	return s, call, nil
}

// ClientInfo is what is known of a client besides its initialize request.
type ClientInfo struct{ UserAgent string }

// open writes a new session's record and the opening of its own stream.
func (s *Session) open(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	claim, err := s.m.log.Claim(ctx, s.name, true)
	if err != nil {
		return s.unavailable(err)
	}
	s.claim = claim
	a := eventlog.Append{
		Key: s.own.key, Fence: claim.Fence, Record: s.rec.encode(),
		Events: []eventlog.Event{{Kind: eventlog.Opening, Time: time.Now().UnixNano()}},
	}
	if err := s.m.log.Append(ctx, a); err != nil {
		return s.unavailable(err)
	}
	s.own.opened(&a)
	s.startLife()
	return s.m.log.Arm(ctx, eventlog.Key{Session: s.name}, s.m.lim.expiry(true))
}

// Open finds a session by the id its client sent. eventlog.ErrNoSession says
// that it is unknown, ended or another principal's; nobody can tell which, as
// the principal is part of the name that is looked up. One that another instance
// made is counted: its client was sent to the wrong one.
func (m *Manager) Open(ctx context.Context, principal, id string) (*Session, error) {
	if !plausibleID(id) {
		return nil, eventlog.ErrNoSession
	}
	s, err := m.byName(ctx, nameOf(principal, id))
	if errors.Is(err, eventlog.ErrNoSession) && id[:instanceLen] != m.inst {
		m.meter.Add(metric.ForeignResumes, "", 1)
	}
	return s, err
}

// byName returns the session, loading it from the log if need be; several who
// want it at once share one load.
func (m *Manager) byName(ctx context.Context, name string) (*Session, error) {
	for {
		if s := m.touched(name); s != nil {
			return s, nil
		}
		if free := m.holdUnloaded(name); free != nil {
			defer free()
			return m.load(ctx, name)
		}
		if err := m.waitLoaded(ctx, name); err != nil {
			return nil, err
		}
	}
}

// load makes this process the owner of a session that is in the log, and ends
// the calls that another process left running. The caller holds the name.
func (m *Manager) load(ctx context.Context, name string) (*Session, error) {
	raw, err := m.log.Record(ctx, name)
	if err != nil {
		return nil, err
	}
	rec, err := decodeRecord(raw)
	if err != nil {
		return nil, err
	}
	if rec.Negotiated == "" {
		return nil, eventlog.ErrNoSession
	}
	claim, err := m.log.Claim(ctx, name, false)
	if err != nil {
		return nil, err
	}
	m.unpark(name)
	s := m.newSession(name, rec, m.occupy(rec.Principal))
	s.claim = claim
	if err := s.recover(ctx); err != nil {
		s.retire()
		s.uncount(false)
		m.vacate(s.account)
		return nil, err
	}
	s.touch() // loading may have taken longer than the grace
	s.startLife()
	m.list(s)
	if s.rec.owner() != m.inst {
		s.change(func(r *record) { r.Owner = m.inst })
	}
	return s, nil
}

// recover takes stock of the session's streams.
func (s *Session) recover(ctx context.Context) error {
	for after := ""; ; {
		names, err := s.m.log.Streams(ctx, s.name, after, dueBatch)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if err := s.recoverStream(ctx, name); err != nil {
				return err
			}
		}
		after = names[len(names)-1]
	}
}

func (s *Session) recoverStream(ctx context.Context, name string) error {
	key := eventlog.Key{Session: s.name, Stream: name}
	info, err := s.m.log.Stat(ctx, key)
	if err != nil || info.Dropped {
		return err
	}
	s.grew(info.Events, info.Bytes)
	if name == s.rec.Own {
		s.own.top = info.Top
		s.own.window.Restore(info.Top, info.Events-1, info.Bytes)
		return nil
	}
	page, err := s.m.log.Read(ctx, key, 0, 1)
	if err != nil {
		return err
	}
	if len(page.Events) == 0 || page.Events[0].Kind != eventlog.Opening {
		return nil
	}
	opening := page.Events[0].Data
	k := s.recall(name, opening, info)
	if info.Ended {
		return nil
	}
	return s.endUnknown(ctx, k, info, opening)
}

// endUnknown gives the calls of a stream that nobody works on any more the
// outcome that is left: nobody knows.
func (s *Session) endUnknown(ctx context.Context, k *kept, info eventlog.Info, opening []byte) error {
	st := s.newStream(k, 0)
	st.top = info.Top
	ids, err := s.unanswered(ctx, st.key, opening)
	if err != nil {
		return err
	}
	now := time.Now().UnixNano()
	var events []eventlog.Event
	for _, id := range ids {
		events = append(events, eventlog.Event{Kind: eventlog.Outcome, Time: now,
			Data: notice.UnknownOutcome([]byte(id), "segno ended while the call ran", "")})
		s.m.meter.Add(metric.Outcomes, "unknown", 1)
	}
	st.add(append(events, eventlog.Event{Kind: eventlog.End, Time: now}), nil, false)
	return nil
}

// unanswered lists the ids of an opening's requests that have no outcome yet.
func (s *Session) unanswered(ctx context.Context, key eventlog.Key, opening []byte) (open []string, err error) {
	answered := map[string]int{}
	for at := uint64(0); ; {
		page, err := s.m.log.Read(ctx, key, at, pageBytes)
		if err != nil {
			return nil, err
		}
		if len(page.Events) == 0 {
			break
		}
		for _, e := range page.Events {
			at = e.Seq
			if e.Kind != eventlog.Outcome {
				continue
			}
			if msg, err := wire.Parse(e.Data); err == nil {
				answered[string(msg.IDText())]++
			}
		}
	}
	for _, id := range requestIDs(opening) {
		if answered[id]--; answered[id] < 0 {
			open = append(open, id)
		}
	}
	return open, nil
}

// unload takes a session that nobody uses out of memory: its child ends, its
// streams stay in the log. False: somebody came meanwhile, so it stays.
func (m *Manager) unload(s *Session) bool {
	free := s.removeIdle()
	if free == nil {
		return false
	}
	defer free()
	s.retire()
	why := "no sign of life for " + m.lim.Grace.String()
	s.stopChild(why)
	for _, st := range s.liveStreams() {
		st.flushed()
		st.leave()
	}
	m.park(s)
	m.log.Release(s.name)
	if err := m.log.Arm(m.ctx, eventlog.Key{Session: s.name}, m.lim.expiry(false)); err != nil {
		s.log.Warn("setting the end of a session", "error", err)
	}
	s.log.Info("the session is out of memory", "why", why)
	return true
}

// removeIdle takes the session out of the table if nobody uses it, and holds its
// name. nil: it is in use.
func (s *Session) removeIdle() (free func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.ended || s.m.sessions[s.name] != s || s.idleFor() < s.m.lim.Grace {
		return nil
	}
	s.ended = true
	delete(s.m.sessions, s.name)
	return s.m.hold(s.name)
}

// stopChild ends the session's child, or its part in a shared one.
func (s *Session) stopChild(why string) {
	s.mu.Lock()
	ch := s.child
	s.mu.Unlock()
	if ch != nil {
		ch.leave(s, why)
	}
}

// retire stops the session's clock and lets it start no child any more.
func (s *Session) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.life != nil {
		s.life.Stop()
	}
}

// End ends a session for good: its child, its streams and its record. Calls
// that run get no answer any more, and connections to it end.
// eventlog.ErrNoSession if it has ended before.
func (s *Session) End(ctx context.Context, why string) error {
	free := s.m.remove(s)
	if free == nil {
		return eventlog.ErrNoSession
	}
	defer free()
	s.retire()
	for _, st := range s.liveStreams() {
		st.leave()
	}
	for _, c := range s.callsOf(nil) {
		s.cancel(c, "the session ended", nil, "session ended")
	}
	err := s.m.log.DropSession(context.WithoutCancel(ctx), s.name, s.claim.Fence)
	s.over()
	s.stopChild(why)
	s.m.meter.Add(metric.SessionsEnded, endLabel(why), 1)
	s.log.Info("the session ended", "why", why)
	if errors.Is(err, eventlog.ErrNoSession) {
		return nil
	}
	return err
}

// over takes the session out of what its principal uses.
func (s *Session) over() {
	s.uncount(false)
	s.m.vacate(s.account)
}

func endLabel(why string) string {
	switch why {
	case "DELETE", "refused", "expired":
		return why
	}
	return "pushed out"
}

// lost: what is here of the session is stale, as another process owns it now or
// the store lost a part of it. Whoever comes next loads it anew.
func (s *Session) lost(err error) {
	free := s.m.remove(s)
	if free == nil {
		return
	}
	free()
	s.log.Warn("the session is taken up anew", "error", err)
	s.retire()
	for _, st := range s.liveStreams() {
		st.leave()
	}
	s.over()
	s.m.run(func() { s.stopChild("another segno owns the session") })
}

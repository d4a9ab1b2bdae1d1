package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/notice"
	"github.com/segno-mcp/segno/internal/retention"
	"github.com/segno-mcp/segno/internal/wire"
)

// Create opens a session for an initialize request and hands the request to a
// child. A *Refusal says that there may be no more sessions now.
func (m *Manager) Create(ctx context.Context, principal string, msg *wire.Message, client ClientInfo) (*Session, *Call, error) {
	id := newID(m.inst)
	s := m.blank(nameOf(principal, id), principal)
	s.id = id
	s.rec = record{
		Version: recordVersion, Public: publicOf(id), Principal: principal, Created: time.Now(), Own: newStreamName(),
		Init: append([]byte(nil), msg.Raw...), Asked: msg.StringAt("params", "protocolVersion"),
		ClientName: msg.StringAt("params", "clientInfo", "name"), ClientVer: msg.StringAt("params", "clientInfo", "version"),
		UserAgent: client.UserAgent,
	}
	if err := m.room(s); err != nil {
		return nil, nil, err
	}
	if err := s.open(ctx); err != nil {
		m.remove(s)
		return nil, nil, err
	}
	call, err := s.Call(ctx, msg, CallOptions{})
	if err != nil {
		s.End(context.WithoutCancel(ctx), "refused")
		return nil, nil, err
	}
	return s, call, nil
}

// ClientInfo is what is known of a client besides its initialize request.
type ClientInfo struct{ UserAgent string }

// blank makes a session that is in no table yet.
func (m *Manager) blank(name, principal string) *Session {
	m.mu.Lock()
	acc := m.accountOf(principal)
	m.mu.Unlock()
	s := &Session{
		m: m, name: name, account: acc, log: m.logger,
		streams: map[string]*stream{}, kept: map[string]*kept{}, byID: map[string]*kept{},
		calls: map[*call]struct{}{}, asks: map[string]*ask{},
		held: retention.NewHeld(m.lim.HeldMax),
	}
	s.posted()
	return s
}

// room puts the session in the table. At the principal's cap, its session that
// is idle longest goes; at the cap of all, nobody's does for somebody else.
func (m *Manager) room(s *Session) error {
	for {
		m.mu.Lock()
		switch {
		case m.drained:
			m.mu.Unlock()
			return refuse("drain", 5*time.Second, "segno is shutting down")
		case s.account.sessions < m.lim.SessionsPerPrincipal && len(m.sessions) < m.lim.Sessions:
			m.put(s)
			m.mu.Unlock()
			return nil
		}
		m.mu.Unlock()
		oldest := m.idlest(s.rec.Principal)
		if oldest == nil {
			m.meter.Add(Refused, "max-sessions", 1)
			return refuse("max-sessions", 10*time.Second, "there are as many sessions as there may be (--max-sessions)")
		}
		if err := oldest.End(m.ctx, "pushed out by a newer session of the same principal"); err != nil {
			return err
		}
	}
}

// put enters the session into the table; the lock is held.
func (m *Manager) put(s *Session) {
	m.sessions[s.name] = s
	s.account.sessions++
	m.meter.Add(SessionsOpen, "", 1)
}

// idlest is the principal's session whose client said nothing for longest and
// for which nothing runs.
func (m *Manager) idlest(principal string) *Session {
	var found *Session
	for _, s := range m.all() {
		if s.rec.Principal != principal || s.busy() {
			continue
		}
		if found == nil || s.lastPost.Load() < found.lastPost.Load() {
			found = s
		}
	}
	return found
}

func (m *Manager) remove(s *Session) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[s.name] != s {
		return false
	}
	m.take(s)
	return true
}

// take takes the session out of the table; the lock is held.
func (m *Manager) take(s *Session) {
	delete(m.sessions, s.name)
	s.account.sessions--
	m.meter.Add(SessionsOpen, "", -1)
}

// open writes a new session's record and the opening of its own stream.
func (s *Session) open(ctx context.Context) error {
	claim, err := s.m.log.Claim(ctx, s.name, true)
	if err != nil {
		return s.unavailable(err)
	}
	s.wake(claim)
	a := eventlog.Append{
		Key: s.own.key, Fence: claim.Fence, Record: s.rec.encode(),
		Events: []eventlog.Event{{Kind: eventlog.Opening, Time: time.Now().UnixNano()}},
	}
	if err := s.m.log.Append(context.WithoutCancel(ctx), a); err != nil {
		return s.unavailable(err)
	}
	s.own.opened(&a)
	return s.m.log.Arm(ctx, eventlog.Key{Session: s.name}, time.Now().Add(s.m.lim.Grace+s.m.lim.Keep))
}

// wake makes the claimed session ready for use.
func (s *Session) wake(claim eventlog.Claim) {
	s.claim = claim
	s.log = s.m.logger.With("session", s.rec.Public, "principal", s.rec.Principal)
	s.own = s.blankStream(s.rec.Own)
	s.streams[s.rec.Own] = s.own
	if s.m.lim.Grace > 0 {
		s.life = time.AfterFunc(s.m.lim.Grace, s.graceOver)
	}
}

// Open finds a session by the id its client sent. eventlog.ErrNoSession says
// that it is unknown, ended or another principal's; nobody can tell which, as
// the principal is part of the name that is looked up.
func (m *Manager) Open(ctx context.Context, principal, id string) (*Session, error) {
	if !plausibleID(id) {
		return nil, eventlog.ErrNoSession
	}
	return m.byName(ctx, nameOf(principal, id))
}

// byName returns the session, loading it from the log if need be; several who
// want it at once share one load.
func (m *Manager) byName(ctx context.Context, name string) (*Session, error) {
	for {
		m.mu.Lock()
		if s := m.sessions[name]; s != nil {
			s.touch()
			m.mu.Unlock()
			return s, nil
		}
		wait := m.loading[name]
		if wait == nil {
			wait = make(chan struct{})
			m.loading[name] = wait
			m.mu.Unlock()
			s, err := m.load(ctx, name)
			m.mu.Lock()
			if err == nil {
				m.put(s)
			}
			delete(m.loading, name)
			m.mu.Unlock()
			close(wait)
			return s, err
		}
		m.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// load makes this process the owner of a session that is in the log, and ends
// the calls that another process left running.
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
	s := m.blank(name, rec.Principal)
	s.rec = *rec
	s.wake(claim)
	if err := s.recover(ctx); err != nil {
		s.retire()
		return nil, err
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
	s.grew(info.Bytes + info.Events*eventOverhead)
	s.m.meter.Add(RetainedEvents, "", float64(info.Events))
	if name == s.rec.Own {
		s.own.top = info.Top
		return nil
	}
	page, err := s.m.log.Read(ctx, key, 0, 1)
	if err != nil {
		return err
	}
	if len(page.Events) == 0 || page.Events[0].Kind != eventlog.Opening {
		return nil
	}
	k := s.recall(name, page.Events[0].Data, info)
	if info.Ended {
		return nil
	}
	return s.endUnknown(ctx, key, k, info, page.Events[0].Data)
}

// recall notes a stream that another process wrote. Whether a client has an id
// of it is not known, so it counts as if.
func (s *Session) recall(name string, opening []byte, info eventlog.Info) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keep(name)
	close(k.born)
	k.add(info.Events, info.Bytes)
	k.idsOut.Store(true)
	k.ended, k.endedAt = true, time.Now().UnixNano()
	s.lasting = append(s.lasting, k)
	if msg, err := wire.Parse(opening); err == nil {
		k.id, k.digest = string(msg.IDText()), sha256.Sum256(opening)
		s.byID[k.id] = k
	}
	return k
}

// endUnknown gives the calls of a stream that nobody works on any more the
// outcome that is left: nobody knows.
func (s *Session) endUnknown(ctx context.Context, key eventlog.Key, k *kept, info eventlog.Info, opening []byte) error {
	now := time.Now()
	var events []eventlog.Event
	for _, id := range s.unanswered(ctx, key, opening) {
		events = append(events, eventlog.Event{Kind: eventlog.Outcome, Time: now.UnixNano(),
			Data: notice.UnknownOutcome(id, "segno ended while the call ran", "")})
		s.m.meter.Add(Outcomes, "unknown", 1)
	}
	events = append(events, eventlog.Event{Kind: eventlog.End, Time: now.UnixNano()})
	k.add(int64(len(events)), 0)
	return s.m.log.Append(ctx, eventlog.Append{
		Key: key, Fence: s.claim.Fence, After: info.Top, Events: events, Durable: true, Due: now.Add(s.m.lim.RetainAge),
	})
}

// unanswered lists the ids of an opening's requests that have no outcome yet.
func (s *Session) unanswered(ctx context.Context, key eventlog.Key, opening []byte) [][]byte {
	var ids [][]byte
	for _, raw := range elements(opening) {
		if msg, err := wire.Parse(raw); err == nil && msg.Kind == wire.Request {
			ids = append(ids, msg.IDText())
		}
	}
	if len(ids) < 2 {
		return ids
	}
	answered := map[string]bool{}
	for at := uint64(0); ; {
		page, err := s.m.log.Read(ctx, key, at, pageBytes)
		if err != nil || len(page.Events) == 0 {
			break
		}
		for _, e := range page.Events {
			at = e.Seq
			if e.Kind != eventlog.Outcome {
				continue
			}
			if msg, err := wire.Parse(e.Data); err == nil {
				answered[string(msg.IDText())] = true
			}
		}
	}
	var open [][]byte
	for _, id := range ids {
		if !answered[string(id)] {
			open = append(open, id)
		}
	}
	return open
}

func elements(opening []byte) [][]byte {
	if !wire.IsArray(opening) {
		return [][]byte{opening}
	}
	list, err := wire.Split(opening)
	if err != nil {
		return nil
	}
	return list
}

// recoverHolder loads the session that a call waits for, if it is not, so that
// a call left running by another process ends.
func (m *Manager) recoverHolder(session string) error {
	_, err := m.byName(m.ctx, session)
	return err
}

// unload takes a session out of memory: its child ends, its streams stay in the
// log. False: somebody came meanwhile, so it stays.
func (m *Manager) unload(s *Session, why string) bool {
	before := s.lastSign.Load()
	s.stopChild(why)
	s.change(func(*record) {})
	s.own.flushed()
	m.mu.Lock()
	if m.sessions[s.name] != s || why != shutdown && (s.lastSign.Load() != before || s.readers.Load() > 0) {
		m.mu.Unlock()
		return false
	}
	m.take(s)
	m.parked[s.name] = parked{s.account, s.bytes.Load()}
	m.mu.Unlock()
	s.retire()
	m.log.Release(s.name)
	if err := m.log.Arm(m.ctx, eventlog.Key{Session: s.name}, time.Now().Add(m.lim.Keep)); err != nil {
		s.log.Warn("setting the end of a session", "error", err)
	}
	s.log.Info("the session is out of memory", "why", why)
	return true
}

// parked is what a session that is not in memory still counts for.
type parked struct {
	account *account
	bytes   int64
}

// unpark gives back what a session counted for while it was out of memory.
func (m *Manager) unpark(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.parked[name]; ok {
		p.account.bytes.Add(-p.bytes)
		delete(m.parked, name)
	}
}

const shutdown = "shutdown"

// stopChild ends the session's child, or its part in a shared one.
func (s *Session) stopChild(why string) {
	s.mu.Lock()
	ch := s.child
	s.mu.Unlock()
	if ch != nil {
		ch.leave(s, why)
	}
}

// retire stops the session's clocks and lets it start no child any more.
func (s *Session) retire() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	if s.life != nil {
		s.life.Stop()
	}
}

// End ends a session for good: its child, its streams and its record. Calls
// that run get no answer any more, and a connection to it ends.
func (s *Session) End(ctx context.Context, why string) error {
	if !s.m.remove(s) {
		return eventlog.ErrNoSession
	}
	s.retire()
	s.account.bytes.Add(-s.bytes.Load())
	s.stopChild(why)
	for _, st := range s.liveStreams() {
		st.close()
	}
	err := s.m.log.DropSession(ctx, s.name, s.claim.Fence)
	s.m.meter.Add(SessionsEnded, endLabel(why), 1)
	s.log.Info("the session ended", "why", why)
	if errors.Is(err, eventlog.ErrNoSession) {
		return nil
	}
	return err
}

func endLabel(why string) string {
	switch why {
	case "DELETE", "refused", "expired":
		return why
	}
	return "pushed out"
}

// lost: another process owns the session now. What is here of it is stale.
func (s *Session) lost(err error) {
	if s.m.remove(s) {
		s.log.Warn("the session has another owner", "error", err)
		s.retire()
		s.account.bytes.Add(-s.bytes.Load())
		s.m.run(func() { s.stopChild("another segno owns the session") })
	}
}

// forgetSession ends a session that is only in the log and whose time is over.
func (m *Manager) forgetSession(name string) error {
	claim, err := m.log.Claim(m.ctx, name, false)
	if errors.Is(err, eventlog.ErrNoSession) {
		return m.log.Arm(m.ctx, eventlog.Key{Session: name}, time.Time{})
	}
	if err != nil {
		return err
	}
	m.unpark(name)
	m.meter.Add(SessionsEnded, "expired", 1)
	return m.log.DropSession(m.ctx, name, claim.Fence)
}

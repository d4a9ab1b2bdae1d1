package session

import (
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/notice"
	"github.com/segno-mcp/segno/internal/wire"
)

// ask is a request of the server that waits for the client's answer.
type ask struct {
	st     *stream
	ch     *child
	id     []byte // Segno's own towards the client, its JSON text
	theirs []byte // the server's spelling
	at     time.Time

	// The stream's lock guards these.
	seq  uint64
	done bool
}

// newAsk takes in a request of the server. Its id towards the client is unique
// in the session for good: the fence rises with every owner.
func (s *Session) newAsk(ch *child, st *stream, msg *wire.Message) *ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastAsk++
	a := &ask{
		st: st, ch: ch, at: time.Now(),
		id:     askID(s.claim.Fence, s.lastAsk),
		theirs: append([]byte(nil), msg.IDText()...),
	}
	s.asks[string(a.id)] = a
	st.mu.Lock()
	st.waits++
	st.mu.Unlock()
	st.armAlone()
	return a
}

// settle takes the ask out of what waits; only the first call does.
func (a *ask) settle() bool {
	s := a.st.s
	s.mu.Lock()
	_, waits := s.asks[string(a.id)]
	delete(s.asks, string(a.id))
	s.mu.Unlock()
	a.st.mu.Lock()
	if !a.done {
		a.done = true
		a.st.waits--
	}
	delete(a.st.open, a.seq)
	a.st.mu.Unlock()
	return waits
}

// answerAsk hands the client's response to the server. One for no request that
// waits is late and dropped. That the client has left does not hold it back.
func (s *Session) answerAsk(msg *wire.Message) {
	s.mu.Lock()
	a := s.asks[string(msg.IDText())]
	s.mu.Unlock()
	if a == nil || !a.settle() {
		s.m.meter.Add(metric.Dropped, "late answer", 1)
		return
	}
	err := a.ch.conn.Send(s.m.ctx, wire.AppendSplice(nil, msg.Raw, wire.Edit{Span: msg.ID, With: a.theirs}))
	if err != nil {
		s.log.Info("an answer did not reach the MCP server", "error", err)
		return
	}
	s.m.meter.Add(metric.MessagesOut, "server", 1)
}

// giveUp answers the server in the client's place and takes the request back
// from the client.
func (a *ask) giveUp(why string) {
	if !a.settle() {
		return
	}
	a.st.s.m.meter.Add(metric.Dropped, "unanswered request", 1)
	a.ch.say(wire.AppendError(nil, a.theirs, wire.CodeInternal, why, nil))
	a.takeBack(why)
}

// takeBack tells the client that no answer is wanted any more.
func (a *ask) takeBack(why string) {
	a.st.add([]eventlog.Event{{Kind: eventlog.Other, Time: time.Now().UnixNano(), Data: notice.Cancel(a.id, why)}}, nil, false)
}

// asksWhere lists the asks that ok is true for.
func (s *Session) asksWhere(ok func(*ask) bool) []*ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*ask
	for _, a := range s.asks {
		if ok(a) {
			found = append(found, a)
		}
	}
	return found
}

// dropAsksOf gives up what was asked for calls that have ended.
func (s *Session) dropAsksOf(st *stream) {
	for _, a := range s.asksWhere(func(a *ask) bool { return a.st == st }) {
		a.giveUp("the call that this request belonged to has ended")
	}
}

// dropAsks forgets what a child asked that is gone, and says so to the client.
func (s *Session) dropAsks(ch *child) {
	for _, a := range s.asksWhere(func(a *ask) bool { return a.ch == ch }) {
		if a.settle() {
			a.takeBack("the MCP server ended")
		}
	}
}

// askOfServer is the waiting ask that the server knows by this id, the newest
// if it used the id twice.
func (s *Session) askOfServer(ch *child, theirs []byte) *ask {
	var found *ask
	for _, a := range s.asksWhere(func(a *ask) bool { return a.ch == ch && string(a.theirs) == string(theirs) }) {
		if found == nil || !a.at.Before(found.at) {
			found = a
		}
	}
	return found
}

package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/segno-mcp/segno/internal/notice"
	"github.com/segno-mcp/segno/internal/wire"
)

// child is a connection to the MCP server and the requests that run on it. It
// belongs to one session, or with Options.Shared to all sessions of a principal.
type child struct {
	m     *Manager
	first *Session // whose initialize is the handshake
	conn  wire.Conn

	up    chan struct{} // closed when conn is there, or will never be
	ready chan struct{} // closed when the handshake is over
	err   error         // set before either is closed if it failed
	once  sync.Once

	mu       sync.Mutex
	dead     bool
	stopped  string // why Segno ended it, if it did
	next     int64
	calls    map[int64]*call
	shaking  map[int64]chan []byte // Segno's own handshake requests
	members  []*Session
	initDone []byte // the message that answered initialize, for those who join later
}

func newChild(m *Manager, s *Session) *child {
	return &child{
		m: m, first: s,
		up: make(chan struct{}), ready: make(chan struct{}),
		calls: map[int64]*call{}, shaking: map[int64]chan []byte{},
		members: []*Session{s},
	}
}

// readyChild is the session's child if it is there and its handshake is over.
func (s *Session) readyChild() *child {
	s.mu.Lock()
	ch := s.child
	s.mu.Unlock()
	if ch != nil && ch.isReady() {
		return ch
	}
	return nil
}

func (ch *child) isReady() bool {
	select {
	case <-ch.ready:
		return ch.err == nil
	default:
		return false
	}
}

// childFor waits for the session's child, starting one if there is none. Only
// an initialize that is the handshake itself does not wait for the handshake.
func (s *Session) childFor(init bool) (*child, error) {
	ch, err := s.someChild(init)
	if err != nil {
		return nil, err
	}
	wait := ch.ready
	if init && ch.first == s {
		wait = ch.up
	}
	select {
	case <-wait:
		return ch, ch.err
	case <-s.m.ctx.Done():
		return nil, errShutdown
	}
}

var errShutdown = errors.New("segno is shutting down")

func (s *Session) someChild(init bool) (*child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child != nil {
		return s.child, nil
	}
	if s.ended {
		return nil, errors.New("the session has ended")
	}
	ch, err := s.m.childOf(s)
	if err != nil {
		return nil, err
	}
	s.child = ch
	if ch.first == s {
		again := s.rec
		s.m.run(func() { ch.start(&again, !init) })
	}
	return ch, nil
}

// start connects and, for a session that was there before, repeats the
// handshake its client once made.
func (ch *child) start(rec *record, again bool) {
	ctx, cancel := context.WithTimeout(ch.m.ctx, ch.m.lim.StartTimeout)
	defer cancel()
	conn, err := ch.m.up.Connect(ctx, ch.first.Public())
	if err != nil {
		ch.settleReady(err)
		ch.end(err)
		return
	}
	ch.conn = conn
	ch.m.meter.Add(ChildrenRunning, "", 1)
	close(ch.up)
	ch.m.run(ch.receive)
	if again {
		err = ch.shake(ctx, rec)
		ch.settleReady(err)
	}
	select {
	case <-ch.ready:
	case <-ctx.Done():
		err = fmt.Errorf("it did not answer initialize within %v", ch.m.lim.StartTimeout)
	}
	if err != nil {
		ch.stop(err.Error())
	}
}

// settleReady tells everybody how the handshake went; the first word counts.
func (ch *child) settleReady(err error) {
	ch.once.Do(func() {
		ch.err = err
		if ch.conn == nil {
			close(ch.up)
		}
		close(ch.ready)
	})
}

// shake is the handshake of a child that is not a session's first: initialize
// as the client sent it, then what the client set since.
func (ch *child) shake(ctx context.Context, rec *record) error {
	init, perr := wire.Parse(rec.Init)
	if perr != nil {
		return perr
	}
	if _, err := ch.exchange(ctx, &init); err != nil {
		return err
	}
	if rec.Initialized {
		if err := ch.conn.Send(ctx, wire.AppendNotification(nil, wire.Initialized, nil)); err != nil {
			return err
		}
	}
	if rec.Level != "" && !rec.AddLogging {
		ch.repeat(ctx, wire.SetLevel, "level", rec.Level)
	}
	for _, uri := range rec.Subscribed {
		ch.repeat(ctx, wire.Subscribe, "uri", uri)
	}
	return nil
}

// repeat sets again what a client set before; that it fails now is no reason
// to do without the server.
func (ch *child) repeat(ctx context.Context, method, name, value string) {
	params := append([]byte(`{"`+name+`":`), wire.AppendQuoted(nil, value)...)
	raw := wire.AppendRequest(nil, []byte("0"), method, append(params, '}'))
	msg, _ := wire.Parse(raw)
	if _, err := ch.exchange(ctx, &msg); err != nil {
		ch.first.log.Warn("repeating what the client set", "method", method, "error", err)
	}
}

// exchange sends a request of Segno's own and waits for its result.
func (ch *child) exchange(ctx context.Context, msg *wire.Message) ([]byte, error) {
	answer := make(chan []byte, 1)
	ch.mu.Lock()
	ch.next++
	id := ch.next
	ch.shaking[id] = answer
	ch.mu.Unlock()
	defer func() {
		ch.mu.Lock()
		delete(ch.shaking, id)
		ch.mu.Unlock()
	}()
	if err := ch.conn.Send(ctx, spliceCall(msg, &call{}, id)); err != nil {
		return nil, err
	}
	select {
	case raw := <-answer:
		got, perr := wire.Parse(raw)
		if perr != nil {
			return nil, perr
		}
		if got.Kind == wire.Failure {
			return nil, fmt.Errorf("the MCP server refused %s: %s", msg.Method, got.Text(got.Error))
		}
		return raw, nil
	case <-ch.ready:
		return nil, ch.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the MCP server did not answer %s in time", msg.Method)
	}
}

// enlist gives the call its id at the child. False: the child is gone.
func (ch *child) enlist(c *call) (int64, bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.dead {
		return 0, false
	}
	ch.next++
	c.inner, c.child = ch.next, ch
	ch.calls[ch.next] = c
	return ch.next, true
}

// forget strikes the call out: what comes for its id now is late.
func (ch *child) forget(c *call) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	_, there := ch.calls[c.inner]
	delete(ch.calls, c.inner)
	return there
}

// stop ends the child and returns when it is gone.
func (ch *child) stop(why string) {
	ch.mu.Lock()
	if ch.stopped == "" {
		ch.stopped = why
	}
	ch.mu.Unlock()
	<-ch.up
	if ch.conn != nil {
		ch.conn.Close()
	}
}

// receive routes what the server says until it is gone. Output that the log
// does not take is not read beyond a bound.
func (ch *child) receive() {
	b := builder{ch: ch}
	for {
		msgs, err := ch.conn.Recv(context.Background())
		if err != nil {
			ch.m.meter.Add(ChildrenRunning, "", -1)
			ch.conn.Close()
			ch.end(err)
			return
		}
		b.route(msgs)
		for _, s := range ch.sessions() {
			s.held.Wait()
		}
	}
}

// end settles everything that was waiting for the server.
func (ch *child) end(err error) {
	gone := &wire.Gone{Reason: err.Error()}
	errors.As(err, &gone)
	ch.mu.Lock()
	ch.dead = true
	calls, members, stopped := ch.calls, ch.members, ch.stopped
	ch.calls = map[int64]*call{}
	ch.mu.Unlock()
	why := gone.Reason
	if stopped != "" {
		why = stopped
	}
	ch.settleReady(&wire.Gone{Reason: why, Tail: gone.Tail})
	ch.m.childGone(ch)
	ch.m.meter.Add(ChildExits, exitLabel(stopped), 1)
	for _, s := range members {
		s.childEnded(ch, gone, stopped)
	}
	for _, c := range calls {
		c.st.s.settle(c, goneOutcome(c, why, gone.Tail), "unknown")
	}
}

func exitLabel(stopped string) string {
	if stopped == "" {
		return "itself"
	}
	return "stopped"
}

// goneOutcome is what a call hears whose server is gone.
func goneOutcome(c *call, why, tail string) []byte {
	if c.init {
		return notice.NotExecuted(c.id, "the MCP server did not get through initialize: "+why, tail)
	}
	return notice.UnknownOutcome(c.id, "the MCP server ended while the call ran: "+why, tail)
}

// childEnded lets the session start another one when it has something to say.
func (s *Session) childEnded(ch *child, gone *wire.Gone, stopped string) {
	if stopped == "" {
		s.breaker.ended(gone)
		s.log.Warn("the MCP server ended", "reason", gone.Reason, "stderr", gone.Tail)
	} else {
		s.log.Info("the MCP server was stopped", "reason", stopped, "exit", gone.Reason)
	}
	s.mu.Lock()
	if s.child == ch {
		s.child = nil
	}
	s.mu.Unlock()
	s.dropAsks(ch)
}

// leave takes the session off the child, which ends with its last session.
func (ch *child) leave(s *Session, why string) {
	ch.mu.Lock()
	ch.members = slices.DeleteFunc(ch.members, func(o *Session) bool { return o == s })
	last := len(ch.members) == 0
	ch.mu.Unlock()
	if last {
		ch.stop(why)
	}
}

func tailOf(err error) string {
	var g *wire.Gone
	if errors.As(err, &g) {
		return g.Tail
	}
	return ""
}

// A server that ends so often in so short a time is left alone for as long.
const (
	breakerExits  = 5
	breakerWindow = 30 * time.Second
)

// breaker remembers how a session's children ended by themselves.
type breaker struct {
	mu   sync.Mutex
	at   []time.Time
	last *wire.Gone
}

func (b *breaker) ended(g *wire.Gone) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = g
	b.at = append(b.at, time.Now())
	if len(b.at) > breakerExits {
		b.at = b.at[1:]
	}
}

// open tells for how long no new child is to be started, and how the last ended.
func (b *breaker) open() (time.Duration, *wire.Gone) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.at) < breakerExits {
		return 0, nil
	}
	last := b.at[len(b.at)-1]
	if last.Sub(b.at[0]) > breakerWindow {
		return 0, nil
	}
	return time.Until(last.Add(breakerWindow)), b.last
}

// broken refuses calls while the server only ends and ends.
func (s *Session) broken() *Refusal {
	wait, last := s.breaker.open()
	if wait <= 0 {
		return nil
	}
	r := refuse("child-exits", wait, "the MCP server ended %d times within %v, last: %s", breakerExits, breakerWindow, last.Reason)
	r.Detail = last.Tail
	return r
}

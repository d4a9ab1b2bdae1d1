package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/notice"
	"github.com/segno-mcp/segno/internal/wire"
)

// child is a connection to the MCP server and the requests that run on it. It
// belongs to one session, or with Options.Shared to all sessions of a principal.
type child struct {
	m       *Manager
	first   *Session // whose initialize is the handshake
	account *account // that it counts for
	conn    wire.Conn
	began   time.Time

	up    chan struct{} // closed when conn is there, or will never be
	ready chan struct{} // closed when the handshake is over
	err   error         // set before either is closed if it failed
	once  sync.Once
	done  chan struct{} // closed when nothing of it is left
	ctx   context.Context
	halt  context.CancelFunc // ends the start, and what holds back the output

	unsent sync.Once // it took no message: it is about to end

	mu       sync.Mutex
	over     *wire.Gone // it takes no call any more, and this is why
	stopped  string     // why Segno ended it, if it did
	greeted  bool       // it was told that the client is initialized
	next     int64
	hello    int64 // its id of the client's initialize that is the handshake
	calls    map[int64]*call
	shaking  map[int64]chan []byte // Segno's own handshake requests
	members  []*Session
	initDone []byte // its answer to initialize, for those who join later
	outbox   [][]byte
	talking  bool
}

func newChild(m *Manager, s *Session) *child {
	ch := &child{
		m: m, first: s, account: s.account, began: time.Now(),
		up: make(chan struct{}), ready: make(chan struct{}), done: make(chan struct{}),
		calls: map[int64]*call{}, shaking: map[int64]chan []byte{},
		members: []*Session{s},
	}
	ch.ctx, ch.halt = context.WithCancel(m.ctx)
	return ch
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

// await waits for a child to be of use. Only an initialize that is the handshake
// itself does not wait for the handshake.
func (s *Session) await(ch *child, init bool) error {
	wait := ch.ready
	if init && ch.first == s {
		wait = ch.up
	}
	select {
	case <-wait:
	case <-s.m.ctx.Done():
		return errShutdown
	}
	select {
	case <-ch.ready: // only then err is set for good
		return ch.err
	default:
		return nil
	}
}

var errShutdown = errors.New("segno is shutting down")

// someChild is the session's child, started if there is none.
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
		again.Subscribed = slices.Clone(s.rec.Subscribed)
		if !s.m.run(func() { ch.start(&again, !init) }) {
			s.child = nil
			return nil, errShutdown
		}
	}
	return ch, nil
}

// startTime bounds the start of the child.
func (ch *child) startTime() (context.Context, context.CancelFunc) {
	if d := ch.m.lim.StartTimeout; d > 0 {
		return context.WithTimeout(ch.ctx, d)
	}
	return context.WithCancel(ch.ctx)
}

// start connects and, for a session that was there before, repeats the
// handshake its client once made.
func (ch *child) start(rec *record, again bool) {
	ctx, cancel := ch.startTime()
	defer cancel()
	conn, err := ch.m.up.Connect(ctx, ch.first.Public())
	if err != nil {
		ch.end(err)
		return
	}
	ch.conn = conn
	ch.m.meter.Add(metric.ChildrenRunning, "", 1)
	close(ch.up)
	if !ch.m.run(ch.receive) {
		conn.Close()
		ch.ended(errShutdown)
		return
	}
	if again {
		err = ch.shake(ctx, rec)
		if err == nil || ch.ctx.Err() == nil && !ch.ends(err) {
			ch.settleReady(err)
		}
	}
	if err = ch.greeting(ctx); err != nil {
		ch.giveUp(&wire.Gone{Reason: err.Error(), Tail: ch.tail()})
		ch.stop(err.Error())
	}
}

// greeting waits until the handshake is over. Where the child ends before that,
// its end says why.
func (ch *child) greeting(ctx context.Context) error {
	select {
	case <-ch.ready:
		return ch.err
	case <-ctx.Done():
	}
	if ch.ctx.Err() == nil {
		return fmt.Errorf("it did not answer initialize within %v", ch.m.lim.StartTimeout)
	}
	<-ch.ready
	return ch.err
}

// tail is what the server last said on its error channel, while it still runs.
func (ch *child) tail() string {
	if t, ok := ch.conn.(interface{ Tail() string }); ok {
		return t.Tail()
	}
	return ""
}

// settleReady tells everybody how the handshake went; the first word counts.
func (ch *child) settleReady(err error) {
	ch.once.Do(func() {
		ch.err = err
		close(ch.ready)
		if ch.conn == nil {
			close(ch.up)
		}
	})
}

// enlist gives the call its id at the child. False: the child is gone.
func (ch *child) enlist(c *call) (int64, bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.over != nil {
		return 0, false
	}
	ch.next++
	ch.calls[ch.next] = c
	if c.init && ch.hello == 0 {
		ch.hello = ch.next
	}
	return ch.next, true
}

// ending is why the child takes no call any more.
func (ch *child) ending() *wire.Gone {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.over == nil {
		return &wire.Gone{Reason: "it just ended"}
	}
	return ch.over
}

// endWait is how long a server may live on that takes no messages.
const endWait = 5 * time.Second

// refuses deals with a call that the child did not take, and tells whether the
// child's end will settle it: then that says why.
func (ch *child) refuses(inner int64, err error) bool {
	ch.mu.Lock()
	if c := ch.calls[inner]; c != nil {
		c.refused = true
	}
	ch.mu.Unlock()
	return ch.ends(err)
}

// ends tells whether a message was not taken because the child is at its end,
// and sees to it that the end comes.
func (ch *child) ends(err error) bool {
	var gone *wire.Gone
	if !errors.As(err, &gone) {
		return false
	}
	ch.unsent.Do(func() {
		ch.m.run(func() {
			limit := time.NewTimer(endWait)
			defer limit.Stop()
			select {
			case <-ch.done:
			case <-limit.C:
				ch.stop(gone.Reason)
			}
		})
	})
	return true
}

// forget strikes a call out: what comes for its id now is late.
func (ch *child) forget(inner int64) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	_, there := ch.calls[inner]
	delete(ch.calls, inner)
	return there
}

// cancel tells the server that a call it was given is not wanted any more.
func (ch *child) cancel(inner int64, why string) {
	ch.say(notice.Cancel(strconv.AppendInt(nil, inner, 10), why))
}

// outboxMax bounds what waits to be said to a server that does not listen.
const outboxMax = 4096

// say sends a message of Segno's own without holding up the caller. What is
// said leaves in order.
func (ch *child) say(raw []byte) {
	ch.mu.Lock()
	if ch.over != nil || len(ch.outbox) >= outboxMax {
		ch.mu.Unlock()
		ch.m.meter.Add(metric.Dropped, "server does not listen", 1)
		return
	}
	ch.outbox = append(ch.outbox, raw)
	start := !ch.talking
	ch.talking = true
	ch.mu.Unlock()
	if start {
		ch.m.run(ch.talk)
	}
}

func (ch *child) talk() {
	for {
		ch.mu.Lock()
		if ch.over != nil || len(ch.outbox) == 0 {
			ch.talking, ch.outbox = false, nil
			ch.mu.Unlock()
			return
		}
		raw := ch.outbox[0]
		ch.outbox = ch.outbox[1:]
		ch.mu.Unlock()
		if err := ch.conn.Send(ch.m.ctx, raw); err == nil {
			ch.m.meter.Add(metric.MessagesOut, "server", 1)
		}
	}
}

// stop ends the child and returns when nothing of it is left.
func (ch *child) stop(why string) {
	ch.mu.Lock()
	if ch.stopped == "" {
		ch.stopped = why
	}
	ch.mu.Unlock()
	ch.halt()
	<-ch.up
	if ch.conn != nil {
		ch.conn.Close()
	}
	<-ch.done
}

// receive routes what the server says until it is gone. Output that the log
// does not take is not read beyond a bound.
func (ch *child) receive() {
	b := builder{ch: ch}
	for {
		msgs, err := ch.conn.Recv(context.Background())
		if err != nil {
			ch.conn.Close()
			ch.ended(err)
			return
		}
		b.route(msgs)
		for _, s := range ch.sessions() {
			s.held.Wait(ch.ctx.Done())
		}
	}
}

// ended is end for a child that was connected.
func (ch *child) ended(err error) {
	ch.m.meter.Add(metric.ChildrenRunning, "", -1)
	ch.end(err)
}

// end settles everything that was waiting for the server.
func (ch *child) end(err error) {
	defer close(ch.done)
	ch.halt()
	gone := &wire.Gone{Reason: err.Error()}
	errors.As(err, &gone)
	ch.mu.Lock()
	why := &wire.Gone{Reason: cmp.Or(ch.stopped, gone.Reason), Tail: gone.Tail}
	if ch.over == nil {
		ch.over = why
	}
	members, stopped := ch.members, ch.stopped
	ch.mu.Unlock()
	ch.m.childGone(ch)
	ch.m.meter.Add(metric.ChildExits, exitLabel(stopped), 1)
	ch.logEnd(gone, stopped)
	for _, s := range members {
		s.childEnded(ch, gone, stopped)
	}
	ch.giveUp(why)
}

// giveUp lets the child take no call any more and tells why to those that wait
// for it. A child that did not start in time may take long to end.
func (ch *child) giveUp(why *wire.Gone) {
	ch.mu.Lock()
	if ch.over == nil {
		ch.over = why
	}
	calls := ch.calls
	ch.calls = map[int64]*call{}
	ch.mu.Unlock()
	ch.settleReady(why)
	for _, c := range calls {
		c.st.s.settle(c, goneOutcome(c, why), "unknown")
	}
}

// logEnd is the one line of a child's end.
func (ch *child) logEnd(gone *wire.Gone, stopped string) {
	what, level := "the MCP server ended", slog.LevelInfo
	if ch.conn == nil {
		what = "the MCP server did not start"
	}
	if stopped == "" || !ch.isReady() {
		level = slog.LevelWarn
	}
	ch.first.log.Log(context.Background(), level, what, "why", cmp.Or(stopped, "by itself"),
		"exit", gone.Reason, "lived", time.Since(ch.began), "stderr", gone.Tail)
}

func exitLabel(stopped string) string {
	if stopped == "" {
		return "itself"
	}
	return "stopped"
}

// goneOutcome is what a call hears whose server is gone.
func goneOutcome(c *call, g *wire.Gone) []byte {
	switch {
	case c.init:
		return notice.NotExecuted(c.id, "the MCP server did not get through initialize: "+g.Reason, g.Tail)
	case c.refused:
		return notice.NotExecuted(c.id, g.Error(), g.Tail)
	}
	return notice.UnknownOutcome(c.id, "the MCP server ended while the call ran: "+g.Reason, g.Tail)
}

// childEnded lets the session start another one when it has something to say.
func (s *Session) childEnded(ch *child, gone *wire.Gone, stopped string) {
	if stopped == "" {
		s.breaker.ended(gone)
	}
	s.mu.Lock()
	if s.child == ch {
		s.child = nil
	}
	s.mu.Unlock()
	s.dropAsks(ch)
}

// joined takes a session in, unless the child is at its end.
func (ch *child) joined(s *Session) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.over != nil || ch.stopped != "" {
		return false
	}
	ch.members = append(ch.members, s)
	return true
}

// leave takes the session off the child, which ends with its last session.
func (ch *child) leave(s *Session, why string) {
	ch.mu.Lock()
	others := slices.DeleteFunc(slices.Clone(ch.members), func(o *Session) bool { return o == s })
	last := len(others) == 0
	if last {
		ch.stopped = cmp.Or(ch.stopped, why)
	} else {
		ch.members = others
	}
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

package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/notice"
)

// pageBytes is how much a reader takes from the log at once.
const pageBytes = 128 << 10

// Policy is what a connection wants after a gap.
type Policy string

// The policies (--on-gap, header Segno-On-Gap).
const (
	Oldest Policy = "oldest" // the notice, everything kept, then live
	Live   Policy = "live"   // the notice, then only what comes new, and outcomes and open requests
	Fail   Policy = "error"  // the notice; a call that runs is cancelled and ends with an error
)

// Delivery is what a connection writes next: a notice, or else events.
type Delivery struct {
	Notice   []byte // a gap notice, to be written with NoticeID
	NoticeID string
	Term     string           // of Events
	Events   []eventlog.Event // rising, all to be written
	Wait     bool             // nothing is there now: wait for C
	Ended    bool             // nothing will come any more after these events
	Spare    bool             // another connection gets the events; wait for C
	Retired  bool             // there are too many connections: end this one
}

// Reader is a connection's place in a stream and its seat among the
// connections to that stream: the newest gets the events, up to two older ones
// are spares that go on from their own place when it ends. It belongs to one
// goroutine, but for nudge.
type Reader struct {
	st     *stream
	follow *eventlog.Follower
	hint   chan struct{}
	policy Policy
	yields func(retired bool)
	mute   bool // its connection can carry an outcome and nothing else

	rest     eventlog.Page // read and not yet delivered
	gaps     []gap         // to be told before the next event, by place
	liveFrom uint64        // Live: what is not pinned up to here is left out
	only     bool          // Fail: only the outcome is wanted now
	first    *Delivery     // looked at already, see peek
	over     bool          // the End was read

	// The stream's lock guards what retention looks at.
	place     uint64    // up to which the connection took the bytes
	given     uint64    // up to where the last delivery went
	passed    uint64    // and the one before, which it came back from
	moved     time.Time // when it last took some, or was given some to take
	waiting   bool      // it has taken everything
	overtaken bool      // retention passed it, as it did not move
	retired   bool
	left      bool
}

// gap is a run of events that are missing for one reason.
type gap struct {
	eventlog.Gap
	reason string
}

// spares is how many older connections to a stream stay open.
const spares = 2

// attach gives a connection a seat at a place of the stream.
func (s *Session) attach(st *stream, place uint64, p Policy, mute bool) *Reader {
	r := &Reader{st: st, hint: make(chan struct{}, 1), policy: p, mute: mute, place: place, moved: time.Now()}
	r.follow = eventlog.Follow(s.m.log, st.key, place, r.hint)
	s.readers.Add(1)
	defer st.armAlone()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.seats = append(st.seats, r)
	for i, other := range st.seats[:len(st.seats)-1] {
		other.retired = other.retired || i < len(st.seats)-1-spares
		if other.nudge(); other.yields != nil {
			other.yields(other.retired)
		}
	}
	return r
}

// AttachCall attaches a connection to a call's stream, from its start.
func (s *Session) AttachCall(c *Call, p Policy) *Reader {
	return s.attach(s.streamFor(c.Stream), 1, p, false)
}

// AttachOutcome is AttachCall for a connection that can carry the outcome alone,
// as an answer in JSON: somebody waits for the call, but nobody who could be
// asked anything.
func (s *Session) AttachOutcome(c *Call, p Policy) *Reader {
	return s.attach(s.streamFor(c.Stream), 1, p, true)
}

// AttachOwn attaches a connection to the session's own stream, after what was
// handed to a connection that lived on.
func (s *Session) AttachOwn(p Policy) *Reader {
	s.mu.Lock()
	place := max(s.rec.Handed, 1)
	s.mu.Unlock()
	return s.attach(s.own, place, p, false)
}

// C gets a value when Next may have something else to say.
func (r *Reader) C() <-chan struct{} { return r.hint }

// Stream is the stream's name.
func (r *Reader) Stream() string { return r.st.key.Stream }

// Own tells whether it is the session's own stream, which never ends.
func (r *Reader) Own() bool { return r.st == r.st.s.own }

// Running tells whether a call of the stream has no outcome yet.
func (r *Reader) Running() bool { return r.st.running() }

func (r *Reader) nudge() {
	select {
	case r.hint <- struct{}{}:
	default:
	}
}

// Next returns what comes next and does not wait for it. What is not for
// clients is left out. Of a session that is over, nothing comes any more.
func (r *Reader) Next(ctx context.Context) (Delivery, error) {
	if d, served := r.seat(); !served {
		return d, nil
	}
	d := Delivery{}
	var err error
	if r.first != nil {
		d, r.first = *r.first, nil
	} else if d, err = r.next(ctx); err != nil {
		return d, err
	}
	r.st.mu.Lock()
	r.moved, r.waiting, r.passed = time.Now(), d.Wait, r.given
	if n := len(d.Events); n > 0 {
		r.given = d.Events[n-1].Seq
	}
	r.st.mu.Unlock()
	return d, nil
}

// peek looks at the first delivery; the next Next returns it.
func (r *Reader) peek(ctx context.Context) (*Delivery, error) {
	d, err := r.next(ctx)
	if err != nil {
		return nil, err
	}
	if !d.Wait {
		r.first = &d
	}
	return &d, nil
}

// seat tells whether this is the connection that gets the events, or else what
// it gets.
func (r *Reader) seat() (d Delivery, served bool) {
	st := r.st
	st.mu.Lock()
	defer st.mu.Unlock()
	n := len(st.seats)
	switch {
	case st.gone || r.left || n == 0:
		return Delivery{Ended: true}, false
	case r.retired:
		return Delivery{Retired: true}, false
	case st.seats[n-1] != r:
		return Delivery{Spare: true}, false
	}
	return Delivery{}, true
}

func (r *Reader) next(ctx context.Context) (Delivery, error) {
	for {
		r.skip()
		if len(r.rest.Events) == 0 && !r.over {
			if d, again, err := r.read(ctx); err != nil || !again {
				return d, err
			}
			continue
		}
		if len(r.gaps) > 0 {
			return r.tell(ctx, cmp.Or(r.upcoming(), r.follow.At()))
		}
		d := Delivery{Term: r.rest.Term, Events: r.run()}
		r.skip()
		d.Ended = r.over && len(r.rest.Events) == 0 && len(r.gaps) == 0
		return d, nil
	}
}

// upcoming is the seq of the next event that was read and will be delivered, 0
// if there is none.
func (r *Reader) upcoming() uint64 {
	switch {
	case r.first != nil && len(r.first.Events) > 0:
		return r.first.Events[0].Seq
	case len(r.rest.Events) > 0:
		return r.rest.Events[0].Seq
	}
	return 0
}

// read takes the next page. again is false if d is to be delivered instead.
func (r *Reader) read(ctx context.Context) (d Delivery, again bool, err error) {
	step, err := r.follow.Next(ctx, pageBytes)
	switch {
	case errors.Is(err, eventlog.ErrNoStream):
		return Delivery{Ended: true}, false, nil
	case err != nil:
		return Delivery{}, false, err
	case step.Gap != nil:
		return Delivery{}, true, r.missed(ctx, *step.Gap, r.reason())
	case len(step.Page.Events) > 0:
		r.rest = step.Page
		r.over = step.Page.Events[len(step.Page.Events)-1].Kind == eventlog.End
		return Delivery{}, true, nil
	case len(r.gaps) > 0:
		d, err = r.tell(ctx, step.Page.Top+1)
		return d, false, err
	}
	return Delivery{Wait: !step.Page.Ended, Ended: step.Page.Ended}, false, nil
}

// use is what becomes of an event on its way to this client.
type use uint8

const (
	deliver use = iota
	skip        // not for clients, or needed no more
	leave       // told as lost, as the client's policy wants
)

func (r *Reader) use(e *eventlog.Event) use {
	switch e.Kind {
	case eventlog.Opening, eventlog.End:
		return skip
	case eventlog.Outcome:
		return deliver
	case eventlog.Request:
		if r.st.settled(e.Seq) {
			return skip
		}
		if !r.only {
			return deliver
		}
	}
	if r.only || e.Seq <= r.liveFrom {
		return leave
	}
	return deliver
}

// skip moves on to the next event that is for the client.
func (r *Reader) skip() {
	for len(r.rest.Events) > 0 {
		e := &r.rest.Events[0]
		switch r.use(e) {
		case deliver:
			return
		case leave:
			r.widen(eventlog.Gap{After: e.Seq - 1, Next: e.Seq + 1, Lost: 1}, notice.Policy)
		}
		r.rest.Events = r.rest.Events[1:]
	}
}

// run takes the events from here on that are all for the client.
func (r *Reader) run() []eventlog.Event {
	events, n := r.rest.Events, 0
	for n < len(events) && r.use(&events[n]) == deliver {
		n++
	}
	r.rest.Events = events[n:]
	return events[:n:n]
}

// missed notes a gap and does what the policy says.
func (r *Reader) missed(ctx context.Context, g eventlog.Gap, reason string) error {
	r.widen(g, reason)
	switch r.policy {
	case Live:
		info, err := r.st.s.m.log.Stat(ctx, r.st.key)
		if err != nil {
			return err
		}
		r.liveFrom = info.Top
	case Fail:
		r.only = !r.Own()
	}
	return nil
}

// fail ends the calls of the stream that still run, as the client wants no
// outcome with a hole before it. Their outcome speaks of the hole as it is told.
func (r *Reader) fail(g *gap) {
	for _, c := range r.st.s.callsOf(r.st) {
		r.st.s.cancel(c, "events of the call are lost", notice.GapOutcome(c.id, r.Stream(), g.reason, g.Gap), "error")
	}
}

// reason is why events are missing: of a connection that was overtaken, because
// it did not read.
func (r *Reader) reason() string {
	r.st.mu.Lock()
	defer r.st.mu.Unlock()
	if r.overtaken {
		r.overtaken = false
		return notice.SlowReader
	}
	return notice.Retention
}

// widen adds to what is to be told. What is missing for another reason than what
// is missing before it is a gap of its own.
func (r *Reader) widen(g eventlog.Gap, reason string) {
	n := len(r.gaps) - 1
	if n < 0 || r.gaps[n].reason != reason {
		r.gaps = append(r.gaps, gap{g, reason})
		return
	}
	r.gaps[n].Next = g.Next
	r.gaps[n].Lost += g.Lost
}

// tell makes the notice of the first gap. Its id is the place just before what
// follows: the next gap, or the event next.
func (r *Reader) tell(ctx context.Context, next uint64) (Delivery, error) {
	g := r.gaps[0]
	g.Next = next
	if len(r.gaps) > 1 {
		g.Next = r.gaps[1].After + 1
	}
	info, err := r.st.s.m.log.Stat(ctx, r.st.key)
	if errors.Is(err, eventlog.ErrNoStream) {
		return Delivery{Ended: true}, nil
	}
	if err != nil {
		return Delivery{}, err
	}
	if r.gaps = r.gaps[1:]; r.only {
		r.fail(&g)
	}
	r.handsOut(true)
	s := r.st.s
	s.m.meter.Add(metric.Gaps, g.reason, 1)
	s.log.Warn("events are missing", "stream", r.Stream(), "reason", g.reason, "after", g.After, "next", g.Next, "lost", g.Lost)
	return Delivery{
		Notice:   notice.Gap(s.Level(), r.Stream(), g.reason, g.Gap),
		NoticeID: idAt(info, r.Stream(), g.Next-1, random(eventlog.AgainLen)),
	}, nil
}

func idAt(info eventlog.Info, stream string, place uint64, again string) string {
	return eventlog.Cursor{Stream: stream, Term: info.TermAt(place), Seq: place, Again: again}.String()
}

// PrimingID is a new event id for the reader's own place.
func (r *Reader) PrimingID(ctx context.Context) (string, error) {
	info, err := r.st.s.m.log.Stat(ctx, r.st.key)
	if err != nil {
		return "", err
	}
	r.handsOut(true)
	r.st.mu.Lock()
	place := r.place
	r.st.mu.Unlock()
	return idAt(info, r.Stream(), place, random(eventlog.AgainLen)), nil
}

// AppendID appends the id of an event of this stream.
func (r *Reader) AppendID(dst []byte, term string, seq uint64) []byte {
	return eventlog.Cursor{Stream: r.Stream(), Term: term, Seq: seq}.AppendTo(dst)
}

// Sent tells that the connection took the bytes of everything up to seq.
// ids says that event ids went with them.
func (r *Reader) Sent(seq uint64, ids bool) {
	r.handsOut(ids)
	r.st.mu.Lock()
	r.place, r.moved = max(r.place, seq), time.Now()
	r.st.mu.Unlock()
}

// handsOut notes whether the client gets an id of the stream, so that it may
// come back with it.
func (r *Reader) handsOut(id bool) {
	if id && r.st.kept != nil {
		r.st.kept.idsOut.Store(true)
	}
}

// Beat tells that a heartbeat was written: a sign of life, and what was sent
// before it counts as handed over.
func (r *Reader) Beat() {
	s := r.st.s
	s.touch()
	r.st.mu.Lock()
	place := r.place
	r.st.mu.Unlock()
	if r.Own() {
		s.handed(place)
	}
}

// handed notes up to where the client has seen the session's own stream.
func (s *Session) handed(place uint64) {
	s.mu.Lock()
	news := place > s.rec.Handed
	s.mu.Unlock()
	if news {
		s.change(func(r *record) { r.Handed = max(r.Handed, place) })
	}
}

// Close gives the seat up; a spare takes over. It may be called twice.
func (r *Reader) Close() {
	r.follow.Close()
	st := r.st
	st.mu.Lock()
	if r.left {
		st.mu.Unlock()
		return
	}
	r.left = true
	st.seats = slices.DeleteFunc(st.seats, func(o *Reader) bool { return o == r })
	n := len(st.seats)
	if n > 0 {
		st.seats[n-1].nudge()
	}
	st.mu.Unlock()
	st.s.touch()
	st.s.readers.Add(-1)
	st.armAlone()
	if n == 0 {
		st.s.release(st)
	}
}

// overtakable is up to where retention may go: not past the place of the
// connection that gets the events, as long as it moves. The stream's lock is held.
func (st *stream) overtakable() uint64 {
	n := len(st.seats)
	if n == 0 {
		return ^uint64(0)
	}
	r := st.seats[n-1]
	limit := st.s.m.lim.WriteTimeout
	if r.waiting || limit < 0 || time.Since(r.moved) < limit {
		return max(r.place, r.passed)
	}
	return ^uint64(0)
}

// overtake notes that retention went as far; the stream's lock is held.
func (st *stream) overtake(through uint64) {
	if n := len(st.seats); n > 0 {
		r := st.seats[n-1]
		r.overtaken = r.overtaken || through > max(r.place, r.given)
	}
}

func (st *stream) shown() []Seat {
	st.mu.Lock()
	defer st.mu.Unlock()
	var seats []Seat
	for i, r := range st.seats {
		seats = append(seats, Seat{Place: r.place, Spare: i < len(st.seats)-1})
	}
	return seats
}

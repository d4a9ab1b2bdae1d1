package oracle

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/wire"
)

// checkSeen compares what the clients saw with the history.
func (w *world) checkSeen() {
	for _, x := range w.conns {
		if x.status == 0 {
			w.checkBreak(x)
			continue
		}
		if !w.checkStatus(x) {
			continue
		}
		switch {
		case x.form == "text/event-stream":
			w.checkBreak(x)
			v := &view{w: w, x: x, alone: w.alone(x)}
			v.check()
		case x.o.call != nil && x.status == http.StatusOK && x.err == nil:
			w.checkJSON(x)
		case x.status == http.StatusNoContent && x.o.cursor != "":
			w.checkNothing(x)
		}
	}
}

// checkBreak: a connection breaks only if somebody broke it.
func (w *world) checkBreak(x *conn) {
	if x.err != nil && x.why == "" && !w.offBetween(x.opened, x.closed) {
		w.broken(x.c.name, "break", "#%d broke by itself: %v", x.n, x.err)
	}
}

// checkStatus: in a live session no status of an error is sent; a session of
// somebody else looks like one that never was (promise 7). It tells whether the
// answer is of a session.
func (w *world) checkStatus(x *conn) bool {
	ended := x.c.ended != nil && x.c.ended.at <= x.head.at || x.c.unsure
	ok := false
	switch {
	case x.o.expect == "none":
		ok = x.status == 200 || x.status == 503 || x.status == 202
	case x.o.expect == "gone":
		ok = x.status == 404 || x.c.unsure && x.o.who == x.c.who
	case ended && (x.status == 404 || x.status == 202):
		return false
	case x.o.method == http.MethodDelete:
		ok = x.status == 204
	case x.o.path != "/mcp":
		ok = x.status == 204
	case x.o.method == http.MethodGet:
		ok = x.status == 200 || x.status == 204
	case x.o.call != nil:
		ok = x.status == 200 || x.status == 202 && x.o.call.cancelled != nil
	default:
		ok = x.status == 202
	}
	if !ok {
		w.broken(x.c.name, "status", "#%d (%s) was answered %d %s", x.n, x.o.kind, x.status, x.body)
	}
	return x.o.expect != "gone" && x.status < 300
}

// checkJSON: an answer without a stream is the call's outcome.
func (w *world) checkJSON(x *conn) {
	k := x.o.call
	if x.c.ended != nil && x.c.ended.at <= x.closed.at {
		return // the session ended under it
	}
	if strings.Contains(x.body, `"code":-32000`) {
		w.checkRefused(x)
		return
	}
	for _, p := range w.pasts() {
		if e := p.outcome(); p.call == k && e != nil && e.data == x.body {
			return
		}
	}
	w.broken(x.c.name, "answer", "#%d is no outcome of %s: %s", x.n, k.key, x.body)
}

// checkRefused: what is refused is not executed, and there is a reason.
func (w *world) checkRefused(x *conn) {
	if !strings.Contains(x.body, `"limit":"session-max"`) && !strings.Contains(x.body, `"limit":"child-exits"`) && !w.offBetween(x.opened, x.closed) {
		w.broken(x.c.name, "refused", "#%d was refused without need: %s", x.n, x.body)
	}
}

// checkNothing: 204 is for a call that is over, or for a notice's own id.
func (w *world) checkNothing(x *conn) {
	if strings.HasSuffix(x.o.cursor, ".x") {
		return
	}
	c, ok := parseCursor(x.o.cursor)
	p := w.streamOf(x, c)
	if !ok || p == nil || p.endedAt == nil || p.endedAt.n > x.head.n {
		w.broken(x.c.name, "resume", "#%d from %s is told that nothing follows", x.n, w.place(x.o.cursor))
		return
	}
	v := &view{w: w, x: x, p: p}
	v.skipped(c.seq+1, uint64(len(p.events)), x.head, "where nothing is said to follow")
}

// streamOf is the stream a cursor names, if it is one of the client's session.
func (w *world) streamOf(x *conn, c cursor) *past {
	if p := w.hist.of(c.stream); p != nil && p.key.Session == x.c.sessionName() && p.events[0].at.n < max(x.head.n, x.closed.n) {
		return p
	}
	return nil
}

// view checks one stream answer, event by event.
type view struct {
	w    *world
	x    *conn
	p    *past
	at   uint64 // place reached
	told uint64 // the seq that a notice says comes next; 0: none

	alone bool // no other connection was on its stream
}

func (v *view) broken(check, format string, a ...any) {
	v.w.broken(v.x.c.name, check, "#%d (%s): "+format, append([]any{v.x.n, v.x.o.kind}, a...)...)
}

func (v *view) check() {
	x := v.x
	events := x.events
	primes := x.c.asked >= "2025-11-25"
	if primes {
		if len(events) == 0 {
			if x.err == nil {
				v.broken("priming", "ended without an event")
			}
			return
		}
		if !v.primed(events[0]) {
			return
		}
		events = events[1:]
	}
	if strings.HasSuffix(x.firstID(), ".x") {
		v.deadEnd(events)
		return
	}
	if !v.begin(primes) {
		return
	}
	for i := range events {
		if !v.event(&events[i], i) {
			return
		}
	}
	if x.err == nil {
		v.end()
	}
}

// primed checks the first event: an id that nobody had before, and no data.
func (v *view) primed(e seen) bool {
	if e.data != "" || e.id == "" {
		v.broken("priming", "begins with %s %s", e.id, short(e.data))
		return false
	}
	if v.w.ids[e.id] {
		v.broken("priming", "its id was there before: %s", e.id)
	}
	v.w.ids[e.id] = true
	return true
}

// deadEnd checks the answer to a cursor that leads nowhere.
func (v *view) deadEnd(events []seen) {
	x := v.x
	c, ok := parseCursor(x.o.cursor)
	p := v.w.streamOf(x, c)
	known := ok && p != nil
	if known && p.dropped == nil {
		v.broken("resume", "from %s, which is there, is told that it leads nowhere", v.w.place(x.o.cursor))
		return
	}
	if x.err != nil {
		return
	}
	want, reason := 1, "unknown"
	if known {
		want, reason = 2, "gone"
	}
	if known && len(events) == 1 && v.w.proven(p, x.opened) {
		return // the client has the outcome
	}
	if len(events) != want || !strings.Contains(events[0].data, `"reason":"`+reason+`"`) || !strings.HasSuffix(events[0].id, ".x") {
		v.broken("resume", "a cursor that is %s is answered by %v", reason, events)
		return
	}
	if known && p.call != nil && !strings.Contains(events[1].data, `"id":`+p.call.id+`,"error"`) {
		v.broken("resume", "a call that is gone ends with %s", events[1].data)
	}
}

// begin finds the stream and the place where the connection starts.
func (v *view) begin(primes bool) bool {
	x := v.x
	first, ok := parseCursor(x.firstID())
	if !ok {
		if x.firstID() != "" {
			v.broken("id", "%q is no event id", x.firstID())
		}
		return false
	}
	v.p = v.w.hist.of(first.stream)
	if v.p == nil || v.p.key.Session != x.c.sessionName() && x.o.expect == "live" {
		v.broken("crossing", "it is on a stream that is not the session's: %s", v.w.place(x.firstID()))
		return false
	}
	switch {
	case x.o.cursor != "":
		return v.beginAt(first, primes)
	case x.o.method == http.MethodGet:
		if !v.p.own {
			v.broken("stream", "a GET without a cursor is on %s", v.p.label())
		}
		if v.at = first.seq; !primes {
			v.at--
		}
		if g, told := gapIn(x.events[0].data); told {
			v.at = g.After
		}
		if most, sure := v.w.handed(x); sure && v.at > most {
			v.broken("handed", "begins after %d, but the client can only have up to %d", v.at, most)
		}
	default:
		v.at = 1
		if x.o.call != nil && v.p.call != x.o.call || primes && first.seq != 1 {
			v.broken("stream", "a request of %s is on %s", x.o.kind, v.w.place(x.firstID()))
		}
	}
	return true
}

// handed is how far the session's own stream may count as handed to the client
// when a connection opens: what a cursor said, and what went to a connection that
// lived through one more heartbeat. It is not sure where a client did not read.
func (w *world) handed(x *conn) (most uint64, sure bool) {
	const heartbeat = 15 * time.Second
	most = 1
	own := w.hist.of(x.stream())
	for _, y := range w.conns {
		if y.c != x.c || !y.mayJoin(own) || y.opened.n > x.head.n {
			continue
		}
		if !y.healthy() {
			return 0, false
		}
		if c, ok := parseCursor(y.o.cursor); ok {
			most = max(most, c.seq)
		}
		for _, e := range y.events {
			c, ok := parseCursor(e.id)
			if ok && e.data != "" && (y.closed.at-y.head.at)/heartbeat > (e.at.at-y.head.at)/heartbeat {
				most = max(most, c.seq)
			}
		}
	}
	return most, true
}

func (v *view) beginAt(first cursor, primes bool) bool {
	c, ok := parseCursor(v.x.o.cursor)
	if !ok || c.stream != first.stream {
		v.broken("resume", "from %s goes on at %s", v.w.place(v.x.o.cursor), v.w.place(v.x.firstID()))
		return false
	}
	common, holds := v.p.holds(c, v.x.head)
	if v.at = common; !holds && primes && first.seq >= v.p.topAt(v.x.opened) && first.seq < v.at {
		v.at = first.seq // more came while it was being answered
	}
	if primes && first.seq != v.at {
		v.broken("resume", "from %s is primed at %s", v.w.place(v.x.o.cursor), v.w.place(v.x.firstID()))
		return false
	}
	if !holds {
		return v.diverged(c, primes)
	}
	return true
}

// diverged checks that a cursor of another history is told so first.
func (v *view) diverged(c cursor, primes bool) bool {
	events := v.x.events
	if primes {
		events = events[1:]
	}
	if len(events) == 0 {
		if v.x.err == nil && !v.w.offBetween(v.x.opened, v.x.closed) {
			v.broken("gap", "a cursor that does not hold is told nothing")
		}
		return false
	}
	g, ok := gapIn(events[0].data)
	lost := c.seq - min(c.seq, v.at)
	if !ok || g.Reason != "store" || g.After != v.at || g.Lost < lost || g.Lost > lost+g.Next-g.After-1 {
		v.broken("gap", "a cursor at %d that holds up to %d is told %s", c.seq, v.at, events[0].data)
		return false
	}
	return true
}

// gapTold is a notice's data.
type gapTold struct {
	Stream, Reason    string
	After, Next, Lost uint64
}

// gapIn reads a gap notice.
func gapIn(data string) (gapTold, bool) {
	if !strings.HasPrefix(data, `{"jsonrpc":"2.0","method":"notifications/message","params":{`) {
		return gapTold{}, false
	}
	var m struct {
		Params struct {
			Logger string
			Data   struct{ Gap *gapTold }
		}
	}
	if strings.Contains(data, `"logger":"segno"`) && json.Unmarshal([]byte(data), &m) == nil && m.Params.Data.Gap != nil {
		return *m.Params.Data.Gap, true
	}
	return gapTold{}, false
}

// event checks one event against the history. False: what follows makes no
// sense any more.
func (v *view) event(e *seen, n int) bool {
	c, ok := parseCursor(e.id)
	if !ok || c.stream != v.p.key.Stream {
		v.broken("id", "event %d has the id %q", n, e.id)
		return false
	}
	if g, is := gapIn(e.data); is && c.again {
		return v.notice(e, c, g, n)
	}
	real := v.p.at(c.seq)
	switch {
	case c.again || e.data == "":
		v.broken("id", "event %d is %s %q", n, v.w.place(e.id), e.data)
		return false
	case c.seq <= v.at:
		v.broken("twice", "%s comes after %d", v.w.place(e.id), v.at)
		return false
	case real == nil || real.data != e.data || real.term != c.term || real.at.n > e.at.n:
		v.broken("content", "%s is %s in the history, the client got %s", v.w.place(e.id), textIn(real), short(e.data))
		return false
	case v.told != 0 && c.seq != v.told:
		v.broken("gap", "told that %d is next, %d came", v.told, c.seq)
	}
	v.skipped(v.at+1, c.seq-1, e.at, "before "+v.w.place(e.id))
	v.prompt(e, real)
	v.at, v.told = c.seq, 0
	return true
}

func textIn(e *entry) string {
	if e == nil {
		return "nothing"
	}
	return short(e.data)
}

// skipped checks that what was left out without a word needed none.
func (v *view) skipped(from, to uint64, at moment, where string) (silent uint64) {
	for seq := from; seq <= to; seq++ {
		e := v.p.at(seq)
		if e != nil && (e.kind == eventlog.Opening || e.kind == eventlog.End || v.settled(e, at)) {
			silent++
			continue
		}
		v.broken("hole", "event %d is missing %s, and nothing was told: %s", seq, where, textIn(e))
	}
	return silent
}

// settled tells whether a request of the server needed no answer any more.
func (v *view) settled(e *entry, at moment) bool {
	if e.kind != eventlog.Request {
		return false
	}
	w := v.w
	m, err := wire.Parse([]byte(e.data))
	if err != nil || v.x.o.policy == "error" {
		return true
	}
	if a := v.x.c.asks[string(m.IDText())]; a != nil && a.answered != nil && a.answered.at <= at.at {
		return true
	}
	for _, k := range w.kids {
		if k.client == v.x.c.name && k.gone != nil && k.gone.at <= at.at && k.gone.at >= e.at.at {
			return true
		}
	}
	if o := v.p.outcome(); o != nil && o.at.at <= at.at || v.p.endedAt != nil && v.p.endedAt.at <= at.at {
		return true
	}
	return w.offBetween(e.at, at) || at.at-e.at.at >= w.knobs.ask
}

// notice checks that a gap is told as it is.
func (v *view) notice(e *seen, c cursor, g gapTold, n int) bool {
	chained := v.told == 0 || g.After == v.told-1 // another reason, another notice
	if !chained || g.Stream != c.stream || g.Next != c.seq+1 || g.After < v.at || g.Next <= g.After {
		v.broken("gap", "at %d it is told %s with the id %s", v.at, e.data, v.w.place(e.id))
		return false
	}
	if c.seq > 0 && c.seq <= uint64(len(v.p.events)) && c.term != v.p.termAt(c.seq) {
		v.broken("id", "the notice's id %s has a term of another place", e.id)
	}
	v.at, v.told = c.seq, g.Next
	if v.p.topAt(e.at) < g.Next {
		v.told = 0 // nothing is there yet
	}
	if g.Reason == "store" {
		if n > 0 {
			v.broken("gap", "the store lost nothing: %s", e.data)
		}
		return true
	}
	v.lost(e, g)
	v.cause(e, g)
	return true
}

// lost checks the count, and that nothing is lost that must never be.
func (v *view) lost(e *seen, g gapTold) {
	asked := uint64(0)
	for seq := g.After + 1; seq < g.Next; seq++ {
		real := v.p.at(seq)
		if real == nil {
			v.broken("gap", "event %d never was, and is told as lost", seq)
			continue
		}
		switch {
		case real.kind == eventlog.Outcome:
			v.broken("gap", "the outcome is told as lost")
		case real.kind == eventlog.Request && !v.settled(real, e.at):
			v.broken("gap", "an open request of the server is told as lost: %s", real.data)
		case real.kind == eventlog.Request:
			asked++
		}
	}
	if span := g.Next - g.After - 1; g.Lost > span || g.Lost+asked < span {
		v.broken("gap", "between %d and %d it is told that %d are lost", g.After, g.Next, g.Lost)
	}
}

// cause: nothing is lost without a reason, and to a client that reads, nothing.
func (v *view) cause(e *seen, g gapTold) {
	k := v.w.knobs
	events, bytes := int64(0), 0
	for i := range v.p.events {
		if r := &v.p.events[i]; !eventlog.Pinned.Has(r.kind) && r.at.n < e.at.n {
			events++
			bytes += len(r.data)
		}
	}
	aged := v.p.endedAt != nil && e.at.at-v.p.endedAt.at >= k.retainAge-time.Second
	full := events > k.retainEvents || int64(bytes) > k.retainBytes || k.sessionMax > 0
	wanted := v.x.o.policy == "live" || v.x.o.policy == "error"
	if !aged && !full && !v.p.acked && !wanted {
		v.broken("gap", "nothing had to go, and it is told %s", e.data)
	}
	if g.Reason == "slow_reader" && !wanted && k.sessionMax == 0 && v.x.healthy() && v.alone && !v.p.acked {
		v.broken("overtaken", "a client that reads is told %s", e.data)
	}
}

// healthy: the client takes what comes as it comes.
func (x *conn) healthy() bool {
	return x.o.cut.how != "slow" && x.o.cut.how != "stall" && !x.frozen
}

// alone tells whether a connection had its stream for itself as long as it was
// there, but for older ones.
func (w *world) alone(x *conn) bool {
	p := w.hist.of(x.stream())
	for _, y := range w.conns {
		if y != x && y.c == x.c && y.opened.at >= x.opened.at && y.opened.at <= x.closed.at && y.mayJoin(p) {
			return false
		}
	}
	return true
}

// mayJoin tells whether a connection may have been on a stream, though its
// client never heard so.
func (x *conn) mayJoin(p *past) bool {
	if p == nil {
		return false
	}
	c, _ := parseCursor(x.o.cursor)
	own := p.own && x.o.method == http.MethodGet && x.o.cursor == ""
	return own || c.stream == p.key.Stream || x.o.call != nil && x.o.call == p.call
}

// prompt: what is logged is at the client at the same instant, unless somebody
// is in the way (promise 9, and no wake-up is lost).
func (v *view) prompt(e *seen, real *entry) {
	x := v.x
	if v.w.pebble || !x.healthy() || !v.alone || v.w.offBetween(real.at, e.at) {
		return
	}
	if due := max(real.at.at, x.head.at); e.at.at > due {
		v.broken("late", "%s was there at %v and came at %v", v.w.place(e.id), due, e.at.at)
	}
}

// end: a connection that ends cleanly has brought everything, unless it was
// one too many or Segno or the session ended.
func (v *view) end() {
	x := v.x
	if v.w.offBetween(x.opened, x.closed) || x.c.ended != nil && x.c.ended.at <= x.closed.at || v.w.retired(x) {
		return
	}
	if _, over := v.w.hist.ended[v.p.key.Session]; over && v.w.hist.ended[v.p.key.Session].at <= x.closed.at {
		return
	}
	if v.p.endedAt == nil || v.p.endedAt.n > x.closed.n {
		v.broken("end", "ended at %d though the stream had not", v.at)
		return
	}
	v.skipped(v.at+1, uint64(len(v.p.events)), x.closed, "at the end")
}

// retired tells whether there may have been too many connections to a stream.
func (w *world) retired(x *conn) bool {
	n := 0
	p := w.hist.of(x.stream())
	for _, y := range w.conns {
		if y != x && y.c == x.c && y.opened.at <= x.closed.at && y.opened.at >= x.opened.at && y.mayJoin(p) {
			n++
		}
	}
	return n > 2
}

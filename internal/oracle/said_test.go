package oracle

import (
	"cmp"
	"slices"
	"strings"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/wire"
)

// checkSaid compares the history with what the servers heard and said.
func (w *world) checkSaid() {
	openings := map[string][]*past{}
	for _, p := range w.pasts() {
		if p.call != nil {
			openings[p.call.key] = append(openings[p.call.key], p)
		}
		w.checkShape(p)
	}
	runs := map[string][]*run{}
	for _, k := range w.kids {
		for _, r := range k.runs() {
			runs[r.key] = append(runs[r.key], r)
		}
	}
	for _, c := range w.clients {
		for _, k := range c.calls {
			w.checkOnce(k, openings[k.key], runs[k.key])
			for p, r := range matched(openings[k.key], runs[k.key]) {
				w.checkOutcome(k, p, r)
				w.checkProgress(k, p, r)
			}
		}
		w.checkSpoken(c)
	}
	if len(runs["stolen"]) > 0 {
		w.broken("", "crossing", "a call in a session of somebody else was executed")
	}
	for _, k := range w.kids {
		w.checkCancels(k, openings, runs)
	}
}

// pasts are all streams, in the order they were opened.
func (w *world) pasts() []*past {
	w.hist.mu.Lock()
	defer w.hist.mu.Unlock()
	all := make([]*past, 0, len(w.hist.streams))
	for _, p := range w.hist.streams {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *past) int { return cmp.Compare(a.events[0].at.n, b.events[0].at.n) })
	return all
}

// matched finds for each stream the run that is its own: the requests go to the
// servers in the order of their streams.
func matched(openings []*past, runs []*run) map[*past]*run {
	of := map[*past]*run{}
	for _, p := range openings {
		of[p] = nil
	}
	for _, r := range runs {
		for _, p := range openings {
			late := p.endedAt != nil && p.endedAt.before(r.at)
			if of[p] == nil && p.events[0].at.n < r.at.n && !late {
				of[p] = r
				break
			}
		}
	}
	return of
}

// checkShape: a stream is an opening, anything, an outcome for each call unless
// it was cancelled, an end.
func (w *world) checkShape(p *past) {
	outcomes := 0
	for i, e := range p.events {
		switch {
		case (e.kind == eventlog.Opening) != (i == 0):
			w.broken(p.who(), "shape", "%s: event %d is of kind %d", p.label(), i+1, e.kind)
		case e.kind == eventlog.Outcome:
			outcomes++
		case outcomes > 0 && e.kind != eventlog.End && !strings.Contains(e.data, `"notifications/cancelled"`):
			w.broken(p.who(), "order", "%s: event %d comes after the outcome: %s", p.label(), i+1, e.data)
		case e.kind == eventlog.End && i < len(p.events)-1:
			w.broken(p.who(), "shape", "%s: event %d is an end with something behind it", p.label(), i+1)
		}
	}
	if p.dropped != nil && !w.proven(p, *p.dropped) && w.known(p) {
		w.broken(p.who(), "dropped", "%s is dropped, though a client can come for it and nothing proves that it has the outcome", p.label())
	}
	if outcomes > 1 {
		w.broken(p.who(), "outcome", "%s has %d outcomes", p.label(), outcomes)
	}
}

// known tells whether a client was given an id of a stream before it was dropped.
func (w *world) known(p *past) bool {
	return slices.ContainsFunc(w.conns, func(x *conn) bool {
		return x.stream() == p.key.Stream && len(x.events) > 0 && x.events[0].at.n < p.dropped.n
	})
}

// checkOnce: a call is executed once, and the same request again attaches to it
// (promise 3).
func (w *world) checkOnce(k *call, openings []*past, runs []*run) {
	if len(runs) > len(openings) || len(openings) > len(k.posts) {
		w.broken(k.c.name, "once", "%s was posted %d times, accepted %d times and executed %d times", k.key, len(k.posts), len(openings), len(runs))
	}
	if k.c.reuses() {
		return
	}
	if len(openings) == 1 && len(runs) == 1 && openings[0].endedAt != nil && openings[0].endedAt.before(runs[0].kid.heard[0].at) {
		w.broken(k.c.name, "cancel", "%s went to a server that started after its end", k.key)
	}
	for i := 1; i < len(openings); i++ {
		first, again := openings[i-1], openings[i]
		at := again.events[0].at
		switch {
		case first.endedAt == nil || at.before(*first.endedAt):
			w.broken(k.c.name, "repost", "%s was accepted again while it ran", k.key)
		case at.at-first.endedAt.at < w.knobs.repost && !w.proven(first, at) && w.knobs.sessionMax == 0:
			w.broken(k.c.name, "repost", "%s was executed again %v after its end, with its receipt unproven", k.key, at.at-first.endedAt.at)
		}
	}
}

// proven tells whether a client may have proven before that it has the outcome.
func (w *world) proven(p *past, before moment) bool {
	if p.acked {
		return true
	}
	for _, x := range w.conns {
		c, ok := parseCursor(x.o.cursor)
		if ok && c.stream == p.key.Stream && x.opened.n < before.n && int(c.seq) >= len(p.events)-1 {
			return true
		}
	}
	return false
}

// checkOutcome: the one outcome is the server's answer, or an error that is
// true.
func (w *world) checkOutcome(k *call, p *past, r *run) {
	e := p.outcome()
	var said *line
	if r != nil && r.answer >= 0 {
		said = &r.kid.said[r.answer]
	}
	switch {
	case e == nil && p.endedAt == nil:
		w.checkUnfinished(k, p)
	case e == nil:
		if k.cancelled == nil || p.endedAt.before(*k.cancelled) {
			w.broken(k.c.name, "outcome", "%s ended without one, and its client had not cancelled it", k.key)
		} else if said != nil && said.at.before(*k.cancelled) && said.at.before(*p.endedAt) {
			w.broken(k.c.name, "outcome", "%s has none, though the server answered before the cancel", k.key)
		}
	case said != nil && e.data == withID(said.msg, k.id):
	case said != nil && said.at.before(e.at) && !w.offBetween(said.at, e.at):
		w.broken(k.c.name, "outcome", "%s is %s, but the server said %s before", k.key, e.data, said.msg.Raw)
	default:
		w.checkError(k, p, r, e)
	}
}

func withID(m wire.Message, id string) string {
	return string(m.Raw[:m.ID.From]) + id + string(m.Raw[m.ID.To:])
}

// checkUnfinished: a call of a session that lives on has ended by now, unless
// it waits for ever by its nature.
func (w *world) checkUnfinished(k *call, p *past) {
	if k.c.ended != nil && k.c.ended.n < w.last.n {
		return
	}
	patient := k.tool == "hang" || k.tool == "ask"
	if c, ok := parseCursor(k.chain.last); patient && (!ok || c.stream != p.key.Stream) {
		return
	}
	if ended, ok := w.hist.ended[p.key.Session]; ok && ended.at-p.events[0].at.at < longest {
		return
	}
	w.broken(k.c.name, "outcome", "%s (%s) never ended", k.key, k.tool)
}

// checkError: an error that Segno gave is one that had to be given.
func (w *world) checkError(k *call, p *past, r *run, e *entry) {
	heard := r != nil
	switch {
	case strings.Contains(e.data, `"outcome":"not executed"`):
		if heard {
			w.broken(k.c.name, "outcome", "%s is said not to be executed, but server %d got it", k.key, r.kid.n)
		}
	case !strings.Contains(e.data, `"outcome":"unknown"`):
		w.broken(k.c.name, "outcome", "%s is nothing that the server said: %s", k.key, e.data)
	case strings.Contains(e.data, `"gap":{`):
		if !w.wantsError(p) {
			w.broken(k.c.name, "outcome", "%s ended for a gap that nobody wanted it to end for", k.key)
		}
	case strings.Contains(e.data, "nobody was connected"):
		if w.knobs.orphan == 0 || e.at.at-p.events[0].at.at < w.knobs.orphan || w.attended(p, e.at.at-w.knobs.orphan, e.at.at) {
			w.broken(k.c.name, "orphan", "%s was ended as an orphan at %v and was none", k.key, e.at.at)
		}
	default:
		gone := func(s *kid) bool {
			return s.client == k.c.name && s.gone != nil && s.gone.at <= e.at.at && s.gone.at >= p.events[0].at.at
		}
		if !slices.ContainsFunc(w.kids, gone) && !w.offBetween(p.events[0].at, e.at) {
			w.broken(k.c.name, "outcome", "%s is unknown, but nothing had happened: %s", k.key, e.data)
		}
	}
	if m, err := wire.Parse([]byte(e.data)); err != nil || string(m.IDText()) != k.id {
		w.broken(k.c.name, "outcome", "%s is answered for another id: %s", k.key, e.data)
	}
}

func (w *world) wantsError(p *past) bool {
	return slices.ContainsFunc(w.conns, func(x *conn) bool { return x.o.policy == "error" && x.mayJoin(p) })
}

// attended tells whether somebody was connected to a stream between two times,
// their instants not counted.
func (w *world) attended(p *past, from, to timeOf) bool {
	return slices.ContainsFunc(w.conns, func(x *conn) bool {
		return x.stream() == p.key.Stream && x.head.n > 0 && x.head.at < to && x.closed.at > from
	})
}

// checkProgress: what the server said before its answer stands before it, all
// of it, in its order.
func (w *world) checkProgress(k *call, p *past, r *run) {
	var have, said []string
	var sure int
	for _, e := range p.events {
		if e.kind == eventlog.Progress {
			have = append(have, e.data)
		}
	}
	if r != nil && k.token != "" {
		said, sure = w.progressOf(k, p, r)
	}
	for i, h := range have {
		if i >= len(said) || h != said[i] {
			w.broken(k.c.name, "progress", "%s: report %d of %d is %s, want one of %q", k.key, i+1, len(have), h, short(strings.Join(said, "\n")))
			return
		}
	}
	if len(have) < sure {
		w.broken(k.c.name, "progress", "%s: %d reports are in the stream, the server made %d", k.key, len(have), sure)
	}
}

// progressOf is what a server reported for a run before its answer, as the
// client shall see it, and how much of it must be there.
func (w *world) progressOf(k *call, p *past, r *run) (said []string, sure int) {
	upTo := len(r.kid.said)
	e := p.outcome()
	answered := r.answer >= 0 && e != nil && e.data == withID(r.kid.said[r.answer].msg, k.id)
	if answered {
		upTo = r.answer
	}
	for _, l := range r.kid.said[:upTo] {
		at, err := l.msg.Find("params", "progressToken")
		if l.msg.Method != wire.ProgressNote || err != nil || string(l.msg.Text(at)) != r.token {
			continue
		}
		said = append(said, string(l.msg.Raw[:at.From])+k.token+string(l.msg.Raw[at.To:]))
		over := p.endedAt != nil && !l.at.before(*p.endedAt)
		ended, dropped := w.hist.ended[p.key.Session]
		if answered || !over && !w.offAt(l.at) && !(dropped && !l.at.before(ended)) {
			sure = len(said)
		}
	}
	return said, sure
}

// checkCancels: a server is told of a cancel only where somebody wanted it
// (promise 4).
func (w *world) checkCancels(k *kid, openings map[string][]*past, runs map[string][]*run) {
	for _, l := range k.heard {
		if l.msg.Method != wire.Cancelled {
			continue
		}
		at, err := l.msg.Find("params", "requestId")
		if err != nil {
			continue
		}
		if !w.cancelWanted(k, l, string(l.msg.Text(at)), openings, runs) {
			w.broken(k.label, "cancel", "server %d got %s, which nobody asked for, or before what it cancels", k.n, l.msg.Raw)
		}
	}
}

func (w *world) cancelWanted(k *kid, l line, inner string, openings map[string][]*past, runs map[string][]*run) bool {
	for key, of := range runs {
		for _, r := range of {
			if r.kid != k || r.inner != inner || l.at.n < r.at.n {
				continue
			}
			for _, p := range openings[key] {
				e := p.outcome()
				if ended, over := w.hist.ended[p.key.Session]; over && ended.at >= r.at.at || p.call.cancelled != nil || e != nil && (strings.Contains(e.data, `"gap":{`) || strings.Contains(e.data, "nobody was connected")) {
					return true
				}
			}
		}
	}
	return false
}

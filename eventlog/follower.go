package eventlog

import "context"

// Gap says that events are gone: After is the last place before them, Next the
// seq of the event that follows, Lost how many are missing.
type Gap struct {
	After uint64
	Next  uint64
	Lost  uint64
}

// Step is what a follower has next: a gap, or else a page. A page without
// events means that nothing is there at the moment; if it is Ended, nothing
// will come any more.
type Step struct {
	Gap  *Gap
	Page Page
}

// Follower is a place in a stream that moves: it yields every kept event after
// it, once, in rising order, and a gap before each jump. It belongs to one
// goroutine and holds no events but the page it last returned.
type Follower struct {
	log  Reader
	key  Key
	at   uint64
	page Page // read, but a gap had to come first
	stop func()
}

// Follow starts after the given place. hint gets a value whenever Next may have
// more; it must have room for one.
func Follow(log Reader, k Key, after uint64, hint chan<- struct{}) *Follower {
	return &Follower{log: log, key: k, at: after, stop: log.Watch(k, hint)}
}

// At is the place the follower has reached.
func (f *Follower) At() uint64 { return f.at }

// Skip moves on to a later place without yielding what lies between.
func (f *Follower) Skip(to uint64) {
	if to > f.at {
		f.at, f.page = to, Page{}
	}
}

// Next returns what comes next and does not wait for it. max bounds the bytes
// of a page.
func (f *Follower) Next(ctx context.Context, max int) (Step, error) {
	p := f.page
	f.page = Page{}
	if len(p.Events) == 0 {
		var err error
		if p, err = f.log.Read(ctx, f.key, f.at, max); err != nil {
			return Step{}, err
		}
	}
	if len(p.Events) == 0 {
		return Step{Page: p}, nil
	}
	if first := p.Events[0].Seq; first != f.at+1 {
		gap := &Gap{After: f.at, Next: first, Lost: first - f.at - 1}
		f.at, f.page = first-1, p
		return Step{Gap: gap}, nil
	}
	n := 1
	for n < len(p.Events) && p.Events[n].Seq == p.Events[n-1].Seq+1 {
		n++
	}
	if n < len(p.Events) {
		f.page = p
		f.page.Events = p.Events[n:]
		p.Events = p.Events[:n]
	}
	f.at = p.Events[n-1].Seq
	return Step{Page: p}, nil
}

// Close ends the follower.
func (f *Follower) Close() { f.stop() }

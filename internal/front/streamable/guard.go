package streamable

import (
	"errors"
	"sync"
	"time"
)

// errCut says that an answer was ended from elsewhere.
var errCut = errors.New("the connection was cut")

// past is a deadline that ends a write at once.
var past = time.Unix(1, 0)

// guard sets the deadlines of an answer's writes. Others can end it by it while
// its own goroutine stands in a write.
type guard struct {
	mu      sync.Mutex
	set     func(time.Time) error // nil: the answer is over
	writing bool
	room    int64  // held of the budget for large pages
	why     string // not empty: it was cut
}

// until sets the deadline of the next write.
func (g *guard) until(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why != "" || g.set == nil {
		return errCut
	}
	return g.set(t)
}

// by is how the deadlines are set from now on.
func (g *guard) by(set func(time.Time) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.set = set; g.why != "" && set != nil {
		_ = set(past) // the next until says so too
	}
}

func (g *guard) writes(yes bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writing = yes
}

// hold changes what the answer holds for large pages, and returns what it held.
func (g *guard) hold(n int64) (before int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, g.room = g.room, n
	return before
}

// yield makes way for a newer connection to the stream: at once if this one is
// to end, and if it holds a large page, of which a stream needs but one.
func (g *guard) yield(retired bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.writing && (retired || g.room > 0) {
		g.end(whyRetired)
	}
}

// cut ends the answer wherever it is.
func (g *guard) cut(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(why)
}

func (g *guard) end(why string) {
	if g.why != "" || g.set == nil {
		return
	}
	g.why = why
	_ = g.set(past) // of a connection that is gone already there is nothing to end
}

// wasCut is why it was cut, empty if it was not.
func (g *guard) wasCut() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why
}

package remote

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Full jitter between nothing and a bound that doubles: clients that lost their
// server together come back apart.
const (
	backoffBase = 500 * time.Millisecond
	backoffCeil = 30 * time.Second
)

// maxRetry is the longest wait that a server can ask for on a stream.
const maxRetry = 5 * time.Minute

func jitter(failures int) time.Duration {
	bound := backoffCeil
	if failures < 6 {
		bound = backoffBase << failures
	}
	return rand.N(bound)
}

// errGaveUp says that the time to wait is over.
var errGaveUp = errors.New("no connection within the time to give up")

// sleep waits. false: ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// gate holds back everything while the server cannot be reached, so that an
// outage costs one attempt at a time however many requests wait.
type gate struct {
	log *slog.Logger

	mu     sync.Mutex
	fails  int
	epoch  int // rises with each failure that counts
	down   time.Time
	until  time.Time
	change chan struct{} // closed and replaced when the gate opens
}

func newGate(log *slog.Logger) *gate { return &gate{log: log, change: make(chan struct{})} }

// wait returns when an attempt may be made, with the epoch to report it by, or
// errGaveUp when deadline has passed.
func (g *gate) wait(ctx context.Context, deadline time.Time) (epoch int, err error) {
	for {
		g.mu.Lock()
		until, change, epoch := g.until, g.change, g.epoch
		g.mu.Unlock()
		now := time.Now()
		if !now.Before(until) {
			return epoch, ctx.Err()
		}
		if !now.Before(deadline) {
			return epoch, errGaveUp
		}
		t := time.NewTimer(min(until.Sub(now), deadline.Sub(now)))
		select {
		case <-t.C:
		case <-change:
		case <-ctx.Done():
		}
		t.Stop()
		if err := ctx.Err(); err != nil {
			return epoch, err
		}
	}
}

// failed closes the gate for a while, at least for as long as the server asks.
// Of attempts that were made together the first one counts.
func (g *gate) failed(epoch int, after time.Duration, why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if asked := now.Add(after); after > 0 && asked.After(g.until) {
		g.until = asked
	}
	if epoch != g.epoch {
		return
	}
	if g.fails == 0 {
		g.down = now
		g.log.Warn("the server cannot be reached, requests wait", "error", why)
	}
	g.epoch++
	if at := now.Add(after + jitter(g.fails)); at.After(g.until) {
		g.until = at
	}
	g.fails++
}

// passed opens the gate: the server answered an attempt that was made after the
// last failure.
func (g *gate) passed(epoch int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fails == 0 || epoch != g.epoch {
		return
	}
	g.log.Info("the server is reached again", "after", time.Since(g.down).Round(time.Millisecond))
	g.fails, g.until = 0, time.Time{}
	g.epoch++
	close(g.change)
	g.change = make(chan struct{})
}

// pace is when a stream is taken up again.
type pace struct {
	fails int // connections in a row that brought nothing new
	retry time.Duration
}

// next is how long to stay away: what the server asked for, and a jitter.
func (p *pace) next() time.Duration {
	d := p.retry + jitter(p.fails)
	p.fails++
	return d
}

// moved says that something new came. That a connection was made is not enough:
// a server that takes connections and says nothing would be asked at speed.
func (p *pace) moved() { p.fails = 0 }

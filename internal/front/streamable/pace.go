package streamable

import (
	"math/rand/v2"
	"time"

	"github.com/segno-mcp/segno/internal/quirks"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/sse"
	"github.com/segno-mcp/segno/internal/wire"
)

// raised is how much longer than usual a client shall stay away when this
// process is about to go. TypeScript clients survive an outage of twice the time.
const raised = 5

// storeAgain is how soon a store that took nothing is asked again.
const storeAgain = time.Second

// pace is when a connection says something without having anything to say, and
// when it ends.
type pace struct {
	heartbeat time.Duration
	retry     time.Duration // the floor; 0: this client takes no such line
	primes    bool          // this client takes an event that is only an id
	hasID     bool          // it was given one
	again     bool          // the store was away

	beatAt   time.Time
	rotateAt time.Time // zero: never
	leaveAt  time.Time // zero: not draining
}

// paceFor reads off what a client takes. What counts is the revision it asked
// for: it will treat what it gets by that one, whatever the server answered.
func (f *Front) paceFor(s *session.Session) pace {
	p := pace{heartbeat: f.o.Heartbeat, primes: wire.AtLeast(s.Asked(), wire.Rev2025)}
	name, _, agent := s.Client()
	if p.primes && !quirks.For(name, agent).Has(quirks.NoRetry) {
		p.retry = f.o.Retry
	}
	return p
}

func (p *pace) start(now time.Time, rotate time.Duration) {
	p.beatAt = now.Add(p.heartbeat)
	if rotate > 0 {
		// Connections opened together shall not end together, and none before its time.
		p.rotateAt = now.Add(rotate + rand.N(rotate/10+1))
	}
}

// greet appends the first bytes of a stream: proxies hold even the head back
// until there are some.
func (p *pace) greet(b []byte, primingID string) []byte {
	if !p.primes {
		return append(b, sse.Heartbeat...)
	}
	p.hasID = true
	return sse.AppendPriming(b, primingID, p.wait(1))
}

// wait is a retry time between one and one and a half times the floor, so that
// clients cut off together come back spread out. 0 means none.
func (p *pace) wait(times int) time.Duration {
	if p.retry <= 0 {
		return 0
	}
	floor := p.retry * time.Duration(times)
	return floor + rand.N(floor/2+1)
}

// goodbye is what stands before an end from this side.
func (p *pace) goodbye(why string) []byte {
	times := 1
	if why == whyDrained {
		times = raised
	}
	if d := p.wait(times); d > 0 {
		return sse.AppendRetry(nil, d)
	}
	return nil
}

// beats tells whether a heartbeat is due and reckons with it being sent.
func (p *pace) beats(now time.Time) bool {
	if now.Before(p.beatAt) {
		return false
	}
	p.beatAt = now.Add(p.heartbeat)
	return true
}

// drains sets the time to leave once the process is about to go.
func (p *pace) drains(going <-chan struct{}, now time.Time, spread time.Duration) {
	if !p.leaveAt.IsZero() {
		return
	}
	select {
	case <-going:
		p.leaveAt = now.Add(rand.N(spread + 1))
	default:
	}
}

// over tells whether it is time to go. A client without an id could not come
// back to where it was, so rotation spares it.
func (p *pace) over(now time.Time) string {
	switch {
	case !p.leaveAt.IsZero() && !now.Before(p.leaveAt):
		return whyDrained
	case !p.rotateAt.IsZero() && p.hasID && !now.Before(p.rotateAt):
		return whyRotated
	}
	return ""
}

// until is how long nothing is due.
func (p *pace) until(now time.Time) time.Duration {
	next := p.beatAt
	if !p.rotateAt.IsZero() && p.hasID && p.rotateAt.Before(next) {
		next = p.rotateAt
	}
	if !p.leaveAt.IsZero() && p.leaveAt.Before(next) {
		next = p.leaveAt
	}
	if p.again {
		p.again = false
		return min(storeAgain, next.Sub(now))
	}
	return next.Sub(now)
}

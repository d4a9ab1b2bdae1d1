package remote

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// errSilent says that a connection said nothing for longer than a living one
// would.
var errSilent = errors.New("the connection is silent for too long")

const (
	// segnoBeat is how often a Segno sends something if nobody told it otherwise.
	segnoBeat = 15 * time.Second
	// beatMax is the slowest heartbeat that is believed in.
	beatMax = 2 * time.Minute
	// resumable is how long a stream may be silent whose server sends no
	// heartbeats, if taking it up again costs nothing.
	resumable = 5 * time.Minute
	// headWait is how long a GET waits for an answer.
	headWait = time.Minute
)

// pulse is how often the server says something on a silent stream, as far as
// that is known. Any byte is a sign of life.
type pulse struct {
	mu    sync.Mutex
	fixed time.Duration // as the options say
	beat  time.Duration // 0: not known
	early time.Duration // the last one came much earlier, after so much time
}

// assume is what is believed before anything was heard.
func (p *pulse) assume(beat time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beat == 0 {
		p.beat = beat
	}
}

// heard takes note of a heartbeat that came after so much time.
func (p *pulse) heard(after time.Duration) {
	if after = min(after, beatMax); after < time.Second {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.beat == 0 || after >= p.beat:
		p.beat, p.early = after, 0
	case after > p.beat/2:
		p.early = 0
	case p.early == 0:
		// One that came early says little.
		p.early = after
	default:
		p.beat, p.early = max(after, p.early), 0
	}
}

// silent takes note that a connection was taken for dead. If it was not, the
// next one gets more time.
func (p *pulse) silent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beat = min(2*p.beat, beatMax)
}

// limit is how long a connection may be silent; 0: for ever.
func (p *pulse) limit(cursor bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	beat := p.beat
	if p.fixed > 0 {
		beat = p.fixed
	}
	switch {
	case beat > 0:
		return beat * 5 / 2
	case cursor:
		return resumable
	}
	return 0
}

// watched is a body that is cut off when it is silent while somebody reads it.
type watched struct {
	body  io.Reader
	limit func() time.Duration
	cut   func()
	timer *time.Timer
	quiet atomic.Bool
}

func watch(body io.Reader, limit func() time.Duration, cut func()) *watched {
	w := &watched{body: body, limit: limit, cut: cut}
	w.timer = time.AfterFunc(time.Hour, w.silent)
	w.timer.Stop()
	return w
}

func (w *watched) silent() {
	w.quiet.Store(true)
	w.cut()
}

func (w *watched) Read(p []byte) (int, error) {
	if d := w.limit(); d > 0 {
		w.timer.Reset(d)
	}
	n, err := w.body.Read(p)
	w.timer.Stop()
	if err != nil && w.quiet.Load() {
		err = errSilent
	}
	return n, err
}

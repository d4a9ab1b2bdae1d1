package wire

import (
	"bytes"
	"context"
	"sync"
)

// pairRoom is how many bytes may wait in one direction of a pair; a longer
// message goes through when nothing else waits.
const pairRoom = 1 << 20

// Pair is two ends of a connection in memory. Messages are checked by the
// sender: what is not one comes back from Send as an *Error. What was sent
// before the other end closed can still be received.
func Pair() (Conn, Conn) {
	ab, ba := newLane(), newLane()
	return &end{in: ba, out: ab}, &end{in: ab, out: ba}
}

type end struct {
	in, out *lane
}

func (e *end) Send(ctx context.Context, msg []byte) error {
	m, err := Parse(bytes.Clone(msg))
	if err != nil {
		return err
	}
	return e.out.put(ctx, m)
}

func (e *end) Recv(ctx context.Context) ([]Message, error) { return e.in.take(ctx) }

func (e *end) Close() error {
	e.in.end("closed here")
	e.out.end("closed by the other side")
	return nil
}

// lane is one direction of a pair.
type lane struct {
	mu      sync.Mutex
	waiting []Message
	taken   []Message // what the receiver holds; reused at its next call
	bytes   int
	reason  string        // not empty: nothing more comes
	change  chan struct{} // closed and replaced whenever anything above changes
}

func newLane() *lane { return &lane{change: make(chan struct{})} }

// changed wakes everybody who waits. The caller holds mu.
func (l *lane) changed() {
	close(l.change)
	l.change = make(chan struct{})
}

func (l *lane) put(ctx context.Context, m Message) error {
	for {
		l.mu.Lock()
		if l.reason != "" {
			l.mu.Unlock()
			return &Gone{Reason: l.reason}
		}
		if l.bytes == 0 || l.bytes+len(m.Raw) <= pairRoom {
			l.waiting = append(l.waiting, m)
			l.bytes += len(m.Raw)
			l.changed()
			l.mu.Unlock()
			return nil
		}
		change := l.change
		l.mu.Unlock()
		if err := wait(ctx, change); err != nil {
			return err
		}
	}
}

func (l *lane) take(ctx context.Context) ([]Message, error) {
	for {
		l.mu.Lock()
		if len(l.waiting) > 0 {
			clear(l.taken)
			l.waiting, l.taken = l.taken[:0], l.waiting
			l.bytes = 0
			l.changed()
			l.mu.Unlock()
			return l.taken, nil
		}
		if l.reason != "" {
			l.mu.Unlock()
			return nil, &Gone{Reason: l.reason}
		}
		change := l.change
		l.mu.Unlock()
		if err := wait(ctx, change); err != nil {
			return nil, err
		}
	}
}

func wait(ctx context.Context, change <-chan struct{}) error {
	select {
	case <-change:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lane) end(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason == "" {
		l.reason = reason
		l.changed()
	}
}

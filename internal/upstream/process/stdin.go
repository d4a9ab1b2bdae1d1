package process

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/segno-mcp/segno/internal/wire"
)

// stdin is the child's input: a queue bounded in bytes, and one goroutine that
// writes. Only whole lines enter the queue, so whoever gives up waiting leaves
// nothing behind, and no two messages can mix.
type stdin struct {
	w       io.WriteCloser
	room    *semaphore.Weighted // bytes, given out in the order of asking
	limit   int64
	timeout time.Duration
	stuck   func() // nothing was read for timeout
	broken  func() // the other end is closed

	life context.Context // ends when nothing is written any more
	die  context.CancelFunc
	wake chan struct{}

	mu      sync.Mutex
	queue   []byte
	taken   int64 // of room, by what is in queue
	closing bool
}

// piece is what is written at a time: a child that takes less within the write
// timeout counts as stuck.
const piece = 16 << 10

// keepQueue is the largest buffer that is kept for the next messages.
const keepQueue = 256 << 10

var errInputClosed = errors.New("its input is closed")

func newStdin(w io.WriteCloser, o *Options, stuck, broken func()) *stdin {
	s := &stdin{
		w: w, limit: int64(o.SendQueue), room: semaphore.NewWeighted(int64(o.SendQueue)),
		timeout: o.WriteTimeout, stuck: stuck, broken: broken, wake: make(chan struct{}, 1),
	}
	s.life, s.die = context.WithCancel(context.Background())
	return s
}

// send puts one message into the queue; ctx bounds the wait for room. A message
// larger than the queue waits until it has the queue for itself.
func (s *stdin) send(ctx context.Context, msg []byte) error {
	need := min(int64(len(msg))+1, s.limit)
	if !s.room.TryAcquire(need) {
		if err := s.wait(ctx, need); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.life.Err() != nil {
		s.room.Release(need)
		return errInputClosed
	}
	s.queue = wire.AppendLine(s.queue, msg)
	s.taken += need
	s.poke()
	return nil
}

func (s *stdin) wait(ctx context.Context, need int64) error {
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	if s.room.Acquire(both, need) == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errInputClosed
}

func (s *stdin) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// finish lets what is queued be written and then closes the child's input.
func (s *stdin) finish() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.poke()
}

// abort closes the child's input at once, also under a write that hangs.
func (s *stdin) abort() {
	s.die()
	s.w.Close()
}

// run writes until the input is closed from either side.
func (s *stdin) run() {
	defer s.abort()
	var spare []byte
	for {
		select {
		case <-s.wake:
		case <-s.life.Done():
			return
		}
		batch, taken, last := s.take(spare)
		if err := s.write(batch); err != nil {
			if s.life.Err() == nil {
				s.broken()
			}
			return
		}
		s.room.Release(taken)
		if last {
			return
		}
		if spare = batch[:0]; cap(spare) > keepQueue {
			spare = nil
		}
	}
}

func (s *stdin) take(spare []byte) (batch []byte, taken int64, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch, taken = s.queue, s.taken
	s.queue, s.taken = spare, 0
	return batch, taken, s.closing
}

// write uses a timer and not a write deadline, which pipes on Windows lack.
func (s *stdin) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	timer := time.AfterFunc(s.timeout, s.stuck)
	defer timer.Stop()
	for len(b) > 0 {
		n, err := s.w.Write(b[:min(piece, len(b))])
		if err != nil {
			return err
		}
		b = b[n:]
		timer.Reset(s.timeout)
	}
	return nil
}

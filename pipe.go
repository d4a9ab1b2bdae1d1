package segno

import (
	"io"
	"sync"
)

// pipeRoom is how many bytes a function may leave unread before whoever writes
// to it waits. A function that works on one message at a time must not hold up
// those who bring the next.
const pipeRoom = 1 << 20

// pipe is a pipe in memory with room in it. Reading and writing may go on at
// the same time, each by one goroutine at a time.
type pipe struct {
	mu     sync.Mutex
	change *sync.Cond
	b      []byte
	end    error // what a reader gets when all is read; nil: not at its end
	broken error // what a writer gets; nil: somebody still reads
}

func newPipe() *pipe {
	p := &pipe{}
	p.change = sync.NewCond(&p.mu)
	return p
}

// writeEnd is the pipe as its writer sees it: closing it is the reader's end
// of input.
type writeEnd struct{ *pipe }

func (w writeEnd) Close() error { return w.finish(io.EOF, io.ErrClosedPipe) }

// finish ends both directions, each with its own error.
func (p *pipe) finish(reader, writer error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end = reader
	}
	if p.broken == nil {
		p.broken = writer
	}
	p.change.Broadcast()
	return nil
}

// Write takes all of b, waiting for room if more than one piece is unread.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.broken == nil && len(p.b) > 0 && len(p.b)+len(b) > pipeRoom {
		p.change.Wait()
	}
	if p.broken != nil {
		return 0, p.broken
	}
	p.b = append(p.b, b...)
	p.change.Broadcast()
	return len(b), nil
}

// Read waits for bytes or the end.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.b) == 0 && p.end == nil {
		p.change.Wait()
	}
	if len(p.b) == 0 {
		return 0, p.end
	}
	n := copy(b, p.b)
	if p.b = p.b[n:]; len(p.b) == 0 {
		p.b = nil
	}
	p.change.Broadcast()
	return n, nil
}

// Close is what the reader does when it wants no more.
func (p *pipe) Close() error { return p.finish(io.ErrClosedPipe, io.ErrClosedPipe) }

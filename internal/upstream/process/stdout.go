package process

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipe is the parent's end of stdout: what os.File is on Unix.
type pipe interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
}

// stdout is the child's output as a reader that can be interrupted. Once the
// child is dead, drain takes what the pipe still holds into memory and closes
// it: messages read late are not lost, and a caller that never reads again
// keeps no file open.
type stdout struct {
	max int // bytes that drain may take

	mu     sync.Mutex // held while reading
	pipe   pipe
	rest   []byte
	closed bool

	dl    sync.Mutex
	until time.Time // drain's limit for reads of the pipe
}

// Read returns os.ErrDeadlineExceeded when it was interrupted, and can then be
// called again.
func (o *stdout) Read(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.rest) > 0 {
		n := copy(p, o.rest)
		o.rest = o.rest[n:]
		return n, nil
	}
	if o.closed {
		o.rest = nil
		return 0, io.EOF
	}
	n, err := o.pipe.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		o.close()
		err = io.EOF
	}
	return n, err
}

// interrupt ends a Read that waits; resume allows the next one.
func (o *stdout) interrupt() { o.deadline(time.Unix(1, 0)) }
func (o *stdout) resume()    { o.deadline(o.limit()) }

func (o *stdout) limit() time.Time {
	o.dl.Lock()
	defer o.dl.Unlock()
	return o.until
}

func (o *stdout) deadline(t time.Time) { o.pipe.SetReadDeadline(t) }

// drain reads until the output ends, or returns false when d has passed.
func (o *stdout) drain(d time.Duration) (ended bool) {
	end := time.Now().Add(d)
	o.dl.Lock()
	o.until = end
	o.dl.Unlock()
	o.deadline(end)
	buf := make([]byte, 64<<10)
	for o.drainOnce(buf, end) {
	}
	// While the deadline is past no Read holds the lock for long; without one it
	// may for ever.
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dl.Lock()
	o.until = time.Time{}
	o.dl.Unlock()
	o.resume()
	return o.closed
}

// drainOnce lets a Read in between, which takes rest first: the order stays.
func (o *stdout) drainOnce(buf []byte, end time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.rest) >= o.max || !time.Now().Before(end) {
		return false
	}
	o.deadline(end) // an interrupt may have moved it
	n, err := o.pipe.Read(buf)
	o.rest = append(o.rest, buf[:n]...)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		o.close()
	}
	return true
}

// end closes the output, whoever else still holds it.
func (o *stdout) end() {
	o.interrupt()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.close()
}

func (o *stdout) close() {
	if !o.closed {
		o.closed = true
		o.pipe.Close()
	}
}

// pumped gives a file that knows no deadlines one that does: a goroutine copies
// it into an in-memory pipe. It ends with the file, or when a copy finds the
// pipe closed.
func pumped(f io.ReadCloser) pipe {
	read, write := net.Pipe()
	go func() {
		defer f.Close()
		defer write.Close()
		_, _ = io.Copy(write, f)
	}()
	return read
}

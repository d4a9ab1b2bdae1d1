package wire

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// closeWait bounds how long Close waits for a read that does not end when its
// file is closed, as one of a terminal may not.
const closeWait = time.Second

// NewLineConn is a connection that reads one message a line from in and writes
// one message a line to out: stdio from the server's side. Close closes both.
// Lines that are no message go to opt.Bad, see Lines.
func NewLineConn(in io.ReadCloser, out io.WriteCloser, opt LineOptions) Conn {
	c := &lineConn{
		in: in, out: out,
		batch: make(chan []Message), next: make(chan struct{}),
		turn: make(chan struct{}, 1), gone: make(chan struct{}), done: make(chan struct{}),
	}
	go c.read(NewLines(in, opt))
	return c
}

type lineConn struct {
	in    io.ReadCloser
	out   io.WriteCloser
	batch chan []Message
	next  chan struct{} // Recv is through with the last batch
	turn  chan struct{} // holds a value while somebody writes
	line  []byte        // reused by the writer
	lent  bool          // a batch is with the caller of Recv
	gone  chan struct{} // closed by Close
	done  chan struct{} // closed when reading has ended
	end   Gone          // set before done is closed
	close sync.Once
}

func (c *lineConn) read(lines *Lines) {
	defer close(c.done)
	for {
		msgs, err := lines.Next()
		if err != nil {
			c.end.Reason = reason(err)
			return
		}
		select {
		case c.batch <- msgs:
		case <-c.gone:
			c.end.Reason = "closed here"
			return
		}
		select {
		case <-c.next:
		case <-c.gone:
			c.end.Reason = "closed here"
			return
		}
	}
}

func reason(err error) string {
	if errors.Is(err, io.EOF) {
		return "end of input"
	}
	return err.Error()
}

func (c *lineConn) Recv(ctx context.Context) ([]Message, error) {
	if c.lent {
		c.lent = false
		select {
		case c.next <- struct{}{}:
		case <-c.done:
		}
	}
	select {
	case msgs := <-c.batch:
		c.lent = true
		return msgs, nil
	case <-c.done:
		return nil, &c.end
	case <-c.gone:
		return nil, &Gone{Reason: "closed here"}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Send waits for its turn, then writes the whole line whatever happens to ctx.
func (c *lineConn) Send(ctx context.Context, msg []byte) error {
	select {
	case c.turn <- struct{}{}:
	case <-c.gone:
		return &Gone{Reason: "closed here"}
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.turn }()
	c.line = AppendLine(c.line[:0], msg)
	_, err := c.out.Write(c.line)
	if cap(c.line) > lineUsual {
		c.line = nil
	}
	if err != nil {
		return &Gone{Reason: err.Error()}
	}
	return nil
}

func (c *lineConn) Close() error {
	var err error
	c.close.Do(func() {
		close(c.gone)
		err = errors.Join(c.out.Close(), c.in.Close())
	})
	wait := time.NewTimer(closeWait)
	defer wait.Stop()
	select {
	case <-c.done:
	case <-wait.C:
	}
	return err
}

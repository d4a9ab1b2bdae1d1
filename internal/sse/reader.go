package sse

import "io"

const readBuffer = 64 << 10

// Reader takes events from an io.Reader, such as a response's body. Its parser
// tells the last id and the retry time, also after the end.
type Reader struct {
	Parser
	from io.Reader
	buf  []byte
}

// NewReader reads from r, which it never closes.
func NewReader(r io.Reader) *Reader {
	return &Reader{from: r, buf: make([]byte, readBuffer)}
}

// Next waits for the next event. At the end of the stream it returns the
// reader's error, io.EOF included; what is not complete then is dropped.
func (r *Reader) Next() (Event, error) {
	for {
		if e, ok := r.Parser.Next(); ok {
			return e, nil
		}
		n, err := r.from.Read(r.buf)
		if n > 0 {
			r.Feed(r.buf[:n])
			if e, ok := r.Parser.Next(); ok {
				return e, nil
			}
		}
		if err != nil {
			return Event{}, err
		}
	}
}

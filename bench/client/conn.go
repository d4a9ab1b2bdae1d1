package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// patience is how long a connection may be silent before the client gives up.
const patience = 60 * time.Second

// Conn is one keep-alive HTTP/1.1 connection with one exchange at a time.
type Conn struct {
	net  net.Conn
	buf  []byte
	r, w int
}

// Head is what the client reads of an answer's head.
type Head struct {
	Status  int
	Session string // Mcp-Session-Id
	length  int    // of the body; negative: chunked
}

// errEnough says that the sink wanted no more; the connection is of no use then.
var errEnough = errors.New("enough was read")

// Open connects to host:port.
func Open(addr string) (*Conn, error) {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &Conn{net: c}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.net.Close() }

// Send writes a request. Nothing is read.
func (c *Conn) Send(request []byte) error {
	_, err := c.net.Write(request)
	return err
}

// Do sends a request, reads the answer's head and hands the body to sink as it
// comes, until it ends or sink returns false. The bytes are lent for the call.
func (c *Conn) Do(request []byte, sink func([]byte) bool) (Head, error) {
	if err := c.Send(request); err != nil {
		return Head{}, err
	}
	h, err := c.ReadHead()
	if err != nil {
		return h, fmt.Errorf("reading an answer's head: %w", err)
	}
	return h, c.body(h, sink)
}

// ReadHead reads an answer up to its body.
func (c *Conn) ReadHead() (Head, error) {
	if c.buf == nil {
		c.buf = make([]byte, 4<<10)
	}
	line, err := c.line()
	if err != nil {
		return Head{}, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return Head{}, fmt.Errorf("not an HTTP answer: %.40q", line)
	}
	h := Head{}
	h.Status, _ = strconv.Atoi(string(line[9:12]))
	for {
		if line, err = c.line(); err != nil || len(line) == 0 {
			return h, err
		}
		key, value, _ := bytes.Cut(line, []byte(":"))
		h.note(key, bytes.TrimSpace(value))
	}
}

func (h *Head) note(key, value []byte) {
	switch {
	case is(key, "content-length"):
		h.length, _ = strconv.Atoi(string(value))
	case is(key, "transfer-encoding"):
		h.length = -1
	case is(key, "mcp-session-id"):
		h.Session = string(value)
	}
}

// is avoids what EqualFold spends on keys of another length.
func is(key []byte, name string) bool {
	return len(key) == len(name) && bytes.EqualFold(key, []byte(name))
}

func (c *Conn) body(h Head, sink func([]byte) bool) error {
	if h.length >= 0 {
		return c.pass(h.length, sink)
	}
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		n, err := hex(line)
		if err != nil {
			return err
		}
		if n > 0 {
			err = c.pass(n, sink)
		}
		if err != nil {
			return err
		}
		if line, err = c.line(); err != nil || len(line) != 0 {
			return errors.Join(err, fmt.Errorf("reading a chunk's end: %.40q", line))
		}
		if n == 0 {
			return nil
		}
	}
}

func hex(line []byte) (int, error) {
	n := 0
	for _, d := range line {
		switch {
		case d >= '0' && d <= '9':
			n = n<<4 | int(d-'0')
		case d >= 'a' && d <= 'f':
			n = n<<4 | int(d-'a'+10)
		default:
			return 0, fmt.Errorf("not the size of a chunk: %.40q", line)
		}
	}
	return n, nil
}

func (c *Conn) pass(n int, sink func([]byte) bool) error {
	for n > 0 {
		if c.r == c.w {
			if err := c.fill(); err != nil {
				return err
			}
		}
		k := min(n, c.w-c.r)
		if !sink(c.buf[c.r : c.r+k]) {
			return errEnough
		}
		c.r, n = c.r+k, n-k
	}
	return nil
}

func (c *Conn) line() ([]byte, error) {
	for from := c.r; ; {
		if i := bytes.IndexByte(c.buf[from:c.w], '\n'); i >= 0 {
			line := c.buf[c.r : from+i]
			c.r = from + i + 1
			return bytes.TrimSuffix(line, []byte("\r")), nil
		}
		seen := c.w - c.r
		if err := c.fill(); err != nil {
			return nil, err
		}
		from = c.r + seen
	}
}

// fill reads what is there. The buffer grows only for a connection that has
// much to say, so that thousands of idle ones cost the harness little.
func (c *Conn) fill() error {
	if c.r > 0 {
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	if c.w == len(c.buf) {
		c.buf = append(c.buf, make([]byte, max(256<<10, len(c.buf)))...)
	}
	c.net.SetReadDeadline(time.Now().Add(patience))
	n, err := c.net.Read(c.buf[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

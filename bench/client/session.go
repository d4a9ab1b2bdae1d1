package client

import (
	"errors"
	"fmt"
	"strconv"
)

// Session is a client's side of an MCP session with one call at a time.
type Session interface {
	// Call calls a tool with arguments in JSON and hands the bytes that come
	// back to sink, until the answer ends. The bytes are lent for the call.
	Call(tool, args string, progress bool, sink func([]byte) bool) error
	Close() error
}

// Revision is the protocol revision every session asks for.
const Revision = "2025-11-25"

const (
	initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + Revision +
		`","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// HTTP is a session over Streamable HTTP on one connection.
type HTTP struct {
	ID   string // the session's
	conn *Conn
	addr string
	next int
	body []byte
	buf  []byte
}

// Path is where every measured subject serves MCP.
const Path = "/mcp"

// Dial opens a session at host:port.
func Dial(addr string) (*HTTP, error) {
	s, err := At(addr)
	if err != nil {
		return nil, err
	}
	if err := s.handshake(); err != nil {
		s.Close()
		return nil, fmt.Errorf("initializing a session: %w", err)
	}
	return s, nil
}

func (s *HTTP) handshake() error {
	h, err := s.conn.Do(s.post([]byte(initialize)), ignore)
	if err != nil {
		return err
	}
	if h.Status != 200 {
		return fmt.Errorf("status %d", h.Status)
	}
	s.ID = h.Session
	_, err = s.conn.Do(s.post([]byte(initialized)), ignore)
	return err
}

// At is a connection without a session, for servers that know none.
func At(addr string) (*HTTP, error) {
	conn, err := Open(addr)
	if err != nil {
		return nil, err
	}
	return &HTTP{conn: conn, addr: addr}, nil
}

// Join is one more connection of the same session. Ids of calls start at first.
func (s *HTTP) Join(first int) (*HTTP, error) {
	c, err := At(s.addr)
	if err != nil {
		return nil, err
	}
	c.ID, c.next = s.ID, first
	return c, nil
}

// Close ends the connection, not the session.
func (s *HTTP) Close() error { return s.conn.Close() }

// Call implements Session.
func (s *HTTP) Call(tool, args string, progress bool, sink func([]byte) bool) error {
	h, err := s.conn.Do(s.request(tool, args, progress), sink)
	if err != nil {
		return fmt.Errorf("calling %s: %w", tool, err)
	}
	if h.Status != 200 {
		return fmt.Errorf("calling %s: status %d", tool, h.Status)
	}
	return nil
}

// Post sends a call and reads no byte of the answer.
func (s *HTTP) Post(tool, args string) error { return s.conn.Send(s.request(tool, args, true)) }

func (s *HTTP) request(tool, args string, progress bool) []byte {
	s.next++
	s.body = appendCall(s.body[:0], s.next, tool, args, progress)
	return s.post(s.body)
}

func (s *HTTP) post(body []byte) []byte {
	b := s.head(s.buf[:0], "POST")
	b = append(b, "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	s.buf = append(b, body...)
	return s.buf
}

func (s *HTTP) head(b []byte, method string) []byte {
	b = append(b, method+" "+Path+" HTTP/1.1\r\nHost: "...)
	b = append(b, s.addr...)
	b = append(b, "\r\n"...)
	if s.ID != "" {
		b = append(b, "MCP-Protocol-Version: "+Revision+"\r\nMcp-Session-Id: "...)
		b = append(b, s.ID...)
		b = append(b, "\r\n"...)
	}
	return b
}

// Listen opens the session's own stream on the connection and leaves it open.
func (s *HTTP) Listen() error {
	if err := s.conn.Send(s.get("")); err != nil {
		return err
	}
	h, err := s.conn.ReadHead()
	if err == nil && h.Status != 200 {
		err = fmt.Errorf("status %d", h.Status)
	}
	return err
}

// Resume reads on after an event id, until sink returns false or the stream ends.
func (s *HTTP) Resume(after string, sink func([]byte) bool) error {
	h, err := s.conn.Do(s.get(after), sink)
	if err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("resuming: %w", err)
	}
	if h.Status != 200 {
		return fmt.Errorf("resuming: status %d", h.Status)
	}
	return nil
}

func (s *HTTP) get(after string) []byte {
	b := append(s.head(nil, "GET"), "Accept: text/event-stream\r\n"...)
	if after != "" {
		b = append(b, "Last-Event-ID: "+after+"\r\n"...)
	}
	return append(b, "\r\n"...)
}

// appendCall appends a tools/call. The token is the id, as SDKs do it.
func appendCall(b []byte, id int, tool, args string, progress bool) []byte {
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendInt(b, int64(id), 10)
	b = append(b, `,"method":"tools/call","params":{"name":"`...)
	b = append(b, tool...)
	b = append(b, `","arguments":`...)
	b = append(b, args...)
	if progress {
		b = append(b, `,"_meta":{"progressToken":`...)
		b = strconv.AppendInt(b, int64(id), 10)
		b = append(b, '}')
	}
	return append(b, "}}"...)
}

func ignore([]byte) bool { return true }

package client

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
)

// Stdio is a session over the pipes of a child: the shortest way there is.
type Stdio struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	buf  []byte
	next int
}

// Start starts the server and initializes the session.
func Start(argv ...string) (*Stdio, error) {
	s := &Stdio{cmd: exec.Command(argv[0], argv[1:]...), buf: make([]byte, 256<<10)}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if s.out, err = s.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err = s.cmd.Start(); err != nil {
		return nil, err
	}
	if err = s.exchange([]byte(initialize+"\n"), ignore); err == nil {
		_, err = s.in.Write([]byte(initialized + "\n"))
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("initializing a session over stdio: %w", err)
	}
	return s, nil
}

// Close ends the server and waits for it.
func (s *Stdio) Close() error {
	s.in.Close()
	io.Copy(io.Discard, s.out)
	return s.cmd.Wait()
}

// Call implements Session.
func (s *Stdio) Call(tool, args string, progress bool, sink func([]byte) bool) error {
	s.next++
	return s.exchange(append(appendCall(nil, s.next, tool, args, progress), '\n'), sink)
}

var responsePrefix = []byte(`{"jsonrpc":"2.0","id":`)

// exchange reads until the one response: of progress, the tool never writes an id.
func (s *Stdio) exchange(request []byte, sink func([]byte) bool) error {
	if _, err := s.in.Write(request); err != nil {
		return err
	}
	var l lines
	for done := false; !done; {
		n, err := s.out.Read(s.buf)
		if err != nil {
			return fmt.Errorf("reading from the server: %w", err)
		}
		sink(s.buf[:n])
		l.feed(s.buf[:n], func(b []byte) { done = done || bytes.Contains(b, responsePrefix) })
	}
	return nil
}

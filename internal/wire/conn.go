package wire

import "context"

// Conn is a connection on which MCP messages come and go, whatever carries
// them. One goroutine receives; any number may send.
type Conn interface {
	// Send hands over one message, whole or not at all. It returns when the
	// carrier has taken it; ctx bounds the wait for room, never a half-written
	// message. The message is not kept after the return.
	Send(ctx context.Context, msg []byte) error
	// Recv waits for messages and returns at least one, all that are there,
	// up to a batch. They are valid until the next call. When the connection
	// has ended, and all that came before was returned, the error is a *Gone.
	Recv(ctx context.Context) ([]Message, error)
	// Close ends the connection and what is behind it, and waits for that,
	// in bounded time. It may be called twice and from anywhere.
	Close() error
}

// Gone says why a connection ended: Reason for people ("exit status 1"), Tail
// the last the other side said on its error channel, if it has one.
type Gone struct {
	Reason string
	Tail   string
}

func (g *Gone) Error() string { return "the MCP server is gone: " + g.Reason }

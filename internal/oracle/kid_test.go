package oracle

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/segno-mcp/segno/internal/fakemcp"
	"github.com/segno-mcp/segno/internal/wire"
)

// kid is one MCP server behind Segno, with all that it heard and said. It is a
// wire.Conn: the server's end of its connection.
type kid struct {
	w      *world
	n      int
	label  string
	conn   wire.Conn
	server *fakemcp.Server

	sending sync.Mutex // what is noted as said stands in the order it was sent
	mu      sync.Mutex
	heard   []line
	said    []line
	client  string  // the name in the initialize it got
	gone    *moment // its connection ended
	left    bool    // it hung up by itself
	ended   chan struct{}
}

// line is a message at the server's end.
type line struct {
	at  moment
	msg wire.Message
}

// Connect starts a server for a session.
func (w *world) Connect(ctx context.Context, label string) (wire.Conn, error) {
	w.mu.Lock()
	r := rand.New(rand.NewPCG(w.seed, uint64(len(w.kids))))
	w.mu.Unlock()
	select {
	case <-time.After(pick(r, 0, 0, 0, 300*time.Millisecond, 3*time.Second)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ours, theirs := wire.Pair()
	k := &kid{w: w, label: label, conn: theirs, server: fakemcp.New(fakemcp.Options{}), ended: make(chan struct{})}
	w.mu.Lock()
	k.n = len(w.kids)
	w.kids = append(w.kids, k)
	w.mu.Unlock()
	w.tell(label, "server %d starts", k.n)
	go func() {
		defer close(k.ended)
		if err := k.server.Serve(context.Background(), k); err != nil {
			w.broken(label, "server", "server %d: %v", k.n, err)
		}
	}()
	return ours, nil
}

// Fingerprint names the server's kind.
func (w *world) Fingerprint() string { return "oracle" }

// Send notes what the server says.
func (k *kid) Send(ctx context.Context, raw []byte) error {
	k.sending.Lock()
	defer k.sending.Unlock()
	m, perr := wire.Parse(append([]byte(nil), raw...))
	if perr != nil {
		return perr
	}
	at := k.w.now()
	if err := k.conn.Send(ctx, raw); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.said = append(k.said, line{at, m})
	return nil
}

// Recv notes what the server hears.
func (k *kid) Recv(ctx context.Context) ([]wire.Message, error) {
	msgs, err := k.conn.Recv(ctx)
	at := k.w.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && k.gone == nil {
		k.gone = &at
	}
	for _, m := range msgs {
		m.Raw = append([]byte(nil), m.Raw...)
		k.heard = append(k.heard, line{at, m})
		if m.Method == wire.Initialize {
			k.client = m.StringAt("params", "clientInfo", "name")
		}
	}
	return msgs, err
}

// Close is the server hanging up, or its last act.
func (k *kid) Close() error {
	at := k.w.now()
	k.mu.Lock()
	if k.gone == nil {
		k.gone, k.left = &at, true
	}
	k.mu.Unlock()
	return k.conn.Close()
}

func (k *kid) alive() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gone == nil
}

// run is a tool that a server was asked to run.
type run struct {
	kid    *kid
	inner  string // its id at the server
	token  string
	key    string
	at     moment
	answer int // the place in said of its first answer, -1 if there is none
}

// runs lists the tools that the server was asked to run.
func (k *kid) runs() (all []*run) {
	for _, l := range k.heard {
		if l.msg.Kind != wire.Request || l.msg.Method == wire.Initialize {
			continue
		}
		r := &run{kid: k, inner: string(l.msg.IDText()), key: keyIn(string(l.msg.Raw)), at: l.at, answer: -1}
		if at, err := l.msg.Find("params", "_meta", "progressToken"); err == nil && at.Ok() {
			r.token = string(l.msg.Text(at))
		}
		for i, s := range k.said {
			if (s.msg.Kind == wire.Result || s.msg.Kind == wire.Failure) && string(s.msg.IDText()) == r.inner {
				r.answer = i
				break
			}
		}
		all = append(all, r)
	}
	return all
}

// keyIn finds the key that every request of the clients carries.
func keyIn(text string) string {
	_, rest, ok := strings.Cut(text, `"key":"`)
	if !ok {
		return ""
	}
	key, _, _ := strings.Cut(rest, `"`)
	return key
}

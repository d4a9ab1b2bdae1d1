package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// driver is a Node.js process that runs clients of one TypeScript package, see
// testdata/npm/driver.mjs.
type driver struct {
	name  string
	mu    sync.Mutex
	in    io.WriteCloser
	seq   int
	waits map[int]*wait
	ended chan struct{}
	said  logged
}

// wait is a command that is not answered yet.
type wait struct {
	seen   *progress
	answer chan reply
}

type reply struct {
	Seq      int             `json:"seq"`
	Result   json.RawMessage `json:"result"`
	Error    *rpcError       `json:"error"`
	Progress *float64        `json:"progress"`
}

// rpcError is an error of a client, with the server's data if it had some.
type rpcError struct {
	Code    any             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (e *rpcError) Error() string { return fmt.Sprintf("%v: %s %s", e.Code, e.Message, e.Data) }

func startDriver(t *testing.T, name string) *driver {
	t.Helper()
	cmd := exec.Command(node(t), "driver.mjs", name)
	cmd.Dir = "testdata/npm"
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{name: name, in: in, waits: map[int]*wait{}, ended: make(chan struct{})}
	cmd.Stderr = &d.said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.ended)
		d.pump(out)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		in.Close()
		<-d.ended
		if said := d.said.text(20); said != "" {
			t.Logf("%s said: %s", name, said)
		}
	})
	return d
}

// Write keeps what the process says on stderr.
func (l *logged) Write(b []byte) (int, error) {
	l.add(strings.TrimSpace(string(b)))
	return len(b), nil
}

func (d *driver) pump(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			d.said.add("unreadable: " + lines.Text())
			continue
		}
		d.take(r)
	}
}

func (d *driver) take(r reply) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.waits[r.Seq]
	switch {
	case w == nil:
		d.said.add(fmt.Sprintf("a line for seq %d after its answer", r.Seq))
	case r.Progress != nil:
		if w.seen != nil {
			w.seen.add(int(*r.Progress))
		}
	default:
		delete(d.waits, r.Seq)
		w.answer <- r
	}
}

// run sends a command and waits for its answer.
func (d *driver) run(ctx context.Context, command map[string]any, seen *progress) (json.RawMessage, error) {
	w := &wait{seen: seen, answer: make(chan reply, 1)}
	d.mu.Lock()
	d.seq++
	command["seq"] = d.seq
	d.waits[d.seq] = w
	line, err := json.Marshal(command)
	if err == nil {
		_, err = d.in.Write(append(line, '\n'))
	}
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case r := <-w.answer:
		if r.Error != nil {
			return nil, r.Error
		}
		return r.Result, nil
	case <-d.ended:
		return nil, errors.New(d.name + " ended: " + d.said.text(20))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// scriptPeer is one client inside of a driver.
type scriptPeer struct {
	d  *driver
	id string
}

func (d *driver) open(t *testing.T, url, mode string) peer {
	t.Helper()
	p := &scriptPeer{d: d, id: t.Name()}
	command := map[string]any{"op": "open", "client": p.id, "url": url}
	if mode != "" {
		command["mode"] = mode
	}
	if _, err := d.run(within(t, 20*time.Second), command, nil); err != nil {
		t.Fatalf("%s: connecting: %v", d.name, err)
	}
	return p
}

func (p *scriptPeer) do(ctx context.Context, op string, more map[string]any, seen *progress, to any) error {
	command := map[string]any{"op": op, "client": p.id}
	for k, v := range more {
		command[k] = v
	}
	result, err := p.d.run(ctx, command, seen)
	if err != nil {
		return err
	}
	return json.Unmarshal(result, to)
}

func (p *scriptPeer) call(ctx context.Context, tool string, args map[string]any, seen *progress) (text string, err error) {
	// The client's own time-out comes first, so that a hang is told by the client.
	limit := 60 * time.Second
	if end, ok := ctx.Deadline(); ok {
		limit = time.Until(end) - time.Second
	}
	err = p.do(ctx, "call", map[string]any{
		"tool": tool, "args": args, "quiet": seen == nil, "timeout": limit.Milliseconds(),
	}, seen, &text)
	return text, err
}

func (p *scriptPeer) read(ctx context.Context, uri string) (text string, err error) {
	err = p.do(ctx, "read", map[string]any{"uri": uri}, nil, &text)
	return text, err
}

func (p *scriptPeer) tools(ctx context.Context) (names []string, err error) {
	err = p.do(ctx, "tools", nil, nil, &names)
	return names, err
}

func (p *scriptPeer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var none any
	p.do(ctx, "close", nil, nil, &none)
}

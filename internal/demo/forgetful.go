package demo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/segno-mcp/segno/internal/example"
	"github.com/segno-mcp/segno/internal/sse"
)

// forgetful is an MCP server as the specification allows it and as many are:
// its events carry no ids and it keeps none of them. What it sends while
// nobody is connected is lost.
type forgetful struct {
	url  string
	ctx  context.Context
	end  context.CancelFunc
	http *http.Server
	work sync.WaitGroup

	mu   sync.Mutex
	here chan []byte // the connection that gets the events; nil: none
}

func startForgetful(ctx context.Context) (*forgetful, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the server without Segno: %w", err)
	}
	f := &forgetful{url: "http://" + l.Addr().String() + "/mcp"}
	f.ctx, f.end = context.WithCancel(ctx)
	f.http = &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second}
	f.work.Go(func() { _ = f.http.Serve(l) })
	return f, nil
}

func (f *forgetful) close() {
	f.end()
	f.http.Close()
	f.work.Wait()
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		f.stream(w, r)
		return
	}
	var m message
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&m); err != nil {
		http.Error(w, "not JSON", http.StatusBadRequest)
		return
	}
	switch m.Method {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", "the-only-one")
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"forgetful","version":"1"}}}`, m.ID, revision)
	case "tools/call":
		f.call(w, r, &m)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (f *forgetful) call(w http.ResponseWriter, r *http.Request, m *message) {
	var p struct {
		Arguments exportArguments `json:"arguments"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		http.Error(w, "bad arguments", http.StatusBadRequest)
		return
	}
	// The connection must be there before the first event.
	here := f.attach()
	f.work.Go(func() { f.export(string(m.ID), p.Arguments) })
	f.pump(w, r, here)
}

func (f *forgetful) stream(w http.ResponseWriter, r *http.Request) { f.pump(w, r, f.attach()) }

func (f *forgetful) attach() chan []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.here = make(chan []byte, 16)
	return f.here
}

func (f *forgetful) detach(here chan []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.here == here {
		f.here = nil
	}
}

// pump writes to one connection until it breaks.
func (f *forgetful) pump(w http.ResponseWriter, r *http.Request, here chan []byte) {
	defer f.detach(here)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	out := http.NewResponseController(w)
	_ = out.Flush()
	for {
		select {
		case b := <-here:
			if _, err := w.Write(sse.AppendEvent(nil, "", "", b)); err != nil || out.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

func (f *forgetful) send(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case f.here <- fmt.Appendf(nil, format, args...):
	default:
	}
}

// export does what the example server does.
func (f *forgetful) export(id string, a exportArguments) {
	sum := sha256.New()
	checksum := ""
	for i := 1; i <= a.Rows; i++ {
		if f.pause(a.IntervalMS) != nil {
			return
		}
		sum.Write([]byte(example.Row(i)))
		checksum = hex.EncodeToString(sum.Sum(nil))
		f.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":%d,"message":"row %d of %d","_meta":{"rows":%d,"checksum":%q}}}`,
			id, i, a.Rows, i, a.Rows, i, checksum)
	}
	f.send(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"uri":"","rows":%d,"checksum":%q}}}`, id, a.Rows, checksum)
}

func (f *forgetful) pause(ms int64) error {
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
		return nil
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
}

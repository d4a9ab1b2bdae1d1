// Package tool is the MCP server that every measured gateway stands in front
// of: a stdio server that answers as fast as a pipe takes bytes. Its three
// tools are echo, flood (n progress notifications in big writes) and tick
// (progress notifications at a steady pace, each with the time it was written).
package tool

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// burst is how many bytes flood gathers before it writes: what a pipe holds.
const burst = 64 << 10

// Serve answers requests from in on out until in ends.
func Serve(in io.Reader, out io.Writer) error {
	s := &server{out: out}
	r := bufio.NewReaderSize(in, burst)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return fmt.Errorf("reading requests: %w", err)
		}
		if err := s.take(line); err != nil {
			return err
		}
	}
}

type server struct {
	mu  sync.Mutex // one line is written whole
	out io.Writer
}

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string `json:"protocolVersion"`
		Name            string `json:"name"`
		Arguments       Args   `json:"arguments"`
		Meta            struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
}

// Args are the arguments of the three tools.
type Args struct {
	Text  string `json:"text"`
	N     int    `json:"n"`
	Bytes int    `json:"bytes"`    // size of each message of flood, without the newline
	Every int    `json:"every_us"` // pause of tick, in microseconds
}

func (s *server) take(line []byte) error {
	var q request
	if err := json.Unmarshal(line, &q); err != nil {
		return fmt.Errorf("reading a request: %w", err)
	}
	if q.ID == nil || q.Method == "" {
		return nil
	}
	switch q.Method {
	case "initialize":
		return s.answer(q.ID, `{"protocolVersion":`+strconv.Quote(q.Params.ProtocolVersion)+
			`,"capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`)
	case "ping":
		return s.answer(q.ID, `{}`)
	case "tools/list":
		return s.answer(q.ID, `{"tools":[`+describe("echo")+","+describe("flood")+","+describe("tick")+`]}`)
	case "tools/call":
		return s.call(&q)
	}
	return s.write(fmt.Appendf(nil,
		`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", q.ID))
}

func describe(name string) string {
	return `{"name":"` + name + `","inputSchema":{"type":"object"}}`
}

// call runs the long tools beside the reader, so that another call in the same
// process is answered meanwhile.
func (s *server) call(q *request) error {
	args := q.Params.Arguments
	switch q.Params.Name {
	case "flood":
		go s.flood(q, args.N, args.Bytes)
		return nil
	case "tick":
		go s.tick(q, args.N, time.Duration(args.Every)*time.Microsecond)
		return nil
	}
	return s.text(q.ID, args.Text)
}

func (s *server) text(id json.RawMessage, text string) error {
	return s.answer(id, `{"content":[{"type":"text","text":`+strconv.Quote(text)+`}]}`)
}

func (s *server) answer(id json.RawMessage, result string) error {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = append(b, `,"result":`...)
	b = append(b, result...)
	return s.write(append(b, "}\n"...))
}

func (s *server) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.out.Write(b)
	return err
}

func (s *server) flood(q *request, n, size int) {
	b := make([]byte, 0, burst+size)
	for i := 1; i <= n; i++ {
		if b = AppendProgress(b, q.Params.Meta.ProgressToken, i, size); len(b) < burst {
			continue
		}
		if s.write(b) != nil {
			return
		}
		b = b[:0]
	}
	if s.write(b) == nil {
		s.text(q.ID, "done")
	}
}

const padding = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

// AppendProgress appends the i-th progress notification as a line of size bytes
// and a newline; size below the bare notification's counts as none.
func AppendProgress(b, token []byte, i, size int) []byte {
	from := len(b)
	b = append(b, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`...)
	b = append(b, token...)
	b = append(b, `,"progress":`...)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, `,"message":"`...)
	for left := size - (len(b) - from) - len(`"}}`); left > 0; {
		k := min(left, len(padding))
		b = append(b, padding[:k]...)
		left -= k
	}
	return append(b, `"}}`+"\n"...)
}

// tick stamps each message with the clock at its writing: that is the one
// clock of the machine, so the reader's clock minus the stamp is the way's time.
func (s *server) tick(q *request, n int, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for i := 1; i <= n; i++ {
		<-t.C
		if s.write(AppendStamp(nil, q.Params.Meta.ProgressToken, i, time.Now())) != nil {
			return
		}
	}
	s.text(q.ID, "done")
}

// AppendStamp appends the i-th progress notification as a line that carries a time.
func AppendStamp(b, token []byte, i int, at time.Time) []byte {
	return fmt.Appendf(b, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%s"}}`+"\n",
		token, i, Stamp(at))
}

// Stamp is a time as the message of a progress notification.
func Stamp(at time.Time) string { return "t=" + strconv.FormatInt(at.UnixNano(), 10) }

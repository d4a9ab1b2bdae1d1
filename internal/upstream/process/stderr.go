package process

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// stderr reads all that the child says there, whether anybody wants it or not:
// a full pipe would block the child. The end of it is kept.
type stderr struct {
	r       pipe
	journal *journal
	count   func(bytes int)
	secrets []string

	line []byte // begun, at most maxLine
	long int    // its length so far

	mu    sync.Mutex
	tail  []byte // up to twice max
	max   int
	total int64
}

func (e *stderr) run() {
	defer e.r.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := e.r.Read(buf)
		if n > 0 {
			e.count(n)
			e.keep(buf[:n])
			e.split(buf[:n])
		}
		if err != nil {
			e.endLine()
			return
		}
	}
}

func (e *stderr) keep(b []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.total += int64(len(b))
	if len(b) > e.max {
		b = b[len(b)-e.max:]
	}
	if len(e.tail)+len(b) > 2*e.max {
		e.tail = append(e.tail[:0], e.tail[len(e.tail)-e.max:]...)
	}
	e.tail = append(e.tail, b...)
}

// split logs line by line; progress bars end theirs with a carriage return.
func (e *stderr) split(b []byte) {
	for len(b) > 0 {
		at := bytes.IndexAny(b, "\r\n")
		if at < 0 {
			e.extend(b)
			return
		}
		e.extend(b[:at])
		e.endLine()
		b = b[at+1:]
	}
}

func (e *stderr) extend(b []byte) {
	e.long += len(b)
	room := max(0, maxLine-len(e.line))
	e.line = append(e.line, b[:min(room, len(b))]...)
}

func (e *stderr) endLine() {
	if len(bytes.TrimSpace(e.line)) > 0 {
		e.journal.line(slog.LevelInfo, "server stderr", e.hide(string(e.line)), e.long)
	}
	e.line, e.long = e.line[:0], 0
}

// text is the tail for people, whole lines if it was cut, secrets taken out.
func (e *stderr) text() string {
	e.mu.Lock()
	tail := e.tail[max(0, len(e.tail)-e.max):]
	left := e.total - int64(len(tail))
	s := string(tail)
	e.mu.Unlock()
	if left > 0 {
		if _, whole, ok := strings.Cut(s, "\n"); ok {
			left += int64(len(s) - len(whole))
			s = whole
		}
	}
	lines := strings.FieldsFunc(e.hide(s), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	s = strings.Join(lines, "\n")
	if left > 0 {
		s = fmt.Sprintf("(%d bytes before)\n%s", left, s)
	}
	return s
}

func (e *stderr) hide(s string) string {
	for _, secret := range e.secrets {
		s = strings.ReplaceAll(s, secret, "***")
	}
	return s
}

// secretsIn are the values of variables whose names say that they are secret.
// A child that prints its settings must not send them to a remote client.
func secretsIn(env []string) []string {
	var out []string
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if len(value) >= 8 && namesSecret(strings.ToUpper(name)) {
			out = append(out, value)
		}
	}
	return out
}

func namesSecret(name string) bool {
	for _, word := range []string{"TOKEN", "SECRET", "PASSW", "APIKEY", "_KEY", "CREDENTIAL", "DSN"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

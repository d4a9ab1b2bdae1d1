//go:build unix

package process

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A log that hangs for good, and a server that writes much: the call succeeds.
func TestField60_StderrIsDrainedWhateverTheLogDoes(t *testing.T) {
	for _, tc := range []struct {
		name, role string
		bytes      int64
	}{
		{"lines", "noisy 262144 lf", 262144},
		{"carriage returns alone", "noisy 10485760 cr", 10485760},
		{"much", "noisy 52428800 lf", 52428800},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, _ := options(t, tc.role)
			l := log{gate: make(chan struct{})}
			o.Logger = l.logger()
			var count atomic.Int64
			o.Hooks.Stderr = func(n int) { count.Add(int64(n)) }
			c := connect(t, o)
			one(t, c, "noisy")
			at := time.Now()
			go func() {
				<-c.gone
				close(l.gate)
			}()
			c.Close()
			if took := time.Since(at); took > 3*time.Second {
				t.Errorf("closing took %v", took)
			}
			if count.Load() < tc.bytes {
				t.Errorf("%d bytes counted", count.Load())
			}
			if cap(c.err.tail) > 64<<10 {
				t.Errorf("%d bytes are kept", cap(c.err.tail))
			}
			if !strings.HasSuffix(c.end.Tail, "the last words") || !strings.HasPrefix(c.end.Tail, "(") {
				t.Errorf("the tail is %.60q … %.60q", c.end.Tail, c.end.Tail[max(0, len(c.end.Tail)-60):])
			}
		})
	}
}

func TestField60_ALogThatHangsDoesNotHoldUpTheEnd(t *testing.T) {
	o, _ := options(t, "usage")
	o.CloseWait, o.TermWait, o.Linger = 100*time.Millisecond, 100*time.Millisecond, 50*time.Millisecond
	l := log{gate: make(chan struct{})}
	o.Logger = l.logger()
	c := connect(t, o)
	all(t, c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	close(l.gate)
	<-c.logged
}

func TestTheTailIsBoundedAndSaysWhatIsMissing(t *testing.T) {
	e := &stderr{max: 64, secrets: secretsIn([]string{"API_TOKEN=hunter2hunter2", "PATH=/bin:/usr/bin"})}
	for i := range 1000 {
		e.keep(fmt.Appendf(nil, "line %d\n", i))
	}
	e.keep([]byte("key hunter2hunter2 \x1b[2J\xff /bin:/usr/bin\n"))
	got := e.text()
	if len(e.tail) > 128 || len(got) > 128 {
		t.Errorf("%d bytes kept, %d told", len(e.tail), len(got))
	}
	if !strings.HasPrefix(got, "(") || !strings.HasSuffix(got, `key *** \x1b[2J\xff /bin:/usr/bin`) {
		t.Errorf("got %q", got)
	}
	if e.keep(bytes.Repeat([]byte("x"), 1000)); len(e.tail) > 128 {
		t.Errorf("%d bytes kept", len(e.tail))
	}
}

func TestField68_SecretsOfTheEnvironmentStayOutOfErrors(t *testing.T) {
	o, _ := options(t, "secret")
	o.Env = append(o.Env, "THE_TOKEN=correct-horse-battery")
	_, gone := all(t, connect(t, o))
	if gone.Reason != "exit status 3" || gone.Tail != "bad key ***" {
		t.Errorf("told %+v", gone)
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttab":       "plain\ttab",
		"\x1b[31m\x00":     `\x1b[31m\x00`,
		"\xff\u202e\u0085": `\xff\x202e\x85`,
		"kept \uFFFD":      "kept \uFFFD",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q became %q", in, got)
		}
	}
}

//go:build unix

package process

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// options run a role with short waits and a mark that finds its processes.
func options(t *testing.T, role string) (Options, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var b [8]byte
	rand.Read(b[:])
	run := hex.EncodeToString(b[:])
	return Options{
		Argv: []string{self}, Env: []string{roleVar + "=" + role, runVar + "=" + run},
		NoCgroup: true, CloseWait: 2 * time.Second, TermWait: 2 * time.Second,
	}, run
}

func connect(t *testing.T, o Options) *child {
	t.Helper()
	c, err := New(o).Connect(t.Context(), "s1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*child)
}

func start(t *testing.T, role string) *child {
	t.Helper()
	o, _ := options(t, role)
	return connect(t, o)
}

// within bounds a wait in tests.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// all receives to the end.
func all(t *testing.T, c wire.Conn) (ids []string, gone *wire.Gone) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	for {
		msgs, err := c.Recv(ctx)
		if errors.As(err, &gone) {
			return ids, gone
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			ids = append(ids, strings.Trim(string(m.IDText()), `"`))
		}
	}
}

// one receives until the message with the id is there, and drops the others.
func one(t *testing.T, c wire.Conn, id string) wire.Message {
	t.Helper()
	ctx := within(t, 20*time.Second)
	for {
		msgs, err := c.Recv(ctx)
		if err != nil {
			t.Fatalf("waiting for %s: %v", id, err)
		}
		for _, m := range msgs {
			if strings.Trim(string(m.IDText()), `"`) == id {
				m.Raw = append([]byte(nil), m.Raw...)
				return m
			}
		}
	}
}

func value[T any](t *testing.T, m wire.Message) T {
	t.Helper()
	var r struct {
		V T `json:"v"`
	}
	if err := json.Unmarshal(m.Text(m.Result), &r); err != nil {
		t.Fatalf("%s: %v", m.Raw, err)
	}
	return r.V
}

// eventually polls for what other processes do, which gives no signal.
func eventually(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", d, what)
		}
	}
}

func TestEchoesAndEnds(t *testing.T) {
	var how Exit
	o, _ := options(t, "echo")
	o.Hooks.Exited = func(h Exit, _ time.Duration) { how = h }
	c := connect(t, o)
	if err := c.Send(t.Context(), []byte("{\"jsonrpc\":\"2.0\",\n \"id\":7,\r\n\"method\":\"ping\"}")); err != nil {
		t.Fatal(err)
	}
	m := one(t, c, "7")
	if m.Method != "ping" || m.Kind != wire.Request {
		t.Errorf("got %s", m.Raw)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if how != ExitInput {
		t.Errorf("it ended by %q", how)
	}
	var gone *wire.Gone
	if err := c.Send(t.Context(), []byte(`{}`)); !errors.As(err, &gone) {
		t.Errorf("sending after the end: %v", err)
	}
	if _, err := c.Recv(t.Context()); !errors.As(err, &gone) || !strings.Contains(gone.Reason, "stopped (exit status 0)") {
		t.Errorf("receiving after the end: %v", err)
	}
}

func TestReceivingCanBeGivenUpAndGoesOn(t *testing.T) {
	c := start(t, "echo")
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := c.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		cancel()
	}
	if err := c.Send(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)); err != nil {
		t.Fatal(err)
	}
	one(t, c, "1")
}

func TestField59_WhatIsNoMessageIsCountedAndLogged(t *testing.T) {
	o, _ := options(t, "banner")
	var l log
	var garbage int
	var mu sync.Mutex
	o.Logger = l.logger()
	o.Hooks.Garbage = func(int) { mu.Lock(); garbage++; mu.Unlock() }
	c := connect(t, o)
	one(t, c, "second")
	c.Close()
	mu.Lock()
	defer mu.Unlock()
	if garbage != 7 {
		t.Errorf("%d lines counted", garbage)
	}
	for _, want := range []string{"Server v1 started", "[db] connected", "session=s1", `\x1b[31mred`} {
		if !strings.Contains(l.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, l.String())
		}
	}
	if strings.Contains(l.String(), "\x1b") {
		t.Error("a control character reached the log")
	}
}

func TestField66_LongLinesPassAndTooLongOnesAreSkipped(t *testing.T) {
	o, _ := options(t, "long 65535 65536 65537 5242880 9000000 1000")
	o.MaxMessage = 6 << 20
	c := connect(t, o)
	ctx := within(t, 20*time.Second)
	got := map[string]int{}
	for got["short"] == 0 {
		msgs, err := c.Recv(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			if m.Kind == wire.Failure {
				got["failed "+string(m.IDText())] = 1
				continue
			}
			got[strings.Trim(string(m.IDText()), `"`)] = len(m.Raw)
		}
	}
	for _, n := range []int{65535, 65536, 65537, 5242880, 1000} {
		if got[strconv.Itoa(n)] != n {
			t.Errorf("the line of %d bytes came with %d", n, got[strconv.Itoa(n)])
		}
	}
	if got["failed 9000000"] != 1 {
		t.Errorf("nothing stands for the answer that was too long: %v", got)
	}
}

// Fifty senders, some of which give up in the middle of waiting, to a server
// that reads slowly: each message arrives whole or not at all.
func TestField67_SendersNeverMixAndLeaveNoHalfLine(t *testing.T) {
	o, _ := options(t, "tally 16384")
	o.SendQueue = 1_000_000
	o.CloseWait = 10 * time.Second
	c := connect(t, o)
	msg := []byte(`{"jsonrpc":"2.0","method":"big","params":{"p":"` + strings.Repeat("p", 200_000) + `"}}`)
	var sent, gaveUp int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			ctx := t.Context()
			if i%3 == 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*time.Millisecond)
				defer cancel()
			}
			err := c.Send(ctx, msg)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				sent++
			} else {
				gaveUp++
			}
		})
	}
	wg.Wait()
	if gaveUp == 0 {
		t.Error("nobody gave up: there was no back-pressure")
	}
	go c.Close()
	got := value[[]int](t, one(t, c, "tally"))
	if got[0] != sent || got[1] != 0 {
		t.Errorf("%d whole and %d broken lines arrived of %d that were sent", got[0], got[1], sent)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestField67_AServerThatDoesNotReadIsGivenUp(t *testing.T) {
	o, run := options(t, "deaf")
	o.WriteTimeout = 150 * time.Millisecond
	o.SendQueue = 1 << 20
	c := connect(t, o)
	msg := []byte(`{"jsonrpc":"2.0","method":"m","params":{"p":"` + strings.Repeat("p", 300_000) + `"}}`)
	ctx := within(t, 10*time.Second)
	var err error
	for err == nil {
		err = c.Send(ctx, msg)
	}
	var gone *wire.Gone
	if !errors.As(err, &gone) || !strings.Contains(gone.Reason, "did not read its input for 150ms") {
		t.Errorf("sending failed with %v", err)
	}
	if _, gone := all(t, c); !strings.Contains(gone.Reason, "did not read its input") {
		t.Errorf("it is gone because %s", gone.Reason)
	}
	if left := processes(run); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestField68_ADeadServerIsToldWithStatusAndLastWords(t *testing.T) {
	for _, tc := range []struct {
		mode string
		ids  int
	}{{"silent", 0}, {"half", 0}, {"whole", 1}} {
		t.Run(tc.mode, func(t *testing.T) {
			o, _ := options(t, "die "+tc.mode)
			var garbage int
			o.Hooks.Garbage = func(int) { garbage++ }
			c := connect(t, o)
			if err := c.Send(t.Context(), []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)); err != nil {
				t.Fatal(err)
			}
			at := time.Now()
			ids, gone := all(t, c)
			if took := time.Since(at); took > time.Second {
				t.Errorf("told after %v", took)
			}
			if len(ids) != tc.ids {
				t.Errorf("got %v", ids)
			}
			if gone.Reason != "signal: killed" || !strings.Contains(gone.Tail, "about to die") {
				t.Errorf("told %+v", gone)
			}
			if (garbage == 1) != (tc.mode == "half") {
				t.Errorf("%d lines counted as garbage", garbage)
			}
		})
	}
}

// What the server wrote before it died waits for a caller that comes late.
func TestField68_AnswersOfADeadServerAreKept(t *testing.T) {
	before := files(t)
	o, _ := options(t, "flood 700 300")
	c := connect(t, o)
	<-c.gone
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if now := files(t); now > before {
		t.Errorf("%d files are open, %d were before", now, before)
	}
	ids, gone := all(t, c)
	if len(ids) < 700 || gone.Reason != "exit status 0" {
		t.Errorf("%d messages, then %v", len(ids), gone)
	}
}

func TestField69_AServerThatExitsAtOnceIsTold(t *testing.T) {
	c := start(t, "usage")
	_, gone := all(t, c)
	if gone.Reason != "exit status 0" || !strings.Contains(gone.Tail, "usage: server --key KEY") {
		t.Errorf("told %+v", gone)
	}
}

func TestField69_WhatARunningServerSaidLastCanBeAskedFor(t *testing.T) {
	c := start(t, "noisy 1024 lf")
	one(t, c, "noisy")
	eventually(t, 10*time.Second, "the last words", func() bool { return strings.HasSuffix(c.Tail(), "the last words") })
}

func TestField69_ACommandThatIsNotThereIsTold(t *testing.T) {
	dir := t.TempDir()
	_, err := New(Options{Argv: []string{"no-such-server"}, Env: []string{"PATH=" + dir + ":relative"}}).Connect(t.Context(), "s1")
	var nf *NotFoundError
	if !errors.As(err, &nf) || !strings.Contains(err.Error(), `no "no-such-server" in `+dir) {
		t.Errorf("got %v", err)
	}
	plain := dir + "/plain"
	os.WriteFile(plain, []byte("text"), 0o600)
	_, err = New(Options{Argv: []string{plain}}).Connect(t.Context(), "s1")
	if !errors.As(err, &nf) || !strings.Contains(nf.Hint(), "executed") {
		t.Errorf("got %v", err)
	}
	script := dir + "/script"
	os.WriteFile(script, []byte("#!/no/such/shell\n"), 0o700)
	before := files(t)
	_, err = New(Options{Argv: []string{script}, StateDir: dir + "/state"}).Connect(t.Context(), "s1")
	if err == nil || !strings.Contains(err.Error(), script) {
		t.Errorf("got %v", err)
	}
	if now := files(t); now != before {
		t.Errorf("%d files are open, %d were before", now, before)
	}
	if left, _ := os.ReadDir(dir + "/state"); len(left) != 0 {
		t.Errorf("records left: %v", left)
	}
}

// A caller that gives up while it waits for room ends nothing but its own wait.
func TestField72_GivingUpOneCallLeavesTheServerAlone(t *testing.T) {
	c := start(t, "echo")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Recv(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	for _, m := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call"}`,
	} {
		if err := c.Send(t.Context(), []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	one(t, c, "2")
	select {
	case <-c.exited:
		t.Error("the server is gone")
	default:
	}
}

func TestAServerThatClosesItsOutputIsStopped(t *testing.T) {
	c := start(t, "mute")
	_, gone := all(t, c)
	if !strings.HasPrefix(gone.Reason, "it closed its output") {
		t.Errorf("told %+v", gone)
	}
}

func TestTheChildsEnvironment(t *testing.T) {
	t.Setenv("SEGNO_TOKEN_FILE", "/secret")
	t.Setenv("segno_lower", "1")
	t.Setenv("OTHER", "kept")
	c := start(t, "env")
	env := value[[]string](t, one(t, c, "env"))
	if got := lookupEnv(env, "OTHER"); got != "kept" {
		t.Errorf("OTHER=%s", got)
	}
	for _, kv := range env {
		if strings.HasPrefix(strings.ToUpper(kv), "SEGNO_") {
			t.Errorf("the child got %s", kv)
		}
	}
}

func TestArgumentsArriveUnchanged(t *testing.T) {
	o, _ := options(t, "args")
	want := []string{"a b", "&", "%PATH%", `"q"`, "", "$HOME", "*", "a\nb"}
	o.Argv = append(o.Argv, want...)
	got := value[[]string](t, one(t, connect(t, o), "args"))
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q", got)
	}
}

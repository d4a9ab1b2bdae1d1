//go:build unix

package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary, started again with roleVar set, is the child.
const (
	roleVar = "PROCESS_TEST_ROLE"
	runVar  = "PROCESS_TEST_RUN"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		words := strings.Fields(role)
		roles[words[0]](words[1:])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var roles = map[string]func(args []string){
	"echo":     func([]string) { io.Copy(os.Stdout, os.Stdin) },
	"banner":   banner,
	"noisy":    noisy,
	"long":     long,
	"tally":    tally,
	"deaf":     func([]string) { forever() },
	"die":      die,
	"usage":    func([]string) { fmt.Fprintln(os.Stderr, "usage: server --key KEY"); os.Exit(0) },
	"stubborn": stubborn,
	"late":     late,
	"mute":     func([]string) { os.Stdout.Close(); forever() },
	"env":      func([]string) { answer("env", os.Environ()) },
	"args":     func([]string) { answer("args", os.Args[1:]) },
	"flood":    flood,
	"tree":     tree,
	"host":     host,
	"secret":   func([]string) { fmt.Fprintln(os.Stderr, "bad key", os.Getenv("THE_TOKEN")); os.Exit(3) },
}

// forever is longer than any test; a broken one leaves nothing for good.
func forever() { time.Sleep(2 * time.Minute) }

func answer(id string, v any) {
	b, _ := json.Marshal(v)
	fmt.Printf(`{"jsonrpc":"2.0","id":%q,"result":{"v":%s}}`+"\n", id, b)
}

// banner mixes its answers with what does not belong on stdout.
func banner([]string) {
	fmt.Print("Server v1 started\n\n[db] connected\n╭──╮\n{\"level\":\"info\"}\n{\"jsonrpc\":\"2.0\"")
	fmt.Print("\n")
	answer("first", 1)
	fmt.Print("null\n\x1b[31mred\x1b[0m\n")
	answer("second", 2)
	io.Copy(io.Discard, os.Stdin)
}

// noisy writes to stderr, then answers.
func noisy(args []string) {
	n, _ := strconv.Atoi(args[0])
	chunk := []byte(strings.Repeat("x", 1023) + "\n")
	if args[1] == "cr" {
		chunk[1023] = '\r'
	}
	for ; n > 0; n -= len(chunk) {
		os.Stderr.Write(chunk)
	}
	fmt.Fprint(os.Stderr, "the last words")
	answer("noisy", "done")
	io.Copy(io.Discard, os.Stdin)
}

// long writes lines of the given sizes, and then a short one.
func long(args []string) {
	for _, a := range args {
		n, _ := strconv.Atoi(a)
		frame := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"v":""}}`, n)
		fill := bytes.Repeat([]byte("y"), n-len(frame))
		os.Stdout.Write(append(append([]byte(strings.TrimSuffix(frame, `"}}`)), fill...), `"}}`+"\n"...))
	}
	answer("short", 1)
	io.Copy(io.Discard, os.Stdin)
}

// tally reads slowly and says how many lines were whole messages.
func tally(args []string) {
	perRead, _ := strconv.Atoi(args[0])
	whole, broken := 0, 0
	in := bufio.NewReaderSize(slow{os.Stdin, perRead}, 4096)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err == nil && json.Valid(line) {
			whole++
		} else {
			broken++
		}
		if err != nil {
			break
		}
	}
	answer("tally", []int{whole, broken})
}

type slow struct {
	r   io.Reader
	max int
}

func (s slow) Read(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return s.r.Read(p[:min(len(p), s.max)])
}

// die ends by SIGKILL, having written what it is told to.
func die(args []string) {
	bufio.NewReader(os.Stdin).ReadString('\n')
	fmt.Fprintln(os.Stderr, "about to die")
	switch args[0] {
	case "half":
		fmt.Print(`{"jsonrpc":"2.0","id":1,"resu`)
	case "whole":
		fmt.Print(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	}
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	forever()
}

// stubborn ignores the end of its input and, told so, SIGTERM.
func stubborn(args []string) {
	if args[0] == "term" {
		signal.Ignore(syscall.SIGTERM)
	}
	answer("ready", 1)
	forever()
}

// late answers only after its input has ended.
func late(args []string) {
	wait, _ := time.ParseDuration(args[0])
	io.Copy(io.Discard, os.Stdin)
	time.Sleep(wait)
	answer("late", 1)
}

// flood writes as many lines as it is told.
func flood(args []string) {
	n, _ := strconv.Atoi(args[0])
	size, _ := strconv.Atoi(args[1])
	frame := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"p":""}}`
	line := strings.Replace(frame, `""`, `"`+strings.Repeat("z", size-len(frame)-1)+`"`, 1) + "\n"
	per := max(1, (64<<10)/size)
	block := []byte(strings.Repeat(line, per))
	for ; n > 0; n -= per {
		os.Stdout.Write(block)
	}
}

// tree starts the role it is given as a child of its own, which gets a /dev/null
// for its input as a job in the background does, then waits for it or not.
func tree(args []string) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+strings.Join(args[1:], " "))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if args[0] == "setsid" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Stdout, cmd.Stderr = nil, nil
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	answer("tree", cmd.Process.Pid)
	switch args[0] {
	case "wait":
		cmd.Wait()
	case "setsid":
		io.Copy(io.Discard, os.Stdin)
	}
}

// host is a Segno that gets killed: it starts the role as its child and says so
// once a message with the id has come.
func host(args []string) {
	o := Options{
		Argv: []string{os.Args[0]}, Env: []string{roleVar + "=" + strings.Join(args[2:], " ")},
		StateDir: args[0], NoCgroup: os.Getenv("PROCESS_TEST_CGROUP") == "",
	}
	c, err := New(o).Connect(context.Background(), "host")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for up := false; !up; {
		msgs, err := c.Recv(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for _, m := range msgs {
			up = up || string(m.IDText()) == strconv.Quote(args[1])
		}
	}
	fmt.Println("up")
	forever()
}

// log collects what is logged; with a gate it is a sink that hangs.
type log struct {
	mu   sync.Mutex
	b    bytes.Buffer
	gate chan struct{}
}

func (l *log) Write(p []byte) (int, error) {
	if l.gate != nil {
		<-l.gate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Package process runs an MCP server as a child process that speaks over its
// standard input and output (MCP 2025-11-25, Transports, stdio). A child is a
// wire.Conn: the caller sees messages and, at the end, why it ended.
//
// A child and all it starts form a process group, on Windows a Job Object, and
// on Linux, where one may be made, a cgroup too. They end together.
package process

import (
	"log/slog"
	"time"
)

// Options describe the command and how its children are treated. Zero values
// mean the defaults named here.
type Options struct {
	Argv []string // the command and its arguments; no shell is involved
	Env  []string // KEY=VALUE, added to Segno's own environment without SEGNO_*
	Dir  string   // working directory; empty: Segno's own

	MaxMessage int // longest message taken from the child, in bytes: 64 MiB
	SendQueue  int // bytes that wait for the child to read them: 1 MiB
	// Room is asked for the memory of long lines, see wire.LineOptions; may be nil.
	Room func(bytes int) bool

	WriteTimeout time.Duration // a child that reads nothing for so long is stuck: 30 s
	CloseWait    time.Duration // from closing its input to SIGTERM: 2 s
	TermWait     time.Duration // from SIGTERM to SIGKILL: 3 s
	Linger       time.Duration // what its children may still say after it exited: 300 ms

	StderrTail int    // bytes of stderr kept for errors: 8 KiB
	StateDir   string // where running children are written down for Sweep; empty: nowhere
	NoCgroup   bool   // the process group alone

	Logger *slog.Logger // nil: nothing is logged
	Hooks  Hooks
}

// Hooks tell a meter what happens. They are called from the goroutines of a
// child, must not block, and each may be nil.
type Hooks struct {
	Started func()
	Exited  func(how Exit, lived time.Duration)
	Garbage func(bytes int) // a line on stdout that is no message
	Stderr  func(bytes int)
}

// Exit is the way a child came to its end.
type Exit string

// The ways a child ends.
const (
	ExitSelf  Exit = "self"  // nobody asked for it
	ExitInput Exit = "input" // after its input was closed
	ExitTerm  Exit = "term"  // after SIGTERM
	ExitKill  Exit = "kill"  // after SIGKILL
)

// killWait bounds the wait for a killed process to be gone: only the kernel can
// make it take longer.
const killWait = 2 * time.Second

func (o Options) withDefaults() Options {
	orInt(&o.MaxMessage, 64<<20)
	orInt(&o.SendQueue, 1<<20)
	orInt(&o.StderrTail, 8<<10)
	orTime(&o.WriteTimeout, 30*time.Second)
	orTime(&o.CloseWait, 2*time.Second)
	orTime(&o.TermWait, 3*time.Second)
	orTime(&o.Linger, 300*time.Millisecond)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func orInt(v *int, d int) {
	if *v <= 0 {
		*v = d
	}
}

func orTime(v *time.Duration, d time.Duration) {
	if *v <= 0 {
		*v = d
	}
}

func (h *Hooks) started() {
	if h.Started != nil {
		h.Started()
	}
}

func (h *Hooks) exited(how Exit, lived time.Duration) {
	if h.Exited != nil {
		h.Exited(how, lived)
	}
}

func (h *Hooks) garbage(n int) {
	if h.Garbage != nil {
		h.Garbage(n)
	}
}

func (h *Hooks) stderr(n int) {
	if h.Stderr != nil {
		h.Stderr(n)
	}
}

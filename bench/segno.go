package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// segno is the product before the stdio server.
type segno struct {
	label string // segno, or what tells another build from it
	exe   string // the built command; empty: it could not be built
	why   string // the reason then
	store string // memory: or pebble:
	sync  string // empty: the default
}

func (s segno) name() string {
	n := s.label + " " + strings.TrimSuffix(s.store, ":")
	if s.sync != "" {
		n += " sync=" + s.sync
	}
	return n
}

func (s segno) start(ctx context.Context, n need) (*target, error) {
	if s.exe == "" {
		return nil, absent{s.why}
	}
	dir, err := os.MkdirTemp("", "segno-bench-")
	if err != nil {
		return nil, err
	}
	store := s.store
	if store == "pebble:" {
		store += filepath.Join(dir, "log")
	}
	argv := []string{s.exe, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", store}
	argv = append(append(argv, s.flags(n)...), "--")
	t, err := launch(ctx, append(argv, self("tool")...)...)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	t.tidy = func() { os.RemoveAll(dir) }
	return t, nil
}

func (s segno) flags(n need) []string {
	var f []string
	if n.ahead {
		f = append(f, "--session-max", "8GiB", "--principal-max", "8GiB", "--store-max", "16GiB")
	}
	if s.sync != "" {
		f = append(f, "--sync", s.sync)
	}
	if n.deep {
		f = append(f, "--retain-events", "20000", "--retain-bytes", "64MiB")
	}
	if n.crowd {
		f = append(f, "--process", "shared",
			"--max-sessions-per-principal", "10000", "--max-connections-per-principal", "10000")
	}
	if n.asleep {
		f = append(f, "--grace", "1s")
	}
	return f
}

// buildSegno builds the command from this tree, as users get it.
func buildSegno(ctx context.Context, dir string) (exe string, err error) {
	exe = filepath.Join(dir, "segno")
	if runtime.GOOS == "windows" {
		exe += ".exe"
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-o", exe, "github.com/segno-mcp/segno/cmd/segno").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building cmd/segno: %w: %.300s", err, strings.TrimSpace(string(out)))
	}
	return exe, nil
}

// segnos are a build's ways to keep its log.
func segnos(label, exe string, why error) []subject {
	s := segno{label: label, exe: exe}
	if why != nil {
		s.why = why.Error()
	}
	memory, disk := s, s
	memory.store, disk.store = "memory:", "pebble:"
	return []subject{memory, disk}
}

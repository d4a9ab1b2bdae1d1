package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// stdio is no gateway: the client reads the tool's own pipe.
type stdio struct{}

func (stdio) name() string { return "stdio" }

func (stdio) start(context.Context, need) (*target, error) {
	return &target{tool: self("tool")}, nil
}

// mcpProxy is npm's mcp-proxy in front of the same stdio server. It has one
// child for all sessions.
type mcpProxy struct {
	dir string // where package.json and its lock file are
}

func (mcpProxy) name() string { return "mcp-proxy" }

func (m mcpProxy) start(ctx context.Context, n need) (*target, error) {
	script, err := m.install(ctx)
	if err != nil {
		return nil, absent{err.Error()}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	argv := []string{"node", script, "--host", "127.0.0.1", "--port", strconv.Itoa(port), "--server", "stream"}
	if n.deep {
		argv = append(argv, "--eventStoreMaxEvents", "20000000")
	}
	t, err := launchAt(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		append(append(argv, "--"), self("tool")...)...)
	return t, err
}

// install runs npm once for the folder.
func (m mcpProxy) install(ctx context.Context) (string, error) {
	script := filepath.Join(m.dir, "node_modules", "mcp-proxy", "dist", "bin", "mcp-proxy.mjs")
	if _, err := os.Stat(script); err == nil {
		return script, nil
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return "", errors.New("npm is not there")
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = m.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w: %.200s", err, strings.TrimSpace(string(out)))
	}
	return script, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// launchAt is launch for a program that does not say when it listens.
func launchAt(ctx context.Context, addr string, argv ...string) (*target, error) {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := make(chan string, 1)
	go func() {
		for ctx.Err() == nil {
			if c, err := net.Dial("tcp", addr); err == nil {
				c.Close()
				found <- addr
				return
			}
			<-t.C
		}
	}()
	return launchUntil(ctx, found, argv...)
}

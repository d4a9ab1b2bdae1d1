package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// verdict is how a mutant ended.
type verdict string

const (
	killed   verdict = "killed"
	timedOut verdict = "killed (hung)"
	survived verdict = "SURVIVED"
	invalid  verdict = "INVALID"
)

// outcome is a mutant's verdict, with the test that failed or what is wrong.
type outcome struct {
	mutant
	verdict verdict
	detail  string
	took    time.Duration
}

func (o *outcome) bad() bool { return o.verdict == survived || o.verdict == invalid }

// runner runs tests of the module at root, with files replaced by an overlay so
// that the tree itself is never touched.
type runner struct {
	root    string
	timeout time.Duration
	verbose bool
}

// run applies one mutant and runs its test.
func (r *runner) run(ctx context.Context, m mutant) outcome {
	o := outcome{mutant: m, verdict: invalid}
	text, err := m.apply(r.root)
	if err != nil {
		o.detail = err.Error()
		return o
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		o.detail = err.Error()
		return o
	}
	defer os.RemoveAll(dir)
	overlay, err := r.overlay(dir, m.file, text)
	if err != nil {
		o.detail = err.Error()
		return o
	}
	start := time.Now()
	out, err := r.goTest(ctx, m, overlay)
	o.took = time.Since(start)
	o.verdict, o.detail = judge(out, err)
	if r.verbose && o.bad() {
		fmt.Fprintf(os.Stderr, "--- %s\n%s\n", m.name, out)
	}
	return o
}

// overlay writes the replaced file and the description that the go command reads.
func (r *runner) overlay(dir, file, text string) (string, error) {
	with := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(with, []byte(text), 0o600); err != nil {
		return "", err
	}
	replace := map[string]map[string]string{
		"Replace": {filepath.Join(r.root, filepath.FromSlash(file)): with},
	}
	body, err := json.Marshal(replace)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, body, 0o600)
}

// goTest runs the mutant's test. An empty overlay runs it on the tree as it is,
// where the go command may answer from its cache.
func (r *runner) goTest(ctx context.Context, m mutant, overlay string) (string, error) {
	// -vet=off: a mutant that vet dislikes is still one for the test to find.
	args := []string{"test", "-vet=off", "-timeout", r.timeout.String(), "-run", m.test}
	if overlay != "" {
		args = append(args, "-count=1", "-failfast")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, m.pkg)...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "PEERS=required") // internal/peers skips its tests without
	if overlay != "" {
		// By the environment, so that a test that builds the command sees it too.
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	return out.String(), err
}

var (
	failLine = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	noTest   = regexp.MustCompile(`(?m)\[no tests? (to run|files)\]`)
	hung     = regexp.MustCompile(`(?m)^panic: test timed out after`)
	panicked = regexp.MustCompile(`(?m)^(panic|fatal error): (.*)`)
	unbuilt  = regexp.MustCompile(`(?m)\[(build|setup) failed\]`)
)

// judge reads what go test said. Only a test that ran and failed is a kill: an
// edit that does not compile, or a name that matches no test, proves nothing.
func judge(out string, err error) (verdict, string) {
	switch {
	case unbuilt.MatchString(out):
		return invalid, "does not compile: " + firstError(out)
	case noTest.MatchString(out):
		return invalid, "no such test"
	case err == nil:
		return survived, ""
	case hung.MatchString(out):
		return timedOut, "timeout"
	}
	if fail := failLine.FindAllStringSubmatch(out, -1); fail != nil {
		return killed, fail[len(fail)-1][1]
	}
	if p := panicked.FindStringSubmatch(out); p != nil {
		return killed, p[1] + ": " + p[2]
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && strings.Contains(out, "FAIL\t") {
		return killed, "the test binary ended with " + exit.String()
	}
	return invalid, fmt.Sprintf("go test: %v: %s", err, firstError(out))
}

func firstError(out string) string {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}

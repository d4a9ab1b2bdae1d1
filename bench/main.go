// Command bench measures Segno beside what it can be compared with, all in one
// run on one machine: a bare relay of the same tool, a bare handler, the pipe
// itself, the official Go SDK and npm's mcp-proxy. README.md says what each
// figure means and to whom it is unfair.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/segno-mcp/segno/bench/report"
	"github.com/segno-mcp/segno/bench/tool"
)

func main() {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		exit(roles[os.Args[1]]())
	}
	exit(run(os.Args[1:]))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// roles are what this program is when it is started again for a subject.
var roles = map[string]func() error{
	"tool":   func() error { return tool.Serve(os.Stdin, os.Stdout) },
	"relay":  serveRelay,
	"bare":   serveBare,
	"go-sdk": serveSDK,
	"files":  func() error { return serveFiles(os.Args[2]) },
}

type options struct {
	rounds int
	quiet  time.Duration
	long   time.Duration
	only   string
	on     string
	json   string
	prof   string
	segno  string
	old    string
	strict bool
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 3, "samples of each subject in each measurement")
	f.DurationVar(&o.quiet, "quiet", 5*time.Second, "wait at most this long before a sample for others to leave the machine alone")
	f.DurationVar(&o.long, "long", 1500*time.Millisecond, "how long a sample of a rate lasts")
	f.StringVar(&o.only, "only", "", "measurements to run: a regular expression")
	f.StringVar(&o.on, "on", "", "subjects to run: a regular expression")
	f.StringVar(&o.json, "json", filepath.Join("out", "bench.json"), "file for all values; empty: none")
	f.StringVar(&o.prof, "profile", "", "folder for CPU and memory profiles of Segno, taken beside the samples; they cost a little")
	f.StringVar(&o.segno, "segno", "", "a built segno to measure instead of this tree's")
	f.StringVar(&o.old, "old", "", "another built segno to measure beside it")
	f.BoolVar(&o.strict, "strict", false, "fail if a target is missed")
	return o, f.Parse(args)
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "segno-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	r := &runner{subjects: subjects(ctx, o, root, tmp), rounds: o.rounds, quiet: o.quiet, long: o.long, profiles: o.prof, log: os.Stderr}
	all := r.all(ctx, o)
	if missed := all.Print(os.Stdout); missed && o.strict {
		err = fmt.Errorf("a target is missed")
	}
	if o.json != "" {
		err = firstOf(err, writeJSON(o.json, all))
	}
	return err
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// subjects are all that the expression names, the product last.
func subjects(ctx context.Context, o *options, root, tmp string) []subject {
	exe, why := o.segno, error(nil)
	if exe == "" {
		exe, why = buildSegno(ctx, tmp)
	}
	all := append([]subject{
		stdio{},
		role{"bare handler", "bare"},
		role{base, "relay"},
		role{"go-sdk", "go-sdk"},
		mcpProxy{filepath.Join(root, "bench", "npm")},
		files{},
	}, segnos("segno", exe, why)...)
	if o.old != "" {
		all = append(all, segnos("old", o.old, nil)...)
	}
	var chosen []subject
	for _, s := range all {
		if matches(o.on, s.name()) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// base is what figures are compared with.
const base = "bare relay"

func matches(expr, name string) bool {
	ok, err := regexp.MatchString(expr, name)
	return ok || err != nil
}

func (r *runner) all(ctx context.Context, o *options) *report.Report {
	all := &report.Report{Machine: describeMachine(), Started: time.Now().UTC().Format(time.RFC3339), Rounds: o.rounds}
	fmt.Printf("%s, %d rounds, median (min–max)\n", all.Machine, o.rounds)
	for _, t := range trials(o.long) {
		if !matches(o.only, t.name) {
			continue
		}
		m := r.measure(ctx, t)
		m.Table(os.Stdout, base)
		all.Measurements = append(all.Measurements, m)
		if ctx.Err() != nil {
			break // what is there counts all the same
		}
	}
	all.Judge(targets)
	return all
}

func describeMachine() string {
	return fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/segno-mcp/segno").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module (run it inside): %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func writeJSON(path string, all *report.Report) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return firstOf(all.JSON(io.Writer(f)), f.Close())
}

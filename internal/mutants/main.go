// Command mutants breaks the code on purpose and looks whether the tests see it.
//
// Each file of testdata is one small wrong edit with the promise that it breaks
// and the test that must fail. An edit is applied through the go command's
// overlay, so the tree stays as it is and several can run side by side. The run
// fails if a mutant survives, does not compile, or does not fit the code any
// more.
//
//	go run ./internal/mutants [-run REGEXP] [-p N] [-v]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants: error:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := flags.String("run", "", "only mutants whose name matches this `regexp`")
	side := flags.Int("p", 2, "how many run side by side")
	timeout := flags.Duration("timeout", 60*time.Second, "for one mutant's test")
	verbose := flags.Bool("v", false, "print what the tests of bad mutants said")
	root := flags.String("root", ".", "the module's root")
	if err := flags.Parse(args); err != nil {
		return err
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("reading -run: %w", err)
	}
	abs, err := filepath.Abs(*root)
	if err != nil {
		return err
	}
	all, err := load(filepath.Join(abs, "internal", "mutants", "testdata"), match)
	if err != nil {
		return fmt.Errorf("reading the mutants: %w", err)
	}
	if len(all) == 0 {
		return fmt.Errorf("no mutant matches %q", *only)
	}
	r := &runner{root: abs, timeout: *timeout, verbose: *verbose}
	if err := r.baseline(ctx, all); err != nil {
		return err
	}
	return table(out, r.runAll(ctx, all, max(1, *side)))
}

// baseline runs every test that a mutant names on the tree as it is: a test that
// fails anyway kills nothing.
func (r *runner) baseline(ctx context.Context, all []mutant) error {
	done := map[string]bool{}
	for _, m := range all {
		if key := m.pkg + " " + m.test; done[key] {
			continue
		} else {
			done[key] = true
		}
		if out, err := r.goTest(ctx, m, ""); err != nil {
			return fmt.Errorf("without any mutant, %s in %s: %w\n%s", m.test, m.pkg, err, out)
		}
	}
	return nil
}

// runAll runs the mutants, n side by side, and keeps their order.
func (r *runner) runAll(ctx context.Context, all []mutant, n int) []outcome {
	outcomes := make([]outcome, len(all))
	next := make(chan int)
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			for i := range next {
				outcomes[i] = r.run(ctx, all[i])
				fmt.Fprintf(os.Stderr, "%d/%d %s: %s\n", i+1, len(all), all[i].name, outcomes[i].verdict)
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	workers.Wait()
	return outcomes
}

// table prints what became of each mutant and fails if one is bad.
func table(out io.Writer, outcomes []outcome) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "mutant\tpromise\tresult\tby\ttime")
	bad := 0
	for _, o := range outcomes {
		if o.bad() {
			bad++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1fs\n", o.name, o.promise, o.verdict, o.detail, o.took.Seconds())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d mutants, %d killed\n", len(outcomes), len(outcomes)-bad)
	if bad > 0 {
		return fmt.Errorf("%d of %d mutants were not killed", bad, len(outcomes))
	}
	return nil
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/segno-mcp/segno/eventlog/pebblelog"
	"github.com/segno-mcp/segno/internal/config"
)

type purgeCommand struct {
	Store string `placeholder:"URL" help:"The log to delete, such as pebble:DIR."`
	Yes   bool   `help:"Do not ask."`
}

func (purgeCommand) Help() string {
	return `Clients of sessions in the log must begin anew. A log that a running Segno uses is not deleted.

Example:

  segno purge --store pebble:/var/lib/segno`
}

// Run deletes a log after asking.
func (c *purgeCommand) Run(ctx context.Context, sys system, layers *config.Layers) error {
	dir, err := holdsStore(c.Store, layers.Where("store"))
	if err != nil {
		return err
	}
	what, err := contents(ctx, dir)
	if err != nil {
		return err
	}
	if !c.Yes {
		if err := confirm(sys, fmt.Sprintf("delete %s in %s?", what, dir)); err != nil {
			return err
		}
	}
	if err := pebblelog.Purge(dir); err != nil {
		return fmt.Errorf("deleting the log: %w", err)
	}
	_, err = fmt.Fprintf(sys.out, "deleted %s in %s\n", what, dir)
	return err
}

// contents says what a log holds. A damaged one is no reason not to delete it;
// one in use is.
func contents(ctx context.Context, dir string) (string, error) {
	log, err := pebblelog.Open(dir, pebblelog.Options{})
	switch {
	case errors.Is(err, pebblelog.ErrDamaged), errors.Is(err, pebblelog.ErrFormat):
		return "a log that cannot be read", nil
	case err != nil:
		return "", inUse(err, "stop the Segno that uses it first")
	}
	defer log.Close()
	sessions := 0
	for after := ""; ; {
		names, err := log.Sessions(ctx, after, 1000)
		if err != nil {
			return "", fmt.Errorf("looking into the log: %w", err)
		}
		if len(names) == 0 {
			what := "sessions"
			if sessions == 1 {
				what = "session"
			}
			return fmt.Sprintf("%d %s (%v)", sessions, what, config.Size(log.Size())), nil
		}
		sessions, after = sessions+len(names), names[len(names)-1]
	}
}

func confirm(sys system, question string) error {
	terminal, ok := sys.in.(*os.File)
	if !ok || !term.IsTerminal(int(terminal.Fd())) {
		return config.Faultf("say --yes to delete without being asked", "nobody can be asked: the input is no terminal")
	}
	fmt.Fprintf(sys.err, "segno: %s [y/N] ", question)
	answer, _ := bufio.NewReader(sys.in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return config.Faultf("", "nothing was deleted")
}

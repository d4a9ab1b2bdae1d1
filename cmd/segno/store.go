package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/eventlog/pebblelog"
	"github.com/segno-mcp/segno/internal/admin"
	"github.com/segno-mcp/segno/internal/config"
)

// stateDir is where Segno keeps what outlives it: $XDG_STATE_HOME/segno, or
// what the system has instead (XDG Base Directory Specification).
func stateDir(getenv func(string) string) (string, error) {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "segno"), nil
	}
	switch runtime.GOOS {
	case "windows":
		if dir := getenv("LocalAppData"); dir != "" {
			return filepath.Join(dir, "segno"), nil
		}
	case "darwin":
		if home := getenv("HOME"); home != "" {
			return filepath.Join(home, "Library", "Application Support", "segno"), nil
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("looking for a place for the log: %w", err)
	}
	return filepath.Join(home, ".local", "state", "segno"), nil
}

// storeName is the folder of one MCP server at one address.
func storeName(fingerprint, listen string) string {
	return fingerprint + "-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, listen)
}

// place is where the log of a server is kept. Several servers have a folder
// each in the one that was named.
func (s *site) place(one *served) (config.Store, error) {
	if s.settings.Store != "" {
		store, err := config.ParseStore(s.settings.Store, s.where("store"))
		if one.name != "" && store.Dir != "" {
			store.Dir = filepath.Join(store.Dir, one.name)
		}
		return store, err
	}
	dir, err := stateDir(s.getenv)
	if err != nil {
		return config.Store{}, config.Faultf("name a place with --store pebble:DIR, or --store memory:", "%v", err)
	}
	return config.Store{Dir: filepath.Join(dir, "logs", storeName(one.upstream.Fingerprint(), s.settings.Listen))}, nil
}

// openLog opens the log of a server.
func (s *site) openLog(one *served) (eventlog.Log, error) {
	store, err := s.place(one)
	if err != nil {
		return nil, err
	}
	if store.Memory {
		s.loggerOf(one).Info("the log is in memory: it ends with this process")
		return memlog.New(), nil
	}
	log, dir, err := s.openFree(one, store.Dir)
	if err != nil {
		return nil, err
	}
	s.loggerOf(one).Info("the log is on disk", "store", "pebble:"+dir, "bytes", log.Size())
	return log, nil
}

// manyAtOnce is how many may serve the same server at any free port, each with
// a log that the next one finds again.
const manyAtOnce = 16

// openFree opens the log in a folder. Where the folder was not named and the
// port may be any, others may do the same at this moment: then it is the next.
func (s *site) openFree(one *served, dir string) (*pebblelog.Log, string, error) {
	o := pebblelog.Options{
		Sync: syncs[s.settings.Sync], Fingerprint: one.upstream.Fingerprint(), Logger: s.loggerOf(one),
		Metrics: pebblelog.Metrics{StoreLatency: s.meter.StoreTook, StoreError: s.meter.StoreFailed},
	}
	log, err := pebblelog.Open(dir, o)
	if s.settings.Store != "" || !strings.HasSuffix(s.settings.Listen, ":0") {
		return log, dir, err
	}
	next := dir
	for n := 2; errors.Is(err, pebblelog.ErrLocked) && n <= manyAtOnce; n++ {
		next = fmt.Sprintf("%s.%d", dir, n)
		log, err = pebblelog.Open(next, o)
	}
	return log, next, err
}

var syncs = map[string]pebblelog.Sync{
	"outcomes": pebblelog.SyncOutcomes, "always": pebblelog.SyncAlways, "os": pebblelog.SyncOS,
}

// holdsStore checks that a folder has a log in it, so that a wrong word makes
// no new one.
func holdsStore(text, where string) (dir string, err error) {
	if text == "" {
		return "", config.Faultf("write --store pebble:DIR", "no log is named")
	}
	store, err := config.ParseStore(text, where)
	if err != nil {
		return "", err
	}
	if store.Memory {
		return "", config.Faultf("write --store pebble:DIR", "%s is %q: a log in memory ends with its process", where, text)
	}
	marks, err := filepath.Glob(filepath.Join(escapeGlob(store.Dir), "marker.*"))
	if err == nil && len(marks) > 0 {
		return store.Dir, nil
	}
	return "", config.Faultf("write --store pebble:DIR with the folder that segno serve uses", "there is no log in %s", store.Dir)
}

var globbing = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)

func escapeGlob(dir string) string {
	if runtime.GOOS == "windows" {
		return dir // no escapes there, and no * or ? in names
	}
	return globbing.Replace(dir)
}

// inUse gives the error of a log that a running Segno has a hint of its own.
func inUse(err error, hint string) error {
	if errors.Is(err, pebblelog.ErrLocked) {
		return config.Faultf(hint, "%v", err)
	}
	return err
}

// stored is a log that no running Segno uses.
type stored struct{ view admin.View }

// all is more sessions than a log holds.
const all = 1 << 30

func (s *stored) list(ctx context.Context) ([]admin.ServerStatus, error) {
	sessions, _, err := s.view.Sessions(ctx, all)
	return []admin.ServerStatus{{Sessions: sessions}}, err
}

func (s *stored) window(ctx context.Context, stream string, after uint64) (*admin.Window, error) {
	return s.view.Window(ctx, stream, after, 1<<20)
}

// openStored opens a log to look at it.
func openStored(text, where string) (holder, func(), error) {
	dir, err := holdsStore(text, where)
	if err != nil {
		return nil, nil, err
	}
	log, err := pebblelog.Open(dir, pebblelog.Options{})
	if err != nil {
		return nil, nil, inUse(err, "ask the Segno that uses it: segno dump --admin URL, with the admin address it printed as it started")
	}
	return &stored{view: admin.View{Log: log}}, func() { log.Close() }, nil
}

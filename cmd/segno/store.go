package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/eventlog/pebblelog"
	"github.com/segno-mcp/segno/internal/admin"
	"github.com/segno-mcp/segno/internal/config"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/shelf"
)

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
	return config.Store{Dir: shelf.Folder(filepath.Join(s.state, "logs"), one.owner(), s.settings.Listen)}, nil
}

// owner is the server as its log knows it.
func (one *served) owner() shelf.Server {
	return shelf.Server{
		Name: one.name, Fingerprint: one.upstream.Fingerprint(),
		Command: one.argv, Dir: one.dir, Env: one.env, URL: one.url,
	}
}

// openLog opens the log of a server, and finds out the name that the sessions
// in it go by.
func (s *site) openLog(one *served) (eventlog.Log, error) {
	store, err := s.place(one)
	if err != nil {
		return nil, err
	}
	if store.Memory {
		s.known(one, session.NewInstance())
		s.loggerOf(one).Info("the log is in memory: it ends with this process")
		return memlog.New(), nil
	}
	log, dir, err := s.openFree(one, store.Dir)
	if err != nil {
		return nil, s.whose(err, one, store.Dir)
	}
	s.known(one, s.instanceOf(one, dir))
	s.loggerOf(one).Info("the log is on disk", "store", "pebble:"+dir, "bytes", log.Size())
	return log, nil
}

// known gives a server its instance name, and what is logged if it is the only
// one.
func (s *site) known(one *served, instance string) {
	one.instance = instance
	if one.name == "" {
		s.logger = s.logger.With("instance", instance)
	}
}

// instanceOf is the name kept with a log. If it cannot be kept, resumes after
// the next start look as if they came to the wrong instance.
func (s *site) instanceOf(one *served, dir string) string {
	card, err := shelf.ReadCard(dir)
	if err != nil {
		card.Instance = session.NewInstance()
	}
	if err := shelf.NewCard(one.owner(), card.Instance).Write(dir); err != nil {
		s.loggerOf(one).Warn("the instance's name does not outlive this process", "error", err)
	}
	return card.Instance
}

// whose says of a log that belongs to another server what differs.
func (s *site) whose(err error, one *served, dir string) error {
	var refused *pebblelog.Error
	if !errors.Is(err, pebblelog.ErrForeign) || !errors.As(err, &refused) {
		return err
	}
	card, cerr := shelf.ReadCard(dir)
	if cerr != nil {
		return err
	}
	if what := card.Differs(shelf.NewCard(one.owner(), "")); what != "" {
		return config.Faultf(refused.Advice, "%v: %s", err, what)
	}
	return err
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
	if shelf.IsLog(store.Dir) {
		return store.Dir, nil
	}
	hint := "write --store pebble:DIR with the folder that segno serve uses"
	if below := shelf.Below(store.Dir); len(below) > 0 {
		hint = "below it there are: pebble:" + strings.Join(below, " pebble:")
	}
	return "", config.Faultf(hint, "there is no log in %s", store.Dir)
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

func (s *stored) list(ctx context.Context, session string) ([]admin.ServerStatus, error) {
	if session != "" {
		one, err := s.view.Session(ctx, session)
		if err != nil {
			return nil, err
		}
		return []admin.ServerStatus{{Sessions: []admin.Session{*one}}}, nil
	}
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

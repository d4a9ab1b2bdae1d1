// Package pebblelog keeps streams on disk, in a cockroachdb/pebble store of one
// process. See package disk for what is synced when, block for what an append writes,
// and commit for the order in which steps become visible.
package pebblelog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/internal/disk"
)

// Options say how a store is kept. The zero value is good.
type Options struct {
	Sync Sync
	// Fingerprint names the upstream that the store belongs to. A store of
	// another one is refused; an empty one opens any.
	Fingerprint string
	Logger      *slog.Logger
	// FS replaces the operating system's files, in tests.
	FS      vfs.FS
	Metrics Metrics
}

// Metrics are called for what is worth counting, from many goroutines; nil ones
// are not.
type Metrics struct {
	// StoreLatency gets how long a step took from its call until it counted.
	StoreLatency func(time.Duration)
	// StoreError gets each error that is the store's own.
	StoreError func(error)
}

// Error is why a store cannot be opened.
type Error struct {
	Dir    string
	Err    error
	Advice string
}

func (e *Error) Error() string { return fmt.Sprintf("open store %s: %v", e.Dir, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Hint says what can be done.
func (e *Error) Hint() string { return e.Advice }

// What a caller of Open may want to tell apart, in an *Error.
var (
	ErrLocked  = errors.New("another process uses it")
	ErrForeign = errors.New("it belongs to another upstream")
	ErrFormat  = errors.New("it has a format that this version does not know")
	ErrDamaged = errors.New("it is damaged")
	ErrNoStore = errors.New("the folder is not empty and holds no store")
)

const (
	format = 1

	memTable   = 64 << 20
	blockCache = 16 << 20
)

// Open opens the store in a folder, which it makes if need be, readable by its
// owner alone. What the last process wrote is there, up to the last write that
// its sync policy vouches for; what is damaged elsewhere is refused.
func Open(dir string, o Options) (*Log, error) {
	l := newLog(dir, o)
	if err := l.prepare(); err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(dir, l.disk.FS)
	if err != nil {
		if !errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w: %w", ErrLocked, err)
		}
		return nil, l.refuse(err, "stop the other process, or choose another folder with --store")
	}
	l.lock = lock
	if l.disk.Private {
		err = os.Chmod(filepath.Join(dir, "LOCK"), 0o600)
	}
	if err == nil {
		err = l.openPebble()
	}
	if err != nil {
		return nil, errors.Join(err, l.unlock())
	}
	if err := l.enterBoot(); err != nil {
		return nil, errors.Join(err, l.db.Close(), lock.Close())
	}
	l.start()
	return l, nil
}

func (l *Log) refuse(err error, advice string) error {
	return &Error{Dir: l.dir, Err: err, Advice: advice}
}

// prepare makes the folder, or checks that it is one of ours.
func (l *Log) prepare() error {
	fs := l.disk.FS
	if l.disk.Private {
		if err := os.MkdirAll(l.dir, 0o700); err != nil {
			return l.refuse(err, "choose a folder that can be written with --store")
		}
	} else if err := fs.MkdirAll(l.dir, 0o700); err != nil {
		return l.refuse(err, "")
	}
	l.syncParent()
	names, err := fs.List(l.dir)
	if err != nil {
		return l.refuse(err, "")
	}
	ours, others := false, false
	for _, name := range names {
		switch {
		case name == "LOCK" || strings.HasPrefix(name, "marker."):
			ours = true
		case name != "lost+found":
			others = true
		}
	}
	if others && !ours {
		return l.refuse(ErrNoStore, "choose an empty folder, or one that does not exist yet")
	}
	if l.disk.Private {
		if err := os.Chmod(l.dir, 0o700); err != nil {
			return l.refuse(err, "")
		}
	}
	return nil
}

// syncParent makes the folder itself outlive a power cut, where its parent can
// be opened.
func (l *Log) syncParent() {
	parent, err := l.disk.FS.OpenDir(l.disk.FS.PathDir(l.dir))
	if err != nil {
		return
	}
	if err := errors.Join(parent.Sync(), parent.Close()); err != nil {
		l.background(err)
	}
}

// Purge removes all that a store holds, and the folder if nothing else is in it.
// It refuses a folder that is no store or that is in use.
func Purge(dir string) error {
	l := newLog(dir, Options{})
	names, err := os.ReadDir(dir)
	if err != nil {
		return l.refuse(err, "")
	}
	if len(names) == 0 {
		return os.Remove(dir)
	}
	if err := l.prepare(); err != nil {
		return err
	}
	lock, err := pebble.LockDirectory(dir, l.disk.FS)
	if err != nil {
		return l.refuse(fmt.Errorf("%w: %w", ErrLocked, err), "stop the other process first")
	}
	for _, name := range names {
		if name.Name() != "LOCK" && !name.IsDir() {
			err = errors.Join(err, os.Remove(filepath.Join(dir, name.Name())))
		}
	}
	err = errors.Join(err, lock.Close())
	if err == nil {
		err = os.Remove(filepath.Join(dir, "LOCK"))
	}
	if err != nil {
		return l.refuse(err, "")
	}
	// It stays if something else is in it, or a disk is mounted there.
	_ = os.Remove(dir)
	return nil
}

// openWithin is how long pebble may take to open: it reads the log again, at most
// a few memtables of it.
const openWithin = 2 * time.Minute

const emptyIt = "move the folder away or empty it with `segno purge --store`; what it holds cannot be resumed"

type opened struct {
	db  *pebble.DB
	err error
}

// openPebble gives up where pebble would wait for ever: it tries what fails again
// and again.
func (l *Log) openPebble() error {
	l.disk.Opening.Store(true)
	done := make(chan opened, 1)
	options := l.pebbleOptions()
	go func() { done <- tryPebble(l.dir, options) }()
	var err error
	select {
	case o := <-done:
		l.db, err = o.db, o.err
	case err = <-l.trouble:
		l.abandon(done)
	case <-time.After(openWithin):
		l.abandon(done)
		return l.refuse(fmt.Errorf("reading its log again did not end within %v", openWithin), "look after the disk: it is slow, or a file cannot be read; or choose another folder with --store")
	}
	if err == nil {
		return nil
	}
	err = oneLine{err}
	switch {
	case disk.Passes(err) || errors.Is(err, os.ErrPermission):
		return l.refuse(err, "make room on the disk, or see that the folder can be written and enough files opened")
	case strings.Contains(err.Error(), "written in"):
		return l.refuse(fmt.Errorf("%w: %w", ErrFormat, err), "use the version of segno that wrote it")
	}
	return l.refuse(fmt.Errorf("%w: %w", ErrDamaged, err), emptyIt)
}

func tryPebble(dir string, options *pebble.Options) (o opened) {
	defer func() {
		if p := recover(); p != nil {
			o.err = fmt.Errorf("%v", p)
		}
	}()
	defer options.Cache.Unref()
	o.db, o.err = pebble.Open(dir, options)
	return o
}

// abandon leaves the opening to itself. The folder stays locked until it ends.
func (l *Log) abandon(done <-chan opened) {
	lock := l.lock
	l.lock = nil
	go func() {
		if o := <-done; o.db != nil {
			_ = o.db.Close() // nothing was written
		}
		_ = lock.Close()
	}()
}

// unlock lets others use the folder.
func (l *Log) unlock() error {
	if l.lock == nil {
		return nil
	}
	return l.lock.Close()
}

func (l *Log) pebbleOptions() *pebble.Options {
	o := &pebble.Options{
		FS:   l.disk,
		Lock: l.lock,
		// The formats after this one write into the log how much of it is
		// synced, as pebble believes; after a power cut such a log would count
		// as damaged.
		FormatMajorVersion:          pebble.FormatColumnarBlocks,
		MemTableSize:                memTable,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       1000,
		LBaseMaxBytes:               256 << 20,
		Cache:                       pebble.NewCache(blockCache),
		Logger:                      pebbleLogger{l},
		EventListener: &pebble.EventListener{
			BackgroundError: l.background,
			DataCorruption:  l.corrupted,
			FlushEnd:        func(i pebble.FlushInfo) { l.attempted(i.Err) },
			CompactionEnd:   func(i pebble.CompactionInfo) { l.attempted(i.Err) },
		},
	}
	l.gated = newCompactions(l)
	o.Experimental.CompactionScheduler = l.gated
	// Files of 2 MB, the default, cut a flush into 32 and cost a fifth of the
	// speed.
	o.TargetFileSizes[0] = 16 << 20
	o.FlushSplitBytes = memTable
	return o
}

// unfit says why a store that pebble has opened cannot be used.
func (l *Log) unfit(err error) error {
	if errors.Is(err, eventlog.ErrDamaged) {
		return l.refuse(fmt.Errorf("%w: %w", ErrDamaged, err), emptyIt)
	}
	return l.refuse(err, "look after the disk, or choose another folder with --store")
}

// enterBoot checks whose store this is and counts the opening.
func (l *Log) enterBoot() error {
	key := []byte{spaceStore}
	head, err := l.get(key)
	if err != nil {
		return l.unfit(err)
	}
	if head == nil {
		head = append([]byte{format}, make([]byte, 8)...)
	}
	if head[0] != format || len(head) < 9 {
		return l.refuse(ErrFormat, "use the version of segno that wrote it, or another folder")
	}
	owner := string(head[9:])
	if owner != "" && l.fingerprint != "" && owner != l.fingerprint {
		return l.refuse(ErrForeign, "choose another folder with --store; a store belongs to one upstream")
	}
	if owner == "" {
		owner = l.fingerprint
	}
	l.boot = binary.BigEndian.Uint64(head[1:]) + 1
	head = binary.BigEndian.AppendUint64([]byte{format}, l.boot)
	if err := l.db.Set(key, append(head, owner...), pebble.Sync); err != nil {
		return l.unfit(err)
	}
	// Really, as fences must rise whatever becomes of this machine.
	if err := errors.Join(l.disk.SyncWAL(), l.failure()); err != nil {
		return l.unfit(err)
	}
	return nil
}

var _ eventlog.Log = (*Log)(nil)

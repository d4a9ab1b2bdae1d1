package pebblelog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/internal/disk"
)

// Log is an eventlog.Log on disk. All methods may be called from many goroutines.
type Log struct {
	dir         string
	fingerprint string
	sync        Sync
	logger      *slog.Logger
	metrics     Metrics

	disk   *disk.Disk
	lock   *pebble.Lock
	db     *pebble.DB
	boot   uint64 // how often the store was opened
	places places
	queue  queue
	// Used again, so that an append costs no memory of its own.
	appends sync.Pool
	syncer  syncer

	// Of the committer.
	owners map[string]*owner
	fences uint64
	ranges int // range deletes since the last flush

	failed  atomic.Pointer[error] // why nothing is written any more
	stuck   atomic.Bool           // pebble cannot even be closed
	trouble chan error            // gets what fails while the store is opened; has room for one
	talk    talk
	gated   *compactions
	low     atomic.Bool  // no room for new streams
	sized   atomic.Int64 // when size was last looked at, Unix time in nanoseconds
	size    atomic.Int64

	gate   sync.RWMutex // held by readers, for Close
	closed bool
	stop   chan struct{}
	work   [3]sync.WaitGroup // committer, syncer, the watch over free space
}

func newLog(dir string, o Options) *Log {
	l := &Log{
		dir: dir, fingerprint: o.Fingerprint, sync: o.Sync, logger: o.Logger, metrics: o.Metrics,
		owners: map[string]*owner{}, stop: make(chan struct{}), trouble: make(chan error, 1),
		places: places{live: map[eventlog.Key]*live{}, watchers: map[eventlog.Key][]chan<- struct{}{}},
	}
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	if l.metrics.StoreLatency == nil {
		l.metrics.StoreLatency = func(time.Duration) {}
	}
	if l.metrics.StoreError == nil {
		l.metrics.StoreError = func(error) {}
	}
	l.disk = &disk.Disk{FS: o.FS, Closing: l.stop, Full: l.background, Broken: l.fail, Ended: l.failure}
	if l.disk.FS == nil {
		l.disk.FS, l.disk.Private = vfs.Default, true
	}
	l.queue.more = make(chan struct{}, 1)
	l.appends.New = func() any { return &op{append: true, done: make(chan error, 1)} }
	l.syncer = syncer{disk: l.disk, end: l.end, lazy: o.Sync == SyncOS, more: make(chan struct{}, 1)}
	return l
}

func (l *Log) start() {
	l.disk.Opening.Store(false)
	l.gated.begin()
	l.work[0].Go(l.commit)
	l.work[1].Go(l.syncer.run)
	l.work[2].Go(l.watchRoom)
}

// Close implements eventlog.Closer.
func (l *Log) Close() error {
	if l.queue.close() {
		return eventlog.ErrClosed
	}
	close(l.stop) // nobody waits for room any more
	l.work[0].Wait()
	l.syncer.close()
	l.work[1].Wait()
	l.work[2].Wait()
	l.gate.Lock()
	defer l.gate.Unlock()
	l.closed = true
	l.places.wakeAll()
	if l.stuck.Load() {
		return errors.Join(l.failure(), l.lock.Close())
	}
	return errors.Join(l.failure(), l.db.Close(), l.failure(), l.lock.Close())
}

// enter lets a reader in and keeps Close out until gate is unlocked for reading.
func (l *Log) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.gate.RLock()
	if l.closed {
		l.gate.RUnlock()
		return eventlog.ErrClosed
	}
	return nil
}

// sizeAge is how old an answer of Size may be: pebble counts its files for it.
const sizeAge = 100 * time.Millisecond

// Size implements eventlog.Closer.
func (l *Log) Size() int64 {
	l.gate.RLock()
	defer l.gate.RUnlock()
	if l.closed {
		return 0
	}
	now := time.Now().UnixNano()
	if at := l.sized.Load(); now-at > int64(sizeAge) && l.sized.CompareAndSwap(at, now) {
		l.size.Store(int64(l.db.Metrics().DiskSpaceUsage()))
	}
	return l.size.Load()
}

// Healthy tells why the store takes nothing, or nothing new, at the moment; nil
// if it does.
func (l *Log) Healthy() error {
	if err := l.writable(); err != nil {
		return err
	}
	if l.low.Load() {
		return errors.New("the disk is nearly full, no new streams are taken")
	}
	return nil
}

func (l *Log) writable() error {
	if err := l.failure(); err != nil {
		return err
	}
	return l.disk.Waits()
}

// reserve is the room that is kept for what runs already: below it, no stream is
// opened. A small disk keeps a sixteenth of itself.
const reserve = 128 << 20

// watchRoom looks once a second whether the disk is nearly full.
func (l *Log) watchRoom() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		usage, err := l.disk.GetDiskUsage(l.dir)
		if err == nil {
			l.low.Store(usage.AvailBytes < min(reserve, usage.TotalBytes/16))
		}
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
	}
}

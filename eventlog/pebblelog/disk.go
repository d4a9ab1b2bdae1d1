package pebblelog

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is the file system that pebble writes through. It takes two decisions
// away from pebble. A sync of the write-ahead log only hands the bytes to the
// operating system, which is enough to outlive this process; syncWAL makes them
// outlive the machine, and is called when something waits for that. And a full
// disk is waited out instead of failing a write half done.
type disk struct {
	vfs.FS
	private bool // restrict new files to their owner

	mu   sync.Mutex
	wals []*wal // open, oldest first

	waiting atomic.Int32 // writes that wait for room
	closing chan struct{}
	full    func(error) // told when a write begins to wait
	broken  func(error) // told when log bytes could not be written or synced
}

const category = "pebble-wal" // pebble's word for the files of its log

// isFull tells whether an error is cured by room on the disk.
func isFull(err error) bool {
	return err != nil && (vfs.IsNoSpaceError(err) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT))
}

// room runs a write again until it does not fail for want of room.
func (d *disk) room(write func() error) error {
	err := write()
	if !isFull(err) {
		return err
	}
	d.waiting.Add(1)
	defer d.waiting.Add(-1)
	d.full(err)
	for pause := 20 * time.Millisecond; isFull(err); pause = min(2*pause, time.Second) {
		select {
		case <-d.closing:
			return err
		case <-time.After(pause):
		}
		err = write()
	}
	return err
}

// Create makes a file for writing.
func (d *disk) Create(name string, cat vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = d.room(func() error { f, err = d.FS.Create(name, cat); return err })
	return d.opened(f, name, cat, err)
}

// OpenReadWrite opens or makes a file for writing.
func (d *disk) OpenReadWrite(name string, cat vfs.DiskWriteCategory, opts ...vfs.OpenOption) (f vfs.File, err error) {
	err = d.room(func() error { f, err = d.FS.OpenReadWrite(name, cat, opts...); return err })
	return d.opened(f, name, cat, err)
}

// ReuseForWrite takes an old file for a new one.
func (d *disk) ReuseForWrite(oldname, newname string, cat vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = d.room(func() error { f, err = d.FS.ReuseForWrite(oldname, newname, cat); return err })
	return d.opened(f, newname, cat, err)
}

func (d *disk) opened(f vfs.File, name string, cat vfs.DiskWriteCategory, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	if d.private {
		if err := os.Chmod(name, 0o600); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	pf := &patientFile{File: f, d: d}
	if cat != category {
		return pf, nil
	}
	w := &wal{patientFile: pf}
	d.mu.Lock()
	d.wals = append(d.wals, w)
	d.mu.Unlock()
	return w, nil
}

// Link makes a second name for a file.
func (d *disk) Link(oldname, newname string) error {
	return d.room(func() error { return d.FS.Link(oldname, newname) })
}

// Rename gives a file another name.
func (d *disk) Rename(oldname, newname string) error {
	return d.room(func() error { return d.FS.Rename(oldname, newname) })
}

// syncWAL makes all that was written to the log durable.
func (d *disk) syncWAL() error {
	d.mu.Lock()
	open := append([]*wal(nil), d.wals...)
	d.mu.Unlock()
	for _, w := range open {
		if err := w.reallySync(); err != nil {
			return err
		}
	}
	return nil
}

// patientFile waits for room.
type patientFile struct {
	vfs.File
	d *disk
}

// Write writes all of p, however long there is no room.
func (f *patientFile) Write(p []byte) (int, error) {
	done := 0
	err := f.d.room(func() error {
		n, err := f.File.Write(p[done:])
		done += n
		return err
	})
	return done, err
}

// Sync waits for room too: a file system may find out late that it has none.
func (f *patientFile) Sync() error { return f.d.room(f.File.Sync) }

// SyncData is Sync without what only times and owners need.
func (f *patientFile) SyncData() error { return f.d.room(f.File.SyncData) }

// Preallocate only asks for a favour.
func (f *patientFile) Preallocate(offset, length int64) error {
	if err := f.File.Preallocate(offset, length); !isFull(err) {
		return err
	}
	return nil
}

// wal is a file of pebble's write-ahead log. A write that fails breaks the log
// for good, because what follows it could not be read back; pebble is not told,
// as it would end the process, and whoever waits for the write is told instead.
type wal struct {
	*patientFile
	mu    sync.Mutex // a sync, or the close
	dirty atomic.Bool
	lost  atomic.Bool

	end, reserved int64 // of the one goroutine that writes
}

// Write hands the bytes to the operating system.
func (w *wal) Write(p []byte) (int, error) {
	if w.lost.Load() {
		return len(p), nil
	}
	w.dirty.Store(true)
	w.reserve(len(p))
	if _, err := w.patientFile.Write(p); err != nil {
		w.lost.Store(true)
		w.d.broken(err)
	}
	return len(p), nil
}

// Preallocate does nothing: pebble asks for a whole log file's room at once,
// 70 MiB for a store that is mostly empty. See reserve.
func (w *wal) Preallocate(_, _ int64) error { return nil }

// walStep is how much room is taken for a log file at a time, in bytes. A sync
// is cheaper where the room is there already.
const walStep = 4 << 20

// reserve takes room ahead of a write. Not to get it is no error: the write
// itself will say.
func (w *wal) reserve(n int) {
	w.end += int64(n)
	if w.end > w.reserved {
		_ = w.patientFile.Preallocate(w.reserved, walStep)
		w.reserved += walStep
	}
}

// Sync does nothing: see disk.
func (w *wal) Sync() error { return nil }

// SyncData does nothing: see disk.
func (w *wal) SyncData() error { return nil }

// SyncTo does nothing: see disk.
func (w *wal) SyncTo(int64) (bool, error) { return false, nil }

// Close makes the file durable first: pebble takes an incomplete log file for
// damage if another one follows.
func (w *wal) Close() error {
	w.reallySync() // told through broken
	w.d.mu.Lock()
	for n, open := range w.d.wals {
		if open == w {
			w.d.wals = append(w.d.wals[:n], w.d.wals[n+1:]...)
			break
		}
	}
	w.d.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.File.Close()
}

func (w *wal) reallySync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Cleared before the sync: a write that comes meanwhile sets it again.
	if !w.dirty.Swap(false) || w.lost.Load() {
		return nil
	}
	err := w.patientFile.SyncData()
	if err != nil {
		// The kernel may have dropped the pages: a second sync would lie.
		w.lost.Store(true)
		w.d.broken(err)
	}
	return err
}

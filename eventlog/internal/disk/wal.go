package disk

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

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
		w.d.Broken(err)
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

// Sync does nothing: see Disk.
func (w *wal) Sync() error { return nil }

// SyncData does nothing: see Disk.
func (w *wal) SyncData() error { return nil }

// SyncTo does nothing: see Disk.
func (w *wal) SyncTo(int64) (bool, error) { return false, nil }

// Close makes the file durable first: pebble takes an incomplete log file for
// damage if another one follows.
func (w *wal) Close() error {
	w.reallySync() // told through Broken
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
	_ = w.File.Close() // all is synced; pebble would end the process
	return nil
}

// Stat tells the size of a log file that is used again, which pebble must get.
func (w *wal) Stat() (vfs.FileInfo, error) {
	info, err := w.File.Stat()
	if err != nil {
		return noFile{}.Stat()
	}
	return info, nil
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
		w.d.Broken(err)
	}
	return err
}

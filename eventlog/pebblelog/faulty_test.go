package pebblelog_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// faultyFS is a file system that can be full, and whose log syncs can be held or
// can fail.
type faultyFS struct {
	vfs.FS
	full     atomic.Bool
	broken   atomic.Bool
	free     atomic.Uint64
	logs     atomic.Int64          // files of the log that were begun
	begin    atomic.Pointer[error] // what the begin of a log file gives
	table    atomic.Pointer[error] // what the begin of any other file gives
	folder   atomic.Pointer[error] // what the sync of a folder gives
	refused  chan struct{}         // gets a value when a write finds no room
	entered  chan struct{}         // gets a value when a sync is held
	mu       sync.Mutex
	hung     chan struct{} // not nil: files are begun after its close
	released chan struct{} // not nil: syncs wait for its close
}

func newFaultyFS(fs vfs.FS) *faultyFS {
	return &faultyFS{FS: fs, refused: make(chan struct{}, 1), entered: make(chan struct{}, 1)}
}

// hold makes log syncs wait until release is called.
func (f *faultyFS) hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ch := make(chan struct{})
	f.released = ch
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.released = nil
		close(ch)
	})
}

// hang makes the begin of files wait until release is called.
func (f *faultyFS) hang() (release func()) {
	f.hung = make(chan struct{})
	return func() { close(f.hung) }
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (f *faultyFS) Create(name string, cat vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.trouble(cat); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, cat)
	return f.wrap(file, cat), err
}

func (f *faultyFS) ReuseForWrite(oldname, newname string, cat vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.trouble(cat); err != nil {
		return nil, err
	}
	file, err := f.FS.ReuseForWrite(oldname, newname, cat)
	return f.wrap(file, cat), err
}

func (f *faultyFS) trouble(cat vfs.DiskWriteCategory) error {
	f.mu.Lock()
	hung := f.hung
	f.mu.Unlock()
	if hung != nil && cat != "pebble-wal" {
		<-hung
	}
	which := &f.table
	if cat == "pebble-wal" {
		which = &f.begin
	}
	if err := which.Load(); err != nil {
		signal(f.refused)
		return *err
	}
	return nil
}

func (f *faultyFS) OpenDir(name string) (vfs.File, error) {
	file, err := f.FS.OpenDir(name)
	return faultyFolder{file, f}, err
}

type faultyFolder struct {
	vfs.File
	fs *faultyFS
}

func (f faultyFolder) Sync() error {
	if err := f.fs.folder.Load(); err != nil {
		return *err
	}
	return f.File.Sync()
}

func (f *faultyFS) wrap(file vfs.File, cat vfs.DiskWriteCategory) vfs.File {
	log := cat == "pebble-wal"
	if log {
		f.logs.Add(1)
	}
	return &faultyFile{File: file, fs: f, log: log}
}

func (f *faultyFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	if free := f.free.Load(); free > 0 {
		return vfs.DiskUsage{AvailBytes: free, TotalBytes: 100 << 30}, nil
	}
	return vfs.DiskUsage{}, errors.New("not known")
}

type faultyFile struct {
	vfs.File
	fs  *faultyFS
	log bool
}

func (f *faultyFile) Write(p []byte) (int, error) {
	if f.fs.full.Load() {
		n, _ := f.File.Write(p[:len(p)/2]) // a full disk takes a part
		signal(f.fs.refused)
		return n, syscall.ENOSPC
	}
	return f.File.Write(p)
}

func (f *faultyFile) Sync() error { return f.SyncData() }

func (f *faultyFile) SyncData() error {
	if !f.log {
		return f.File.SyncData()
	}
	f.fs.mu.Lock()
	released := f.fs.released
	f.fs.mu.Unlock()
	if released != nil {
		signal(f.fs.entered)
		<-released
	}
	if f.fs.broken.Load() {
		return syscall.EIO
	}
	return f.File.SyncData()
}

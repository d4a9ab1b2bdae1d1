// Package disk is the file system that pebble writes through. It takes three
// decisions away from pebble. A sync of the write-ahead log only hands the bytes
// to the operating system, which is enough to outlive this process; SyncWAL makes
// them outlive the machine, and is called when something waits for that. A full
// disk is waited out instead of failing a write half done. And nothing that fails
// is told where pebble would end the process for it; Broken is told instead.
package disk

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Disk is a vfs.FS for one store. The fields are set before it is used.
type Disk struct {
	vfs.FS
	Private bool            // restrict new files to their owner
	Closing <-chan struct{} // closed when nobody waits for room any more
	Full    func(error)     // told when a write begins to wait
	Broken  func(error)     // told what ends all writing
	Ended   func() error    // why writing has ended, nil if it has not
	Opening atomic.Bool     // nothing waits longer than Patience

	mu   sync.Mutex
	wals []*wal // open, oldest first

	waiting  atomic.Int32          // writes that wait for room
	lack     atomic.Pointer[error] // what the last one waits for
	troubled atomic.Int64          // when background work last failed, Unix time in nanoseconds
}

const (
	// Patience is how long a write waits for room while a store is opened.
	Patience = 10 * time.Second
	// RetryAfter is how long background work that failed is put off.
	RetryAfter = time.Second
)

// pebble's words for what a file is for.
const (
	category   = "pebble-wal"
	catalogues = "pebble-manifest"
)

// Waits tells what some write waits for, nil if none does.
func (d *Disk) Waits() error {
	if d.waiting.Load() == 0 {
		return nil
	}
	if lack := d.lack.Load(); lack != nil && !IsFull(*lack) {
		return fmt.Errorf("waiting for the system: %w", *lack)
	}
	return errors.New("the disk is full")
}

// Troubled takes note that background work failed.
func (d *Disk) Troubled() { d.troubled.Store(time.Now().UnixNano()) }

// IsFull tells whether an error is cured by room on the disk.
func IsFull(err error) bool {
	return err != nil && (vfs.IsNoSpaceError(err) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT))
}

// isShort tells whether an error is cured by the close of other files.
func isShort(err error) bool {
	return err != nil && (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE))
}

// Passes tells whether waiting may cure an error.
func Passes(err error) bool { return IsFull(err) || isShort(err) }

// room runs a write again until it does not fail for want of room or of files.
func (d *Disk) room(write func() error) error {
	err := write()
	if !Passes(err) {
		return err
	}
	d.lack.Store(&err)
	d.waiting.Add(1)
	defer d.waiting.Add(-1)
	d.Full(err)
	began := time.Now()
	for pause := 20 * time.Millisecond; Passes(err); pause = min(2*pause, time.Second) {
		if d.Opening.Load() && time.Since(began) > Patience {
			return err
		}
		select {
		case <-d.Closing:
			return err
		case <-time.After(pause):
		}
		err = write()
	}
	return err
}

// Create makes a file for writing.
func (d *Disk) Create(name string, cat vfs.DiskWriteCategory) (vfs.File, error) {
	return d.begin(name, cat, func() (vfs.File, error) { return d.FS.Create(name, cat) })
}

// OpenReadWrite opens or makes a file for writing.
func (d *Disk) OpenReadWrite(name string, cat vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return d.begin(name, cat, func() (vfs.File, error) { return d.FS.OpenReadWrite(name, cat, opts...) })
}

// ReuseForWrite takes an old file for a new one.
func (d *Disk) ReuseForWrite(oldname, newname string, cat vfs.DiskWriteCategory) (vfs.File, error) {
	return d.begin(newname, cat, func() (vfs.File, error) { return d.FS.ReuseForWrite(oldname, newname, cat) })
}

// begin begins a file. A log file that cannot be begun breaks the log; pebble,
// which would end the process, gets one that takes everything and keeps nothing.
func (d *Disk) begin(name string, cat vfs.DiskWriteCategory, file func() (vfs.File, error)) (vfs.File, error) {
	if cat != category {
		if err := d.rest(); err != nil {
			return nil, err
		}
	}
	f, err := d.beginNow(name, file)
	switch {
	case err == nil && cat == category:
		return d.track(&wal{patientFile: &patientFile{File: f, d: d}}), nil
	case err == nil:
		return &patientFile{File: f, d: d, catalogue: cat == catalogues}, nil
	case cat != category:
		return nil, err
	}
	d.Broken(fmt.Errorf("begin a log file: %w", err))
	w := &wal{patientFile: &patientFile{File: noFile{}, d: d}}
	w.lost.Store(true)
	return w, nil
}

func (d *Disk) beginNow(name string, file func() (vfs.File, error)) (f vfs.File, err error) {
	if err := d.room(func() error { f, err = file(); return err }); err != nil {
		return nil, err
	}
	if d.Private {
		if err := os.Chmod(name, 0o600); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

func (d *Disk) track(w *wal) *wal {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wals = append(d.wals, w)
	return w
}

// rest holds up pebble's background work, which tries again without a pause:
// for a while after it failed, and until Close once writing has ended.
func (d *Disk) rest() error {
	if err := d.Ended(); err != nil {
		<-d.Closing
		return err
	}
	pause := d.pause()
	if pause <= 0 {
		return nil
	}
	select {
	case <-d.Closing:
	case <-time.After(pause):
	}
	return nil
}

func (d *Disk) pause() time.Duration {
	return time.Until(time.Unix(0, d.troubled.Load()).Add(RetryAfter))
}

// Resting tells whether background work is put off because it failed just now.
func (d *Disk) Resting() bool { return d.pause() > 0 }

// Remove removes a file. Once writing has ended everything stays: what pebble
// believes then need not be so on the disk.
func (d *Disk) Remove(name string) error {
	if d.Ended() != nil {
		return nil
	}
	return d.FS.Remove(name)
}

// OpenDir opens a folder, for its Sync.
func (d *Disk) OpenDir(name string) (f vfs.File, err error) {
	if err := d.room(func() error { f, err = d.FS.OpenDir(name); return err }); err != nil {
		return nil, err
	}
	return &folder{File: f, d: d}, nil
}

// folder tells pebble nothing of a sync that failed, as it would end the process.
type folder struct {
	vfs.File
	d *Disk
}

// Sync makes the names in the folder durable.
func (f *folder) Sync() error {
	if err := f.d.room(f.File.Sync); err != nil {
		f.d.Broken(fmt.Errorf("sync the folder: %w", err))
	}
	return nil
}

// Link makes a second name for a file.
func (d *Disk) Link(oldname, newname string) error {
	return d.room(func() error { return d.FS.Link(oldname, newname) })
}

// Rename gives a file another name.
func (d *Disk) Rename(oldname, newname string) error {
	return d.room(func() error { return d.FS.Rename(oldname, newname) })
}

// SyncWAL makes all that was written to the log durable.
func (d *Disk) SyncWAL() error {
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
	d         *Disk
	catalogue bool // says which files there are
}

// Write writes all of p, however long there is no room.
func (f *patientFile) Write(p []byte) (int, error) {
	if f.catalogue {
		// Nothing may follow an entry of which nobody knows whether it is there.
		if err := f.d.Ended(); err != nil {
			return 0, err
		}
	}
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
	if err := f.File.Preallocate(offset, length); !IsFull(err) {
		return err
	}
	return nil
}

package disk

import (
	"io"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// noFile stands for a log file that could not be begun. It is empty.
type noFile struct{}

var _ vfs.File = noFile{}

func (noFile) Close() error                           { return nil }
func (noFile) Read([]byte) (int, error)               { return 0, io.EOF }
func (noFile) ReadAt([]byte, int64) (int, error)      { return 0, io.EOF }
func (noFile) Write(p []byte) (int, error)            { return len(p), nil }
func (noFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (noFile) Preallocate(int64, int64) error         { return nil }
func (noFile) Stat() (vfs.FileInfo, error)            { return noInfo{}, nil }
func (noFile) Sync() error                            { return nil }
func (noFile) SyncTo(int64) (bool, error)             { return true, nil }
func (noFile) SyncData() error                        { return nil }
func (noFile) Prefetch(int64, int64) error            { return nil }
func (noFile) Fd() uintptr                            { return vfs.InvalidFd }

type noInfo struct{}

func (noInfo) Name() string           { return "" }
func (noInfo) Size() int64            { return 0 }
func (noInfo) Mode() os.FileMode      { return 0o600 }
func (noInfo) ModTime() time.Time     { return time.Time{} }
func (noInfo) IsDir() bool            { return false }
func (noInfo) Sys() any               { return nil }
func (noInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }

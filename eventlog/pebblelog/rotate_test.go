package pebblelog_test

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/pebblelog"
)

// rotate appends an event that is too large for pebble's memtable: a new log
// file is begun for it.
func rotate(t *testing.T, l *pebblelog.Log, c eventlog.Claim, k eventlog.Key) error {
	after := top(t, l, k)
	a := step(c, k, after, true, eventlog.Progress)
	if after == 0 {
		a = step(c, k, after, true, eventlog.Opening)
	}
	a.Events[0].Data = bytes.Repeat([]byte("0123456789abcdef"), 40<<20/16)
	return l.Append(t.Context(), a)
}

// pebble ends the process, in a way that cannot be recovered from, where it
// cannot begin a log file.
func TestLogFileCannotBeBegun(t *testing.T) {
	for name, fault := range map[string]func(fs *faultyFS, err *error){
		"file":   func(fs *faultyFS, err *error) { fs.begin.Store(err) },
		"folder": func(fs *faultyFS, err *error) { fs.folder.Store(err) },
	} {
		for _, cause := range []error{os.ErrPermission, os.ErrNotExist, syscall.EIO} {
			t.Run(name+" "+cause.Error(), func(t *testing.T) {
				fs := newFaultyFS(vfs.NewMem())
				l := open(t, "store", pebblelog.Options{FS: fs})
				c, call := claim(t, l), stream("call")
				must(t, l.Append(t.Context(), step(c, call, 0, true, eventlog.Opening)))
				fault(fs, &cause)
				if err := rotate(t, l, c, stream("large")); !errors.Is(err, cause) {
					t.Fatalf("the append that needs the file: %v", err)
				}
				err := l.Append(t.Context(), step(c, call, 1, true, eventlog.Outcome))
				if !errors.Is(err, eventlog.ErrUnavailable) || !errors.Is(l.Healthy(), cause) {
					t.Fatalf("then: %v, and health: %v", err, l.Healthy())
				}
				if p, err := l.Read(t.Context(), call, 0, 100); err != nil || len(p.Events) != 1 {
					t.Fatalf("reading: %+v, %v", p, err)
				}
				if l.Close() == nil {
					t.Error("close says that all is written")
				}
				fault(fs, nil)
				l = open(t, "store", pebblelog.Options{FS: fs})
				if got := top(t, l, call); got != 1 {
					t.Fatalf("after a restart the top is %d", got)
				}
				must(t, l.Close())
			})
		}
	}
}

func TestNoFilesLeft(t *testing.T) {
	fs := newFaultyFS(vfs.NewMem())
	l := open(t, "store", pebblelog.Options{FS: fs})
	c, call := claim(t, l), stream("call")
	must(t, l.Append(t.Context(), step(c, call, 0, true, eventlog.Opening)))
	scarce := error(&os.PathError{Op: "open", Path: "file", Err: syscall.EMFILE})
	fs.begin.Store(&scarce)
	queued := make(chan error, 1)
	go func() { queued <- rotate(t, l, c, stream("large")) }()
	<-fs.refused
	for l.Healthy() == nil { // the wait begins right after the refusal
		time.Sleep(time.Millisecond)
	}
	if err := l.Healthy(); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("health: %v", err)
	}
	if err := l.Append(t.Context(), step(c, call, 1, true, eventlog.Outcome)); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Fatalf("meanwhile: %v", err)
	}
	if len(queued) > 0 {
		t.Fatalf("the queued append ended: %v", <-queued)
	}
	fs.begin.Store(nil)
	must(t, <-queued)
	for l.Healthy() != nil {
		time.Sleep(time.Millisecond)
	}
	must(t, l.Append(t.Context(), step(c, call, 1, true, eventlog.Outcome)))
	must(t, l.Close())
}

// The list of files is written after a flush, far from any caller; a failure of
// it ends writing, not the process, and nothing is removed any more.
func TestTablesCannotBeWritten(t *testing.T) {
	fs := newFaultyFS(vfs.NewMem())
	l := open(t, "store", pebblelog.Options{FS: fs})
	c, call := claim(t, l), stream("call")
	must(t, l.Append(t.Context(), step(c, call, 0, true, eventlog.Opening)))
	denied := error(os.ErrPermission)
	fs.table.Store(&denied)
	must(t, rotate(t, l, c, stream("large"))) // the flush behind it fails
	<-fs.refused
	must(t, l.Append(t.Context(), step(c, call, 1, true, eventlog.Outcome)))
	fs.table.Store(nil)
	must(t, l.Close())
	l = open(t, "store", pebblelog.Options{FS: fs})
	if got := top(t, l, call); got != 2 {
		t.Fatalf("after a restart the top is %d", got)
	}
}

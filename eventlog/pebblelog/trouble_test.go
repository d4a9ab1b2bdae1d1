package pebblelog_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/pebblelog"
)

func TestDiskFull(t *testing.T) {
	fs := newFaultyFS(vfs.NewMem())
	l := open(t, "store", pebblelog.Options{FS: fs})
	c, call := claim(t, l), stream("call")
	must(t, l.Append(t.Context(), step(c, call, 0, true, eventlog.Opening)))

	fs.full.Store(true)
	queued := make(chan error, 1)
	go func() { queued <- l.Append(context.Background(), step(c, call, 1, true, eventlog.Outcome)) }()
	<-fs.refused
	for l.Healthy() == nil { // the wait begins right after the refusal
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	err := l.Append(t.Context(), step(c, stream("other"), 0, true, eventlog.Opening))
	if !errors.Is(err, eventlog.ErrUnavailable) || time.Since(began) > 5*time.Second {
		t.Fatalf("with a full disk: %v", err)
	}
	if p, err := l.Read(t.Context(), call, 0, 100); err != nil || len(p.Events) != 1 {
		t.Fatalf("reading with a full disk: %+v, %v", p, err)
	}
	if len(queued) > 0 {
		t.Fatalf("the queued append ended: %v", <-queued)
	}
	fs.full.Store(false)
	must(t, <-queued)
	for l.Healthy() != nil {
		time.Sleep(time.Millisecond)
	}
	must(t, l.Append(t.Context(), step(c, call, 2, true, eventlog.End)))
	must(t, l.Close())
	l = open(t, "store", pebblelog.Options{FS: fs})
	if got := top(t, l, call); got != 3 {
		t.Fatalf("after a restart the top is %d", got)
	}
}

func TestCloseWithFullDisk(t *testing.T) {
	fs := newFaultyFS(vfs.NewMem())
	l := open(t, "store", pebblelog.Options{FS: fs})
	c, call := claim(t, l), stream("call")
	must(t, l.Append(t.Context(), step(c, call, 0, true, eventlog.Opening)))
	fs.full.Store(true)
	queued := make(chan error, 1)
	go func() { queued <- l.Append(context.Background(), step(c, call, 1, false, eventlog.Progress)) }()
	<-fs.refused
	if err := l.Close(); err == nil {
		t.Error("close says that all is written")
	}
	if err := <-queued; err == nil {
		t.Error("the queued append was acknowledged")
	}
	fs.full.Store(false)
	l = open(t, "store", pebblelog.Options{FS: fs})
	if got := top(t, l, call); got != 1 {
		t.Fatalf("after a restart the top is %d", got)
	}
}

// After a sync that failed the kernel may have dropped the pages: a later sync
// would succeed and mean nothing.
func TestFailedSyncEndsWriting(t *testing.T) {
	fs := newFaultyFS(vfs.NewMem())
	failures := 0
	l := open(t, "store", pebblelog.Options{FS: fs, Metrics: pebblelog.Metrics{StoreError: func(error) { failures++ }}})
	c, call := claim(t, l), stream("call")
	must(t, l.Append(t.Context(), step(c, call, 0, true, eventlog.Opening)))
	fs.broken.Store(true)
	if err := l.Append(t.Context(), step(c, call, 1, true, eventlog.Outcome)); err == nil {
		t.Fatal("an outcome counts whose sync failed")
	}
	fs.broken.Store(false)
	if err := l.Append(t.Context(), step(c, stream("other"), 0, true, eventlog.Opening)); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Fatalf("then: %v", err)
	}
	if p, err := l.Read(t.Context(), call, 0, 100); err != nil || len(p.Events) != 1 || p.Top != 1 {
		t.Fatalf("reading after a failed sync: %+v, %v", p, err)
	}
	if l.Healthy() == nil || failures == 0 {
		t.Error("the failure is not told")
	}
	if l.Close() == nil {
		t.Error("close says that all is written")
	}
	l = open(t, "store", pebblelog.Options{FS: fs})
	if got := top(t, l, call); got == 0 {
		t.Fatal("what was acknowledged is gone")
	}
}

func TestNearlyFullDiskOpensNothing(t *testing.T) {
	fs := newFaultyFS(vfs.NewMem())
	fs.free.Store(1 << 20)
	l := open(t, "store", pebblelog.Options{FS: fs})
	c, call := claim(t, l), stream("call")
	var err error
	for range 1000 { // the first look at the disk comes right after the start
		if err = l.Append(t.Context(), step(c, call, top(t, l, call), false, eventlog.Progress)); err != nil {
			break
		}
		must(t, l.Drop(t.Context(), call, c.Fence, nil))
		time.Sleep(time.Millisecond)
	}
	if !errors.Is(err, eventlog.ErrUnavailable) {
		t.Fatalf("a stream was opened: %v", err)
	}
	must(t, l.Append(t.Context(), eventlog.Append{Key: eventlog.Key{Session: "s"}, Fence: c.Fence, Record: []byte("r")}))
}

func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, pebblelog.Options{})
	_, err := pebblelog.Open(dir, pebblelog.Options{})
	refused(t, err, pebblelog.ErrLocked, "stop the other process")
	must(t, l.Close())
	must(t, open(t, dir, pebblelog.Options{}).Close())
}

func TestOneUpstream(t *testing.T) {
	fs := vfs.NewMem()
	must(t, open(t, "store", pebblelog.Options{FS: fs, Fingerprint: "one"}).Close())
	_, err := pebblelog.Open("store", pebblelog.Options{FS: fs, Fingerprint: "two"})
	refused(t, err, pebblelog.ErrForeign, "--store")
	must(t, open(t, "store", pebblelog.Options{FS: fs}).Close())
	must(t, open(t, "store", pebblelog.Options{FS: fs, Fingerprint: "one"}).Close())
}

func TestNotAStore(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "letter.txt"), []byte("dear"), 0o644))
	_, err := pebblelog.Open(dir, pebblelog.Options{})
	refused(t, err, pebblelog.ErrNoStore, "empty folder")
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

func TestPurge(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	l := open(t, dir, pebblelog.Options{})
	claim(t, l)
	refused(t, pebblelog.Purge(dir), pebblelog.ErrLocked, "stop")
	must(t, l.Close())
	must(t, pebblelog.Purge(dir))
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the folder is still there: %v", err)
	}
	other := t.TempDir()
	must(t, os.WriteFile(filepath.Join(other, "letter.txt"), []byte("dear"), 0o644))
	refused(t, pebblelog.Purge(other), pebblelog.ErrNoStore, "")
	if _, err := os.Stat(filepath.Join(other, "letter.txt")); err != nil {
		t.Fatal(err)
	}
}

// An event larger than half of pebble's memtable takes another way through it.
func TestHugeEvent(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, pebblelog.Options{})
	c, call := claim(t, l), stream("call")
	huge := bytes.Repeat([]byte("0123456789abcdef"), 64<<20/16)
	a := step(c, call, 0, true, eventlog.Opening, eventlog.Progress, eventlog.Outcome)
	a.Events[2].Data = huge
	must(t, l.Append(t.Context(), a))
	must(t, l.Append(t.Context(), step(c, call, 3, true, eventlog.End)))
	check := func() {
		t.Helper()
		p, err := l.Read(t.Context(), call, 2, 100)
		must(t, err)
		if len(p.Events) != 1 || !bytes.Equal(p.Events[0].Data, huge) || p.Top != 4 {
			t.Fatalf("%d events, top %d", len(p.Events), p.Top)
		}
	}
	check()
	must(t, l.Close())
	l = open(t, dir, pebblelog.Options{})
	check()
}

func TestParseSync(t *testing.T) {
	for name, want := range map[string]pebblelog.Sync{"outcomes": pebblelog.SyncOutcomes, "always": pebblelog.SyncAlways, "os": pebblelog.SyncOS} {
		if got, err := pebblelog.ParseSync(name); got != want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := pebblelog.ParseSync("Never"); err == nil || !strings.Contains(err.Error(), "outcomes, always, os") {
		t.Errorf("got %v", err)
	}
}

func TestOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "store")
	must(t, os.MkdirAll(dir, 0o755))
	l := open(t, dir, pebblelog.Options{})
	claim(t, l)
	if l.Size() == 0 {
		t.Error("the store takes no room")
	}
	info, err := os.Stat(dir)
	must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("folder %v", info.Mode())
	}
	names, err := os.ReadDir(dir)
	must(t, err)
	for _, name := range names {
		info, err := name.Info()
		must(t, err)
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v", name.Name(), info.Mode())
		}
	}
}

// A torn end of the log is what a crash leaves and is cut off; damage anywhere
// else is refused, with a word on what to do, and never a panic.
func TestDamage(t *testing.T) {
	for _, kind := range []string{"MANIFEST-", ".sst", "marker.format-version", "CURRENT", "marker.manifest"} {
		t.Run(kind, func(t *testing.T) {
			dir := filledStore(t)
			hit := 0
			names, err := os.ReadDir(dir)
			must(t, err)
			for _, name := range names {
				if !strings.Contains(name.Name(), kind) {
					continue
				}
				hit++
				path := filepath.Join(dir, name.Name())
				if strings.HasPrefix(kind, "marker") {
					must(t, os.Rename(path, path+"x"))
					continue
				}
				b, err := os.ReadFile(path)
				must(t, err)
				must(t, os.WriteFile(path, bytes.Repeat([]byte("damage"), len(b)/6+1), 0o600))
			}
			if hit == 0 {
				return // not a file of this version of pebble
			}
			l, err := pebblelog.Open(dir, pebblelog.Options{})
			if err == nil {
				_, err = l.Read(t.Context(), stream("call"), 0, 1<<20)
				if err == nil {
					t.Fatal("damage is not seen")
				}
				l.Close()
				return
			}
			var e *pebblelog.Error
			if !errors.As(err, &e) || !strings.Contains(e.Hint(), "segno purge") {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestTornLog(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, pebblelog.Options{})
	c := claim(t, l)
	for after := range uint64(50) {
		must(t, l.Append(t.Context(), step(c, stream("call"), after, false, eventlog.Progress)))
	}
	must(t, l.Close())
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	must(t, err)
	if len(logs) == 0 {
		t.Fatal("no log file")
	}
	last := logs[len(logs)-1]
	info, err := os.Stat(last)
	must(t, err)
	for cut := int64(1); cut < 400; cut += 37 {
		must(t, os.Truncate(last, info.Size()-cut))
		copied := t.TempDir()
		must(t, os.CopyFS(filepath.Join(copied, "store"), os.DirFS(dir)))
		l := open(t, filepath.Join(copied, "store"), pebblelog.Options{})
		got := top(t, l, stream("call"))
		if got == 0 || got > 50 {
			t.Fatalf("cut by %d: top %d", cut, got)
		}
		c := claim(t, l)
		must(t, l.Append(t.Context(), step(c, stream("call"), got, true, eventlog.Progress)))
		must(t, l.Close())
	}
}

// filledStore has events in the log and in tables.
func filledStore(t *testing.T) string {
	dir := t.TempDir()
	for range 3 { // each opening turns the log into a table
		l := open(t, dir, pebblelog.Options{})
		c := claim(t, l)
		at := top(t, l, stream("call"))
		for n := range uint64(20) {
			must(t, l.Append(t.Context(), step(c, stream("call"), at+n, true, eventlog.Other)))
		}
		must(t, l.Close())
	}
	return dir
}

func refused(t *testing.T, err, want error, hint string) {
	t.Helper()
	var e *pebblelog.Error
	if !errors.As(err, &e) || !errors.Is(err, want) || !strings.Contains(e.Hint(), hint) || !strings.HasPrefix(err.Error(), "open store ") {
		t.Fatalf("got %v", err)
	}
}

package pebblelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/pebblelog"
)

// A flipped byte in a table: the start must not wait for a compaction that can
// never end, what is fine is read, and the rest is refused.
func TestFlippedByte(t *testing.T) {
	dir := t.TempDir()
	for n := range 4 { // each opening makes a table; the last one begins a compaction
		l := open(t, dir, pebblelog.Options{})
		c := claim(t, l)
		call := stream(fmt.Sprint("call-", n))
		a := step(c, call, 0, true, eventlog.Opening, eventlog.Other)
		a.Events[1].Data = bytes.Repeat([]byte(fmt.Sprint("payload ", n)), 1000)
		must(t, l.Append(t.Context(), a))
		must(t, l.Close())
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	must(t, err)
	if len(tables) < 2 {
		t.Fatalf("%d tables", len(tables))
	}
	last := tables[len(tables)-1]
	b, err := os.ReadFile(last)
	must(t, err)
	b[len(b)/8] ^= 0x40
	must(t, os.WriteFile(last, b, 0o600))

	began := time.Now()
	var out lines
	l, err := pebblelog.Open(dir, pebblelog.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if time.Since(began) > 30*time.Second {
		t.Fatal("the start took for ever")
	}
	if err != nil {
		refused(t, err, pebblelog.ErrDamaged, "segno purge")
		return
	}
	defer l.Close()
	damaged, fine := 0, 0
	for n := range 4 {
		p, err := l.Read(t.Context(), stream(fmt.Sprint("call-", n)), 0, 1<<20)
		switch {
		case errors.Is(err, eventlog.ErrDamaged) && !strings.Contains(err.Error(), "\n"):
			damaged++
		case err == nil && len(p.Events) == 2:
			fine++
		default:
			t.Errorf("stream %d: %+v, %v", n, p, err)
		}
	}
	if damaged == 0 || fine == 0 {
		t.Errorf("%d damaged, %d fine", damaged, fine)
	}
	if !errors.Is(l.Healthy(), eventlog.ErrDamaged) {
		t.Errorf("health: %v", l.Healthy())
	}
	if _, err := l.Claim(t.Context(), "other", true); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("a claim on a damaged store: %v", err)
	}
	if n := out.count(); n == 0 || n > 20 {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}

// pebble tries again at once what failed.
func TestBackgroundErrorsAreFew(t *testing.T) {
	fs := newFaultyFS(vfs.NewMem())
	var out lines
	l := open(t, "store", pebblelog.Options{FS: fs, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	c := claim(t, l)
	denied := error(os.ErrPermission)
	fs.table.Store(&denied)
	must(t, rotate(t, l, c, stream("large")))
	<-fs.refused
	began := time.Now()
	<-fs.refused
	if pause := time.Since(began); pause < 500*time.Millisecond {
		t.Errorf("tried again after %v", pause)
	}
	fs.table.Store(nil)
	must(t, l.Close())
	if n := out.count(); n == 0 || n > 10 || strings.Contains(out.String(), "stack trace") {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}

// lines are log lines that are written by many.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) count() int { return strings.Count(l.String(), "\n") }

func TestOpenEnds(t *testing.T) {
	mem := vfs.NewMem()
	l := open(t, "store", pebblelog.Options{FS: mem})
	c := claim(t, l)
	must(t, l.Append(t.Context(), step(c, stream("call"), 0, true, eventlog.Opening)))
	must(t, l.Close())
	t.Run("failing", func(t *testing.T) {
		fs := newFaultyFS(mem)
		denied := error(os.ErrPermission)
		fs.table.Store(&denied)
		_, err := pebblelog.Open("store", pebblelog.Options{FS: fs})
		refused(t, err, os.ErrPermission, "can be written")
		fs.table.Store(nil) // what was left to itself ends now
		l := openSoon(t, "store", pebblelog.Options{FS: fs})
		must(t, l.Close())
	})
	t.Run("silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fs := newFaultyFS(mem)
			release := fs.hang()
			defer release()
			_, err := pebblelog.Open("store", pebblelog.Options{FS: fs})
			var e *pebblelog.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), "did not end within") || e.Hint() == "" {
				t.Errorf("got %v", err)
			}
		})
	})
}

// openSoon opens a store that is still locked by an opening that was given up.
func openSoon(t *testing.T, dir string, o pebblelog.Options) *pebblelog.Log {
	t.Helper()
	for {
		l, err := pebblelog.Open(dir, o)
		if err == nil {
			return l
		}
		if !errors.Is(err, pebblelog.ErrLocked) || t.Context().Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A reader leaves while the log is closed.
func TestCloseWhileReadersLeave(t *testing.T) {
	l := open(t, "store", pebblelog.Options{FS: vfs.NewMem()})
	var leaving sync.WaitGroup
	for n := range 4 {
		stops := make([]func(), 2000)
		for i := range stops {
			stops[i] = l.Watch(stream(fmt.Sprint(n, "-", i)), make(chan struct{}, 1))
		}
		leaving.Go(func() {
			for _, stop := range stops {
				stop()
			}
		})
	}
	must(t, l.Close())
	leaving.Wait()
}

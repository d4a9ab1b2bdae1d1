package pebblelog

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/internal/disk"
)

// fail ends all writing. What was acknowledged stays, and can be read.
func (l *Log) fail(err error) {
	l.interrupt(err)
	err = fmt.Errorf("the store failed and takes nothing until a restart: %w", err)
	if l.failed.CompareAndSwap(nil, &err) {
		hint := "look after the disk, then restart"
		if errors.Is(err, eventlog.ErrDamaged) {
			hint = "what is fine can still be read; " + emptyIt
		}
		l.logger.Error("store", "error", brief(err), "hint", hint)
		l.metrics.StoreError(err)
	}
}

func (l *Log) failure() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// background takes note of what failed without a caller. pebble tries again and
// again, so there is a line a second at most.
func (l *Log) background(err error) {
	l.metrics.StoreError(err)
	if more, ok := l.talk.turn(time.Now()); ok {
		l.logger.Warn("store", "error", brief(err), "unsaid", more)
	}
}

// emptyTable is how pebble, without a name for it, says that a flush had nothing
// to write.
const emptyTable = "pebble: empty table"

// attempted takes note of a flush or a compaction. pebble tries what failed
// again at once; a failure also ends the wait of Open, which would wait for ever.
func (l *Log) attempted(err error) {
	if err == nil || errors.Is(err, pebble.ErrCancelledCompaction) || err.Error() == emptyTable {
		return
	}
	l.disk.Troubled()
	if pebble.IsCorruptionError(err) {
		l.fail(fmt.Errorf("%w: %w", eventlog.ErrDamaged, oneLine{err}))
	}
	l.interrupt(err)
}

// corrupted ends writing where a file of the store is damaged: what pebble would
// write next could rest on it.
func (l *Log) corrupted(i pebble.DataCorruptionInfo) {
	l.fail(fmt.Errorf("%w: %s: %w", eventlog.ErrDamaged, i.Path, oneLine{i.Details}))
}

// damaged takes note of an error in reading.
func (l *Log) damaged(err error) error {
	if err == nil {
		return nil
	}
	l.metrics.StoreError(err)
	return fmt.Errorf("read store: %w", l.told(err))
}

// told says what a caller can make of an error in reading.
func (l *Log) told(err error) error {
	switch {
	case errors.Is(err, eventlog.ErrDamaged) || errors.Is(err, eventlog.ErrUnavailable):
	case pebble.IsCorruptionError(err) || errors.Is(err, errBlock):
		return fmt.Errorf("%w: %w", eventlog.ErrDamaged, oneLine{err})
	case disk.Passes(err):
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	return err
}

// interrupt ends the wait of Open, if it waits.
func (l *Log) interrupt(err error) {
	select {
	case l.trouble <- err:
	default:
	}
}

// brief is an error without the stack that pebble gives it.
func brief(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// oneLine is an error of pebble's in one line.
type oneLine struct{ error }

func (e oneLine) Error() string { return brief(e.error) }

// Unwrap returns the cause.
func (e oneLine) Unwrap() error { return e.error }

// talk gives a turn once a second.
type talk struct {
	mu     sync.Mutex
	last   time.Time
	unsaid int
}

// turn tells whether it is time to speak, and how many turns were refused since.
func (t *talk) turn(now time.Time) (unsaid int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.last) < time.Second {
		t.unsaid++
		return 0, false
	}
	unsaid, t.last, t.unsaid = t.unsaid, now, 0
	return unsaid, true
}

// pebbleLogger takes what pebble has to say. pebble calls Fatalf where it sees no
// way on and expects the process to end; here writing ends, reading goes on.
type pebbleLogger struct{ l *Log }

func (p pebbleLogger) Infof(format string, args ...any) {}

func (p pebbleLogger) Errorf(format string, args ...any) {
	if more, ok := p.l.talk.turn(time.Now()); ok {
		p.l.logger.Error("store", "error", brief(fmt.Errorf(format, args...)), "unsaid", more)
	}
}

func (p pebbleLogger) Fatalf(format string, args ...any) {
	p.l.fail(fmt.Errorf(format, args...))
}

// compactions lets pebble compact: not before the store is open, as opening waits
// for what runs; not for a second after something failed, as pebble tries again
// at once; and not after writing has ended.
type compactions struct {
	log *Log
	db  pebble.DBForCompaction

	mu      sync.Mutex // never held while pebble is called, but for the number it allows
	open    bool
	running int
	more    chan struct{} // has room for one
	stop    chan struct{}
	done    sync.WaitGroup
}

func newCompactions(l *Log) *compactions {
	return &compactions{log: l, more: make(chan struct{}, 1), stop: make(chan struct{})}
}

// Register implements pebble.CompactionScheduler.
func (c *compactions) Register(_ int, db pebble.DBForCompaction) { c.db = db }

// begin opens the gate.
func (c *compactions) begin() {
	c.mu.Lock()
	c.open = true
	c.mu.Unlock()
	c.done.Go(c.grant)
}

// Unregister implements pebble.CompactionScheduler.
func (c *compactions) Unregister() {
	c.mu.Lock()
	c.open = false
	c.mu.Unlock()
	close(c.stop)
	c.done.Wait()
}

// TrySchedule implements pebble.CompactionScheduler.
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open || c.log.failure() != nil || c.log.disk.Resting() || c.running >= c.db.GetAllowedWithoutPermission() {
		return false, nil
	}
	c.running++
	return true, c
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler.
func (c *compactions) UpdateGetAllowedWithoutPermission() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// grant offers what was refused before.
func (c *compactions) grant() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
		case <-c.more:
		}
		for c.offer() {
		}
	}
}

func (c *compactions) offer() (taken bool) {
	if waiting, _ := c.db.GetWaitingCompaction(); !waiting {
		return false
	}
	ok, handle := c.TrySchedule()
	if !ok {
		return false
	}
	if c.db.Schedule(handle) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	return false
}

// Started implements pebble.CompactionGrantHandle.
func (c *compactions) Started() {}

// MeasureCPU implements pebble.CompactionGrantHandle.
func (c *compactions) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements pebble.CompactionGrantHandle.
func (c *compactions) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done implements pebble.CompactionGrantHandle.
func (c *compactions) Done() {
	c.mu.Lock()
	c.running--
	c.mu.Unlock()
	c.UpdateGetAllowedWithoutPermission()
}

package pebblelog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/segno-mcp/segno/eventlog"
)

// groupBytes is how much one write to pebble gathers at most.
const groupBytes = 1 << 20

// op is one step that waits to be written.
type op struct {
	// add checks the step and puts it into the group's batch. It runs in the
	// committer, which alone changes what the store says, so it may trust what
	// it reads of memory; of pebble only if alone is set.
	add func(g *group) error
	// publish makes the step visible, after it is as durable as it must be.
	publish func()
	// alone steps get a group of their own.
	alone bool
	sync  bool // it counts after the next sync
	done  chan error

	// An append has its fields here instead of in closures: there are many.
	append bool
	a      eventlog.Append
	lv     *live // that it writes to, nil if to none
	term   string
	to     state // of the stream after it
}

// group is what is written to pebble at once.
type group struct {
	batch *pebble.Batch
	ops   []*op
	// What the group says and pebble does not know yet.
	names map[string]eventlog.Key
	dates map[eventlog.Key]int64
}

// queue holds the steps that came while the committer was busy. They become the
// next group: nobody waits for company.
type queue struct {
	mu     sync.Mutex
	ops    []*op
	closed bool
	more   chan struct{} // has room for one
}

func (q *queue) put(o *op) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return eventlog.ErrClosed
	}
	q.ops = append(q.ops, o)
	q.wake()
	return nil
}

func (q *queue) wake() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *queue) take(into []*op) (ops []*op, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ops, q.ops = q.ops, into[:0]
	return ops, q.closed
}

func (q *queue) close() (already bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	already, q.closed = q.closed, true
	q.wake()
	return already
}

// do hands a step to the committer and waits until it is visible. It does not
// give up halfway: the caller would not know what became of the step.
func (l *Log) do(ctx context.Context, o *op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.queue.isClosed() {
		return eventlog.ErrClosed
	}
	if err := l.writable(); err != nil {
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	if o.done == nil {
		o.done = make(chan error, 1)
	}
	began := time.Now()
	if err := l.queue.put(o); err != nil {
		return err
	}
	err := <-o.done
	l.metrics.StoreLatency(time.Since(began))
	return err
}

func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// commit is the committer: it writes the steps that wait, group by group.
func (l *Log) commit() {
	g := &group{batch: l.db.NewBatchWithSize(64 << 10), names: map[string]eventlog.Key{}, dates: map[eventlog.Key]int64{}}
	var ops []*op
	for {
		<-l.queue.more
		for {
			var closed bool
			if ops, closed = l.queue.take(ops); len(ops) == 0 {
				if closed {
					return
				}
				break
			}
			for _, o := range ops {
				l.join(g, o)
			}
			l.flush(g)
			clear(ops)
		}
	}
}

// join adds a step to the group, after what has to be written before.
func (l *Log) join(g *group, o *op) {
	if o.alone || g.batch.Len() > groupBytes {
		l.flush(g)
	}
	if err := l.failure(); err != nil {
		o.done <- err
		return
	}
	before := g.batch.Len()
	add := o.add
	if o.append {
		add = func(g *group) error { return l.add(g, o) }
	}
	if err := add(g); err != nil {
		if g.batch.Len() != before {
			l.fail(err) // half a step is in the batch
		}
		o.done <- l.told(err)
		return
	}
	g.ops = append(g.ops, o)
	if o.alone {
		l.flush(g)
	}
}

// flush writes the group. When it returns the operating system has it; what
// needs a sync goes on to the syncer.
func (l *Log) flush(g *group) {
	if len(g.ops) == 0 {
		return
	}
	err := l.failure()
	if err == nil && !g.batch.Empty() {
		err = l.apply(g.batch)
	}
	var late []*op
	for _, o := range g.ops {
		switch {
		case err != nil:
			o.done <- err
		case o.sync:
			late = append(late, o)
		default:
			l.end(o)
		}
	}
	if err == nil {
		l.syncer.put(late)
	}
	clear(g.ops)
	g.ops = g.ops[:0]
	clear(g.names)
	clear(g.dates)
}

// end makes a step visible and tells its caller, who may use it again at once.
func (l *Log) end(o *op) {
	switch {
	case o.append && o.lv != nil:
		l.publish(o)
	case o.publish != nil:
		o.publish()
	}
	o.done <- nil
}

// apply writes the batch to pebble and empties it. After an error nothing is
// written any more: pebble's state and ours may differ.
func (l *Log) apply(b *pebble.Batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			l.stuck.Store(true) // it may hold locks now
			err = fmt.Errorf("pebble: %v", p)
		}
		if err != nil {
			l.fail(err)
		}
	}()
	// pebble.Sync waits until the log's bytes are written; disk makes the sync
	// itself a matter of the syncer. NoSync would keep them in this process.
	if err := l.db.Apply(b, pebble.Sync); err != nil {
		return err
	}
	b.Reset()
	return errors.Join(l.settle(), l.failure())
}

package memlog

import (
	"cmp"
	"container/heap"

	"github.com/segno-mcp/segno/eventlog"
)

// dueIndex orders armed keys by their date, then by name.
type dueIndex struct {
	heap []*armed
	of   map[eventlog.Key]*armed
}

type armed struct {
	key eventlog.Key
	at  int64
	pos int
}

func (d *dueIndex) arm(k eventlog.Key, at int64) {
	if a := d.of[k]; a != nil {
		a.at = at
		heap.Fix(d, a.pos)
		return
	}
	a := &armed{key: k, at: at}
	d.of[k] = a
	heap.Push(d, a)
}

func (d *dueIndex) disarm(k eventlog.Key) {
	if a := d.of[k]; a != nil {
		heap.Remove(d, a.pos)
		delete(d.of, k)
	}
}

// until takes what is due out in order and puts it back.
func (d *dueIndex) until(now int64, limit int) []eventlog.Key {
	var out []*armed
	for len(out) < limit && len(d.heap) > 0 && d.heap[0].at <= now {
		out = append(out, heap.Pop(d).(*armed))
	}
	keys := make([]eventlog.Key, 0, len(out))
	for _, a := range out {
		keys = append(keys, a.key)
		heap.Push(d, a)
	}
	return keys
}

// Len, Less, Swap, Push and Pop are container/heap's.
func (d *dueIndex) Len() int { return len(d.heap) }

func (d *dueIndex) Less(i, j int) bool {
	a, b := d.heap[i], d.heap[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.key.Session, b.key.Session),
		cmp.Compare(a.key.Stream, b.key.Stream)) < 0
}

func (d *dueIndex) Swap(i, j int) {
	d.heap[i], d.heap[j] = d.heap[j], d.heap[i]
	d.heap[i].pos, d.heap[j].pos = i, j
}

func (d *dueIndex) Push(x any) {
	a := x.(*armed)
	a.pos = len(d.heap)
	d.heap = append(d.heap, a)
}

func (d *dueIndex) Pop() any {
	n := len(d.heap) - 1
	a := d.heap[n]
	d.heap[n] = nil
	d.heap = d.heap[:n]
	return a
}

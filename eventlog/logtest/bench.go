package logtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/segno-mcp/segno/eventlog"
)

// Benchmark measures a back end: appends of one event and of a hundred, with and
// without a reader at the tail, and a replay.
func Benchmark(b *testing.B, open func(b *testing.B) eventlog.Log) {
	b.Run("Append1", func(b *testing.B) { benchAppend(b, open(b), 1, false, 64) })
	b.Run("Append1Writer", func(b *testing.B) { benchAppend(b, open(b), 1, false, 1) })
	b.Run("Append100", func(b *testing.B) { benchAppend(b, open(b), 100, false, 8) })
	b.Run("AppendAndTail100", func(b *testing.B) { benchAppend(b, open(b), 100, true, 8) })
	b.Run("Durable", func(b *testing.B) { benchDurable(b, open(b)) })
	b.Run("Replay10000", func(b *testing.B) { benchReplay(b, open(b)) })
}

const benchEvent = 200

func benchEvents(n int) []eventlog.Event {
	out := make([]eventlog.Event, n)
	for i := range out {
		const text = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":%d,"total":1000000,"message":"row %d of the export was written to the file"}}`
		data := fmt.Appendf(nil, text, i*7919%1000, i, i*104729)
		for len(data) < benchEvent {
			data = append(data, ' ')
		}
		out[i] = eventlog.Event{Kind: eventlog.Progress, Time: 1_700_000_000_000_000_000 + int64(i)*1000, Data: data[:benchEvent]}
	}
	return out
}

// benchAppend has many streams written at once, and trimmed to a window.
func benchAppend(b *testing.B, log eventlog.Log, batch int, tail bool, writers int) {
	const window = 10_000
	ctx := context.Background()
	events := benchEvents(batch)
	b.ReportAllocs()
	b.SetBytes(int64(batch) * benchEvent)
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan error)
	b.ResetTimer()
	for w := range writers {
		k := eventlog.Key{Session: fmt.Sprint("session ", w), Stream: "stream"}
		owner, err := log.Claim(ctx, k.Session, true)
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			after := uint64(0)
			for left.Add(-1) >= 0 {
				a := eventlog.Append{Key: k, Fence: owner.Fence, After: after, Events: events}
				if err := log.Append(ctx, a); err != nil {
					done <- err
					return
				}
				if after += uint64(batch); after > window && after/1000 != (after-uint64(batch))/1000 {
					if _, err := log.Trim(ctx, k, owner.Fence, after-window, eventlog.Pinned); err != nil {
						done <- err
						return
					}
				}
			}
			done <- log.Append(ctx, eventlog.Append{Key: k, Fence: owner.Fence, After: after, Events: []eventlog.Event{{Kind: eventlog.End}}})
		}()
		if tail {
			go func() { done <- drain(ctx, log, k) }()
		}
	}
	if tail {
		writers *= 2
	}
	for range writers {
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "events/s")
}

func drain(ctx context.Context, log eventlog.Log, k eventlog.Key) error {
	hint := make(chan struct{}, 1)
	f := eventlog.Follow(log, k, 0, hint)
	defer f.Close()
	for {
		step, err := f.Next(ctx, 64<<10)
		switch {
		case err == eventlog.ErrNoStream:
			<-hint
		case err != nil:
			return err
		case step.Gap != nil || len(step.Page.Events) > 0:
		case step.Page.Ended:
			return nil
		default:
			<-hint
		}
	}
}

// benchDurable has 64 calls answered at once, each outcome synced.
func benchDurable(b *testing.B, log eventlog.Log) {
	ctx := context.Background()
	owner, err := log.Claim(ctx, "session", true)
	if err != nil {
		b.Fatal(err)
	}
	events := benchEvents(2)
	events[0].Kind, events[1].Kind = eventlog.Opening, eventlog.Outcome
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			k := eventlog.Key{Session: "session", Stream: fmt.Sprint(n.Add(1))}
			for after := range uint64(2) {
				a := eventlog.Append{Key: k, Fence: owner.Fence, After: after, Events: events[after : after+1], Durable: true}
				if err := log.Append(ctx, a); err != nil {
					b.Error(err)
					return
				}
			}
		}
	})
	b.ReportMetric(float64(b.N*2)/b.Elapsed().Seconds(), "appends/s")
}

func benchReplay(b *testing.B, log eventlog.Log) {
	ctx := context.Background()
	k := eventlog.Key{Session: "session", Stream: "stream"}
	owner, err := log.Claim(ctx, k.Session, true)
	if err != nil {
		b.Fatal(err)
	}
	events := benchEvents(1)
	for after := range uint64(10_000) {
		if err := log.Append(ctx, eventlog.Append{Key: k, Fence: owner.Fence, After: after, Events: events}); err != nil {
			b.Fatal(err)
		}
	}
	log.Release(k.Session)
	b.SetBytes(10_000 * benchEvent)
	b.ReportAllocs()
	for b.Loop() {
		for after := uint64(0); after < 10_000; {
			p, err := log.Read(ctx, k, after, 256<<10)
			if err != nil || len(p.Events) == 0 {
				b.Fatalf("after %d: %d events, %v", after, len(p.Events), err)
			}
			after = p.Events[len(p.Events)-1].Seq
		}
	}
	b.ReportMetric(float64(b.N)*10_000/b.Elapsed().Seconds(), "events/s")
}

package pebblelog_test

import (
	"testing"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/logtest"
	"github.com/segno-mcp/segno/eventlog/pebblelog"
)

func BenchmarkOutcomes(b *testing.B) { bench(b, pebblelog.SyncOutcomes) }
func BenchmarkAlways(b *testing.B)   { bench(b, pebblelog.SyncAlways) }
func BenchmarkOS(b *testing.B)       { bench(b, pebblelog.SyncOS) }

func bench(b *testing.B, sync pebblelog.Sync) {
	logtest.Benchmark(b, func(b *testing.B) eventlog.Log {
		return open(b, b.TempDir(), pebblelog.Options{Sync: sync})
	})
}

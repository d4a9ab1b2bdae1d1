package memlog_test

import (
	"testing"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/logtest"
	"github.com/segno-mcp/segno/eventlog/memlog"
)

func BenchmarkMemory(b *testing.B) {
	logtest.Benchmark(b, func(*testing.B) eventlog.Log { return memlog.New() })
}

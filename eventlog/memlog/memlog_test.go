package memlog_test

import (
	"testing"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/logtest"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	logtest.Run(t, func(t *testing.T) eventlog.Log {
		l := memlog.New()
		t.Cleanup(func() { l.Close() })
		return l
	})
}

package pebblelog_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/logtest"
	"github.com/segno-mcp/segno/eventlog/pebblelog"
	"go.uber.org/goleak"
)

func open(t testing.TB, dir string, o pebblelog.Options) *pebblelog.Log {
	t.Helper()
	l, err := pebblelog.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // a second close is an error, not a panic
	return l
}

func policies(t *testing.T, test func(t *testing.T, o pebblelog.Options)) {
	for name, sync := range map[string]pebblelog.Sync{
		"outcomes": pebblelog.SyncOutcomes, "always": pebblelog.SyncAlways, "os": pebblelog.SyncOS,
	} {
		t.Run(name, func(t *testing.T) { test(t, pebblelog.Options{Sync: sync}) })
	}
}

func TestContract(t *testing.T) {
	policies(t, func(t *testing.T, o pebblelog.Options) {
		logtest.Run(t, func(t *testing.T) eventlog.Log {
			o := o
			o.FS = vfs.NewMem()
			return open(t, "store", o)
		})
	})
}

func TestReopen(t *testing.T) {
	stores := 0
	fs := vfs.NewMem()
	logtest.RunReopen(t, func(t *testing.T) func() eventlog.Log {
		stores++
		dir := fmt.Sprint("store-", stores)
		return func() eventlog.Log { return open(t, dir, pebblelog.Options{FS: fs}) }
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

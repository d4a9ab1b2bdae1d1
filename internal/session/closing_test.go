package session

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
)

// slowOutcome is a log that takes an unknown outcome only when it is told to.
type slowOutcome struct {
	eventlog.Log
	now chan struct{}
}

func (l slowOutcome) Append(ctx context.Context, a eventlog.Append) error {
	unknown := func(e eventlog.Event) bool { return strings.Contains(string(e.Data), "outcome unknown") }
	if slices.ContainsFunc(a.Events, unknown) {
		<-l.now
	}
	return l.Log.Append(ctx, a)
}

func TestAChildThatStartsWhileEverythingStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		log := slowOutcome{memlog.New(), make(chan struct{})}
		b := newBench(t, Options{Log: log})
		s, _ := b.open()
		b.tool(s, "1")
		closed := make(chan error, 1)
		go func() { closed <- b.m.Close(context.Background()) }()
		synctest.Wait() // the first child is gone, and the outcome of its call is not in the log
		b.tool(s, "2")
		late := b.server()
		late.greet()
		synctest.Wait()
		close(log.now)
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("the server that started last was not stopped, and is waited for")
			late.c.Close()
			<-closed
		}
	})
}

// Package logtest is the log's contract as runnable rules. Each has a name, a
// test and the reason that is printed when it fails. A back end is right when
// Run passes, and durable when RunReopen does.
package logtest

import (
	"testing"

	"github.com/segno-mcp/segno/eventlog"
)

// rule is one thing that every back end must do, and why.
type rule struct {
	name string
	why  string
	test func(*scene)
}

// Run checks all rules, each on a log of its own. open is called once a rule
// and must see to it that the log is closed when the test ends.
func Run(t *testing.T, open func(t *testing.T) eventlog.Log) {
	for _, rules := range [][]rule{writeRules, readRules, termRules, keepRules, dropRules, dueRules, listRules, watchRules, fieldRules} {
		for _, r := range rules {
			t.Run(r.name, func(t *testing.T) {
				explain(t, r.why)
				r.test(newScene(t, open(t)))
			})
		}
	}
	t.Run("Model", func(t *testing.T) {
		explain(t, "whatever the order of steps, the log must say what a list of events would say")
		checkModel(t, func() (eventlog.Log, func() eventlog.Log) { return open(t), nil })
	})
}

// RunReopen checks what must outlive a restart. store is called once a rule; the
// function that it returns opens the same store, again after a Close.
func RunReopen(t *testing.T, store func(t *testing.T) (reopen func() eventlog.Log)) {
	for _, r := range reopenRules {
		t.Run(r.name, func(t *testing.T) {
			explain(t, r.why)
			r.test(t, store(t))
		})
	}
	t.Run("ModelAcrossRestarts", func(t *testing.T) {
		explain(t, "a restart must change nothing but who may write")
		checkModel(t, func() (eventlog.Log, func() eventlog.Log) {
			reopen := store(t)
			return reopen(), reopen
		})
	})
}

func explain(t *testing.T, why string) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("why: %s", why)
		}
	})
}

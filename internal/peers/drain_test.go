package peers

import (
	"syscall"
	"testing"
	"time"
)

// TestStoppedInMidCall ends Segno with SIGTERM while a tool runs, as a deploy
// does, and starts it again: the call still gets its result, Segno then ends by
// itself, and after the restart the session goes on.
func TestStoppedInMidCall(t *testing.T) {
	need(t, "npm")
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) { t.Parallel(); stopped(t, k) })
	}
}

func stopped(t *testing.T, k kind) {
	s, l := behind(t, "2025-11-25")
	client := k.open(t, s.url)
	defer client.close()
	ctx := within(t, 60*time.Second)
	ended := make(chan error, 1)
	go func() {
		_, err := client.call(ctx, "quiet", map[string]any{"tag": "kept"}, nil)
		ended <- err
	}()
	until(t, "the tool runs", 20*time.Second, func() bool { return l.runs(t, "kept") == 1 })
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, "segno says that it drains", 10*time.Second, func() bool { return s.log.has("draining") })
	l.open(t, "kept")
	if err := <-ended; err != nil {
		t.Errorf("the running call: %v", err)
	}
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		t.Fatalf("segno goes on after its last call\n%s", s.log.text(20))
	}
	s.restart()
	text, err := client.call(ctx, "count", map[string]any{"tag": "after", "n": 1}, nil)
	if err != nil || text != "done after" {
		t.Errorf("the session does not go on: %q, %v", text, err)
	}
	ranOnce(t, l, "kept")
	ranOnce(t, l, "after")
}

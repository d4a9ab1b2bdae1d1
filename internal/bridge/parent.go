package bridge

import (
	"context"
	"errors"
	"os"
	"time"
)

// errOrphan is why the context of WithParent ends.
var errOrphan = errors.New("the process that started this one is gone")

// lookTime is how often the parent is looked for. No signal tells of its end on
// every system.
const lookTime = time.Second

// WithParent is a context that ends when the process that started this one is
// gone. Whoever started it may have left its output open, so the end of input
// alone does not tell. On Windows, where nobody inherits orphans, it never ends
// by itself. stop must be called.
func WithParent(ctx context.Context) (_ context.Context, stop func()) {
	return withParent(ctx, os.Getppid, lookTime)
}

func withParent(ctx context.Context, parent func() int, every time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	first, done := parent(), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if parent() != first {
				cancel(errOrphan)
				return
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

package process

import (
	"os"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// stop begins to end the child, once; why is empty if it was asked for.
func (k *child) stop(why string, patience time.Duration) {
	k.stopping.Do(func() {
		if why != "" && !k.exits(0) {
			k.why.Store(&why)
		}
		close(k.stopped)
		k.work.Go(func() { k.escalate(patience) })
	})
}

// escalate goes from polite to certain. The group gets the signals, also when
// its leader is gone: supervise reaps it only after the group was killed.
func (k *child) escalate(patience time.Duration) {
	if k.exits(0) {
		return
	}
	k.how.CompareAndSwap(ExitSelf, ExitInput)
	if patience > 0 {
		k.in.finish()
	} else {
		k.in.abort()
	}
	if k.exits(patience) {
		return
	}
	k.how.Store(ExitTerm)
	k.signal(k.group.term)
	if k.exits(k.opt.TermWait) {
		return
	}
	k.how.Store(ExitKill)
	k.signal(k.group.kill)
}

// signal reaches the group only while its number is its own.
func (k *child) signal(send func()) {
	k.reaping.Lock()
	defer k.reaping.Unlock()
	if !k.reaped {
		send()
	}
}

// reap kills what is left of the group and gives its number up.
func (k *child) reap() (*os.ProcessState, error) {
	k.reaping.Lock()
	defer k.reaping.Unlock()
	k.group.kill()
	k.reaped = true
	return k.cmd.Process.Wait()
}

func (k *child) exits(within time.Duration) bool {
	if within == 0 {
		select {
		case <-k.exited:
			return true
		default:
			return false
		}
	}
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-k.exited:
		return true
	case <-t.C:
		return false
	}
}

// supervise waits for the process and then collects what it leaves. The order
// matters: the group is killed while its leader is a zombie and so keeps the
// group's number; only then is it reaped.
func (k *child) supervise() {
	waitExit(k.cmd.Process)
	close(k.exited)
	wait := k.linger()
	if !k.out.drain(wait) {
		k.group.term()
		k.out.drain(min(wait, k.opt.TermWait))
	}
	state, err := k.reap()
	k.collect()
	k.group.release()
	k.note.forget()
	how := k.how.Load().(Exit)
	k.end = &wire.Gone{Reason: k.reason(status(state, err)), Tail: k.err.text()}
	k.opt.Hooks.exited(how, time.Since(k.since))
	close(k.journal.quit)
	close(k.gone)
}

// linger is how long the children of an exited server may go on writing: in a
// stop that was asked for they may be about to answer the last call.
func (k *child) linger() time.Duration {
	select {
	case <-k.stopped:
		return max(k.opt.Linger, k.opt.CloseWait)
	default:
		return k.opt.Linger
	}
}

// collect takes what the pipes still hold, and closes them even if a process
// that left the group keeps their other ends.
func (k *child) collect() {
	k.out.drain(k.opt.Linger)
	k.out.end()
	k.in.abort()
	k.err.r.SetReadDeadline(time.Now().Add(k.opt.Linger))
	// A stop from here on has nothing to do any more; one under way ends by exited.
	k.stopping.Do(func() { close(k.stopped) })
	k.work.Wait()
}

func status(state *os.ProcessState, err error) string {
	if err != nil {
		return err.Error()
	}
	return state.String()
}

// reason says why the child is gone, with how it ended.
func (k *child) reason(status string) string {
	if why := k.why.Load(); why != nil {
		return *why + " (" + status + ")"
	}
	select {
	case <-k.stopped:
		if k.how.Load() != ExitSelf {
			return "it was stopped (" + status + ")"
		}
	default:
	}
	return status
}

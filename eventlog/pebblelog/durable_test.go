package pebblelog_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/pebblelog"
)

func stream(name string) eventlog.Key { return eventlog.Key{Session: "s", Stream: name} }

func claim(t testing.TB, l eventlog.Log) eventlog.Claim {
	t.Helper()
	c, err := l.Claim(context.Background(), "s", true)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func step(c eventlog.Claim, k eventlog.Key, after uint64, durable bool, kinds ...eventlog.Kind) eventlog.Append {
	a := eventlog.Append{Key: k, Fence: c.Fence, After: after, Durable: durable}
	for n, kind := range kinds {
		a.Events = append(a.Events, eventlog.Event{Kind: kind, Data: fmt.Appendf(nil, "%s %d", k.Stream, after+uint64(n)+1)})
	}
	return a
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func top(t testing.TB, l eventlog.Log, k eventlog.Key) uint64 {
	t.Helper()
	info, err := l.Stat(context.Background(), k)
	if errors.Is(err, eventlog.ErrNoStream) {
		return 0
	}
	must(t, err)
	return info.Top
}

// Pebble shows a batch before its sync is over. Nobody may act on an outcome that
// a power cut can still take back.
func TestDurableIsUnseenUntilSynced(t *testing.T) {
	fs := newFaultyFS(vfs.NewMem())
	l := open(t, "store", pebblelog.Options{FS: fs})
	c, call, other := claim(t, l), stream("call"), stream("other")
	must(t, l.Append(t.Context(), step(c, call, 0, true, eventlog.Opening)))

	release := fs.hold()
	defer release()
	hint := make(chan struct{}, 1)
	defer l.Watch(call, hint)()
	done := make(chan error, 2)
	go func() { done <- l.Append(context.Background(), step(c, call, 1, true, eventlog.Outcome)) }()
	<-fs.entered
	go func() { done <- l.Append(context.Background(), step(c, stream("new"), 0, true, eventlog.Opening)) }()

	for after := range uint64(200) {
		must(t, l.Append(t.Context(), step(c, other, after, false, eventlog.Progress)))
		if got := top(t, l, other); got != after+1 {
			t.Fatalf("an append that needs no sync is not seen: top %d", got)
		}
		p, err := l.Read(t.Context(), call, 0, 1<<20)
		must(t, err)
		if p.Top != 1 || len(p.Events) != 1 || top(t, l, call) != 1 || top(t, l, stream("new")) != 0 {
			t.Fatalf("seen before its sync: %+v", p)
		}
	}
	if len(hint)+len(done) > 0 {
		t.Fatal("told before the sync")
	}
	release()
	must(t, <-done)
	must(t, <-done)
	<-hint
	if top(t, l, call) != 2 || top(t, l, stream("new")) != 1 {
		t.Fatal("not seen after the sync")
	}
}

// An owner that takes over must see what the one before it has on its way.
func TestClaimWaitsForSyncsOnTheirWay(t *testing.T) {
	fs := newFaultyFS(vfs.NewMem())
	l := open(t, "store", pebblelog.Options{FS: fs})
	c, call := claim(t, l), stream("call")
	must(t, l.Append(t.Context(), step(c, call, 0, true, eventlog.Opening)))
	release := fs.hold()
	defer release()
	done := make(chan error, 1)
	go func() { done <- l.Append(context.Background(), step(c, call, 1, true, eventlog.Outcome)) }()
	<-fs.entered
	claimed := make(chan uint64, 1)
	go func() {
		if _, err := l.Claim(context.Background(), "s", false); err != nil {
			t.Error(err)
		}
		claimed <- top(t, l, call)
	}()
	release()
	must(t, <-done)
	if got := <-claimed; got != 2 {
		t.Fatalf("the new owner sees top %d", got)
	}
}

// Two appends to one stream must not overlap; if they do, order still holds.
func TestOrderIsKeptBehindASync(t *testing.T) {
	fs := newFaultyFS(vfs.NewMem())
	l := open(t, "store", pebblelog.Options{FS: fs})
	c, call := claim(t, l), stream("call")
	must(t, l.Append(t.Context(), step(c, call, 0, true, eventlog.Opening)))
	release := fs.hold()
	defer release()
	done := make(chan error, 2)
	go func() { done <- l.Append(context.Background(), step(c, call, 1, true, eventlog.Request)) }()
	<-fs.entered
	go func() { done <- l.Append(context.Background(), step(c, call, 2, false, eventlog.Progress)) }()
	for after := range uint64(50) {
		must(t, l.Append(t.Context(), step(c, stream("other"), after, false, eventlog.Progress)))
		if got := top(t, l, call); got != 1 {
			t.Fatalf("top %d before the sync", got)
		}
	}
	release()
	must(t, <-done)
	must(t, <-done)
	if got := top(t, l, call); got != 3 {
		t.Fatalf("top %d", got)
	}
}

func TestSyncPolicies(t *testing.T) {
	for _, tc := range []struct {
		name    string
		sync    pebblelog.Sync
		durable bool
		waits   bool
	}{
		{"outcomes, durable", pebblelog.SyncOutcomes, true, true},
		{"outcomes, other", pebblelog.SyncOutcomes, false, false},
		{"always", pebblelog.SyncAlways, false, true},
		{"os", pebblelog.SyncOS, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs := newFaultyFS(vfs.NewMem())
			l := open(t, "store", pebblelog.Options{FS: fs, Sync: tc.sync})
			c := claim(t, l)
			release := fs.hold()
			defer release()
			done := make(chan error, 1)
			go func() {
				done <- l.Append(context.Background(), step(c, stream("call"), 0, tc.durable, eventlog.Opening))
			}()
			if tc.waits {
				<-fs.entered
				if len(done) > 0 {
					t.Fatal("counts before its sync")
				}
				release()
			}
			must(t, <-done)
		})
	}
}

// What needs no sync of its own is synced soon all the same.
func TestTheRestIsSyncedSoon(t *testing.T) {
	fs := newFaultyFS(vfs.NewMem())
	l := open(t, "store", pebblelog.Options{FS: fs})
	c := claim(t, l)
	release := fs.hold()
	defer release()
	must(t, l.Append(t.Context(), step(c, stream("call"), 0, false, eventlog.Progress)))
	select {
	case <-fs.entered:
	case <-time.After(10 * time.Second):
		t.Fatal("no sync came")
	}
}

// childDir is set in the process that TestKilledInsideASync kills.
const childDir = "PEBBLELOG_TEST_CHILD"

func TestKilledInsideASync(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		writeUntilKilled(dir)
	}
	dir := t.TempDir()
	for round := range 3 {
		acked := killedChild(t, dir)
		l := open(t, dir, pebblelog.Options{})
		for name, seq := range acked {
			k := stream(name)
			if got := top(t, l, k); got < seq {
				t.Errorf("round %d: %s: acknowledged %d, there is %d", round, name, seq, got)
			}
			for after := uint64(0); after < seq; {
				p, err := l.Read(t.Context(), k, after, 1<<20)
				must(t, err)
				if len(p.Events) == 0 {
					t.Fatalf("%s: nothing after %d", name, after)
				}
				for _, e := range p.Events[:min(len(p.Events), int(seq-after))] {
					if after++; e.Seq != after || !strings.HasPrefix(string(e.Data), fmt.Sprintf("%s %d ", name, after)) {
						t.Fatalf("%s: seq %d where %d is due", name, e.Seq, after)
					}
				}
			}
		}
		c := claim(t, l)
		must(t, l.DropSession(t.Context(), "s", c.Fence))
		must(t, l.Close())
	}
}

// killedChild runs a writer, kills it while a sync is held, and returns the last
// acknowledged seq of each of its streams.
func killedChild(t *testing.T, dir string) map[string]uint64 {
	cmd := exec.Command(os.Args[0], "-test.run=TestKilledInsideASync")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer cmd.Process.Kill() // if the test fails before it does so itself
	acked, lines, held := map[string]uint64{}, bufio.NewScanner(out), 0
	for lines.Scan() {
		var name string
		var seq uint64
		if strings.HasPrefix(lines.Text(), "held") {
			held = 1
			continue
		}
		if _, err := fmt.Sscan(lines.Text(), &name, &seq); err != nil {
			t.Fatalf("child says %q", lines.Text())
		}
		acked[name] = seq
		if held > 0 {
			held++
		}
		if held > 200 {
			must(t, cmd.Process.Kill())
			break
		}
	}
	for lines.Scan() { // what it said before it died counts too
		var name string
		var seq uint64
		if n, _ := fmt.Sscanf(lines.Text()+"\n", "%s %d\n", &name, &seq); n == 2 {
			acked[name] = max(acked[name], seq)
		}
	}
	if err := cmd.Wait(); err == nil || held < 200 {
		t.Fatalf("the child was not killed: %v, %d acknowledged", err, held)
	}
	return acked
}

func writeUntilKilled(dir string) {
	padded := func(a eventlog.Append) eventlog.Append {
		a.Events[0].Data = append(a.Events[0].Data, make([]byte, 2000)...)
		a.Events[0].Data[len(a.Events[0].Data)-2000] = ' '
		return a
	}
	fs := newFaultyFS(vfs.Default)
	l, err := pebblelog.Open(dir, pebblelog.Options{FS: fs})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	c, _ := l.Claim(ctx, "s", true)
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	for _, name := range []string{"a", "b", "c"} {
		go func() {
			for after := uint64(0); ; after++ {
				if err := l.Append(ctx, padded(step(c, stream(name), after, false, eventlog.Progress))); err != nil {
					panic(err)
				}
				say("%s %d", name, after+1)
			}
		}()
	}
	// Pebble begins another log file when the one it has is as large as its
	// memtable, which doubles each time, and waits for the sync of the old one.
	// After some of them there is room for what comes while the sync is held.
	after := uint64(0)
	for ; after < 20 || fs.logs.Load() < 5; after++ {
		if err := l.Append(ctx, padded(step(c, stream("outcomes"), after, true, eventlog.Request))); err != nil {
			panic(err)
		}
		say("outcomes %d", after+1)
	}
	fs.hold()
	go l.Append(ctx, step(c, stream("outcomes"), after, true, eventlog.Outcome))
	<-fs.entered
	say("held")
	time.Sleep(time.Minute) // it is killed long before
	os.Exit(0)
}

// A power cut takes what was not synced, in any order. What was acknowledged as
// durable must be there, and what is lost must be told from what is.
func TestPowerCut(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { powerCut(t, seed) })
	}
}

func powerCut(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := vfs.NewCrashableMem()
	policy := pebblelog.SyncOutcomes
	if seed%3 == 0 {
		policy = pebblelog.SyncOS
	}
	must(t, fs.MkdirAll("store", 0o755))
	root, err := fs.OpenDir("")
	must(t, err)
	must(t, root.Sync())
	l := open(t, "store", pebblelog.Options{FS: fs, Sync: policy})
	c := claim(t, l)
	seen, durable := map[string]uint64{}, map[string]uint64{}
	for range 50 + rng.IntN(400) {
		name := fmt.Sprint("stream-", rng.IntN(5))
		isDurable := rng.IntN(20) == 0
		kinds := []eventlog.Kind{eventlog.Progress, eventlog.Other, eventlog.Request}
		must(t, l.Append(t.Context(), step(c, stream(name), seen[name], isDurable, kinds[:1+rng.IntN(3)]...)))
		seen[name] = top(t, l, stream(name))
		if isDurable && policy == pebblelog.SyncOutcomes {
			for name, seq := range seen { // a sync covers all before it
				durable[name] = seq
			}
		}
	}
	percent := []int{0, 50, 95}[seed%3]
	after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
	must(t, l.Close())

	l = open(t, "store", pebblelog.Options{FS: after, Sync: policy})
	lost := false
	for name, seq := range seen {
		k := stream(name)
		got := top(t, l, k)
		if got < durable[name] || got > seq {
			t.Errorf("%s: %d were durable, %d seen, %d are there", name, durable[name], seq, got)
		}
		if got == seq {
			continue
		}
		lost = true
		if got == 0 {
			continue // its cursor is unknown now
		}
		info, err := l.Stat(t.Context(), k)
		must(t, err)
		cursor := eventlog.Cursor{Term: c.Term, Seq: seq}
		if place, holds := info.Place(cursor); place != got || holds {
			t.Errorf("%s: a cursor at %d stands at %d (%v), the top is %d", name, seq, place, holds, got)
		}
		next := claim(t, l)
		must(t, l.Append(t.Context(), step(next, k, got, false, eventlog.Progress, eventlog.Progress, eventlog.Progress)))
		info, err = l.Stat(t.Context(), k)
		must(t, err)
		if place, holds := info.Place(cursor); place != got || holds {
			t.Errorf("%s: after new events a cursor at %d stands at %d (%v), want %d", name, seq, place, holds, got)
		}
	}
	if policy == pebblelog.SyncOS && percent == 0 && !lost {
		t.Error("nothing was lost: the test cuts no power")
	}
}

// After a Close in order not even a power cut takes anything, whatever the policy.
func TestCloseIsDurable(t *testing.T) {
	fs := vfs.NewCrashableMem()
	must(t, fs.MkdirAll("store", 0o755))
	root, err := fs.OpenDir("")
	must(t, err)
	must(t, root.Sync())
	l := open(t, "store", pebblelog.Options{FS: fs, Sync: pebblelog.SyncOS})
	c := claim(t, l)
	must(t, l.Append(t.Context(), step(c, stream("call"), 0, false, eventlog.Opening, eventlog.Progress)))
	must(t, l.Close())
	l = open(t, "store", pebblelog.Options{FS: fs.CrashClone(vfs.CrashCloneCfg{})})
	if got := top(t, l, stream("call")); got != 2 {
		t.Fatalf("the top is %d", got)
	}
}

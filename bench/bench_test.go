package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/segno-mcp/segno/bench/client"
)

// TestMain lets the test binary be started again as a tool or a subject.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		exit(roles[os.Args[1]]())
	}
	os.Exit(m.Run())
}

// built are the subjects that need nothing but this tree's bench.
func built() []subject {
	return []subject{stdio{}, role{"bare handler", "bare"}, role{base, "relay"}, role{"go-sdk", "go-sdk"}}
}

// product is Segno as named by SEGNO_BENCH_EXE, so that benchstat can compare two builds.
func product() []subject {
	exe := os.Getenv("SEGNO_BENCH_EXE")
	return segnos("segno", exe, errors.New("SEGNO_BENCH_EXE names no built segno"))
}

func started(t testing.TB, s subject, n need) *target {
	t.Helper()
	on, err := s.start(context.Background(), n)
	if errors.As(err, &absent{}) {
		t.Skip("nothing to measure: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(on.stop)
	return on
}

func dialed(t testing.TB, on *target) client.Session {
	t.Helper()
	s, err := on.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestSubjectsCarryEveryEvent keeps a baseline from being fast by losing things.
func TestSubjectsCarryEveryEvent(t *testing.T) {
	for _, s := range built() {
		t.Run(s.name(), func(t *testing.T) {
			c := dialed(t, started(t, s, need{}))
			for _, n := range []int{1, 1000, 20_000} {
				tally, _, err := drain(c, n)
				if err != nil || tally.Events != n || tally.Lost != 0 {
					t.Fatalf("%d of %d events, %d lost: %v", tally.Events, n, tally.Lost, err)
				}
			}
			if err := echo(c); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestRelayKeepsCallsApart has many calls in flight in one session.
func TestRelayKeepsCallsApart(t *testing.T) {
	first, err := client.Dial(started(t, role{base, "relay"}, need{}).addr)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	failed := make(chan error, 8)
	for i := range cap(failed) {
		go func() {
			c, err := first.Join((i + 1) * 1000)
			if err == nil {
				defer c.Close()
				_, _, err = drain(c, 3000)
			}
			failed <- err
		}()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

func TestFilesAreReadLikeAResume(t *testing.T) {
	on := started(t, files{}, need{})
	if _, missing, err := fetchFile(on.addr); err != nil || missing != 0 {
		t.Fatalf("%d missing: %v", missing, err)
	}
}

func TestMissingNpmIsToldNotFailed(t *testing.T) {
	_, err := mcpProxy{filepath.Join(t.TempDir(), "nowhere")}.start(context.Background(), need{})
	if !errors.As(err, &absent{}) {
		t.Errorf("got %v", err)
	}
}

// The benchmarks are for benchstat: an operation is one event, or one call.
func BenchmarkEvents(b *testing.B) {
	for _, s := range append(built(), product()...) {
		b.Run(s.name(), func(b *testing.B) {
			c := dialed(b, started(b, s, need{}))
			if _, _, err := drain(c, 1000); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(eventBytes)
			b.ResetTimer()
			if tally, _, err := drain(c, b.N); err != nil || tally.Lost > 0 {
				b.Fatalf("%d lost: %v", tally.Lost, err)
			}
		})
	}
}

func BenchmarkCall(b *testing.B) {
	for _, s := range append(built(), product()...) {
		b.Run(s.name(), func(b *testing.B) {
			c := dialed(b, started(b, s, need{}))
			b.ResetTimer()
			for range b.N {
				if err := echo(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

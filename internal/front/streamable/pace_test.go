package streamable

import (
	"strings"
	"testing"
	"time"
)

func TestRetryIsAFloorAndSpread(t *testing.T) {
	p := pace{retry: 2 * time.Second}
	low, high := time.Hour, time.Duration(0)
	for range 2000 {
		d := p.wait(1)
		low, high = min(low, d), max(high, d)
	}
	if low < 2*time.Second || high > 3*time.Second+time.Nanosecond {
		t.Errorf("from %v to %v, want within 2 s and 3 s", low, high)
	}
	if high-low < 900*time.Millisecond {
		t.Errorf("from %v to %v: clients would come back together", low, high)
	}
	if d := p.wait(raised); d < 10*time.Second {
		t.Errorf("raised to %v", d)
	}
}

func TestGreetingByWhatTheClientTakes(t *testing.T) {
	modern := pace{primes: true, retry: time.Second}
	got := string(modern.greet(nil, "an-id"))
	if !strings.HasPrefix(got, "id: an-id\nretry: ") || !strings.HasSuffix(got, "\ndata: \n\n") || strings.Contains(got, "event:") {
		t.Errorf("greeting %q", got)
	}
	if !modern.hasID {
		t.Error("the client has an id now")
	}
	quiet := pace{primes: true}
	if got := string(quiet.greet(nil, "an-id")); got != "id: an-id\ndata: \n\n" {
		t.Errorf("without retry %q", got)
	}
	older := pace{}
	if got := string(older.greet(nil, "an-id")); got != ":\n" || older.hasID {
		t.Errorf("an older client is greeted with %q", got)
	}
}

func TestRotationOnlyLengthens(t *testing.T) {
	now := time.Now()
	low, high := time.Hour, time.Duration(0)
	for range 2000 {
		p := pace{}
		p.start(now, 800*time.Millisecond)
		d := p.rotateAt.Sub(now)
		low, high = min(low, d), max(high, d)
	}
	if low < 800*time.Millisecond || high > 880*time.Millisecond || high-low < 70*time.Millisecond {
		t.Errorf("connections live from %v to %v, want 800 ms to 880 ms", low, high)
	}
}

func TestRotationWaitsForAnID(t *testing.T) {
	now := time.Now()
	p := pace{heartbeat: 15 * time.Second}
	p.start(now, time.Minute)
	later := now.Add(2 * time.Minute)
	if why := p.over(later); why != "" {
		t.Errorf("a connection without an id ended: %s", why)
	}
	p.hasID = true
	if why := p.over(now.Add(50 * time.Second)); why != "" {
		t.Errorf("ended early: %s", why)
	}
	if why := p.over(later); why != whyRotated {
		t.Errorf("why is %q", why)
	}
	if d := p.until(now); d > 15*time.Second {
		t.Errorf("nothing is due for %v", d)
	}
}

func TestDrainSpreadsTheEnds(t *testing.T) {
	now, going := time.Now(), make(chan struct{})
	p := pace{heartbeat: time.Hour}
	p.start(now, 0)
	p.drains(going, now, 2*time.Second)
	if !p.leaveAt.IsZero() {
		t.Error("it leaves before it is told")
	}
	close(going)
	p.drains(going, now, 2*time.Second)
	if p.leaveAt.Before(now) || p.leaveAt.After(now.Add(2*time.Second)) {
		t.Errorf("it leaves %v after it was told", p.leaveAt.Sub(now))
	}
	if why := p.over(now.Add(2 * time.Second)); why != whyDrained {
		t.Errorf("why is %q", why)
	}
	if got := string(p.goodbye(whyDrained)); got != "" {
		t.Errorf("a client that takes no retry is told %q", got)
	}
}

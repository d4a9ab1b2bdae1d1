package streamable

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func taken(s *seats, principal string) *seat {
	mine, _ := s.take(principal, new(guard))
	return mine
}

func isTold(s *seat) bool {
	select {
	case <-s.end:
		return true
	default:
		return false
	}
}

func TestSeatGoesToTheNewcomerOfTheSamePrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seats
		s.init(4, 2)
		other := taken(&s, "other")
		time.Sleep(time.Second)
		first := taken(&s, "ann")
		time.Sleep(time.Second)
		second := taken(&s, "ann")
		time.Sleep(time.Second)
		first.active()
		time.Sleep(time.Second)
		third := taken(&s, "ann")
		if isTold(other) || isTold(first) || !isTold(second) || isTold(third) {
			t.Errorf("told: other %v, first %v, second %v, third %v", isTold(other), isTold(first), isTold(second), isTold(third))
		}
		// All seats are taken now; a newcomer's own oldest goes, not somebody else's.
		fourth := taken(&s, "ann")
		if isTold(other) || !isTold(first) || isTold(fourth) {
			t.Error("somebody else's stream was ended")
		}
		newest := taken(&s, "carl")
		if isTold(other) || isTold(newest) {
			t.Error("a principal without a stream was refused, or pushed somebody out")
		}
		for _, x := range []*seat{other, first, second, third, fourth, newest} {
			s.leave(x)
		}
		if s.all() != 0 || len(s.of) != 0 {
			t.Errorf("%d seats and %d principals are left", s.all(), len(s.of))
		}
	})
}

func TestSettledWaitsForTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seats
		s.init(4, 4)
		one, two, idle := s.wait(new(guard)), s.wait(new(guard)), taken(&s, "ann")
		done := make(chan error, 1)
		go func() { done <- s.settled(context.Background(), (*seats).calls) }()
		synctest.Wait()
		one()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("settled with a call waiting: %v", err)
		default:
		}
		two()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.settled(ctx, (*seats).all); err == nil {
			t.Error("empty with a stream open")
		}
		s.leave(idle)
	})
}

package retention

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHeldWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHeld(100)
		h.Add(100)
		h.Wait(nil) // at the bound there is room
		h.Add(1)
		var through atomic.Int64
		stop := make(chan struct{})
		for range 2 {
			go func() {
				h.Wait(nil)
				through.Add(1)
			}()
			synctest.Wait()
		}
		go func() {
			h.Wait(stop)
			through.Add(10)
		}()
		synctest.Wait()
		if through.Load() != 0 {
			t.Fatal("somebody did not wait")
		}
		close(stop)
		synctest.Wait()
		if through.Load() != 10 {
			t.Fatalf("after stop: %d", through.Load())
		}
		h.Done(1)
		synctest.Wait()
		if through.Load() != 12 {
			t.Errorf("with room: %d", through.Load())
		}
	})
}

//go:build unix

package process

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/segno-mcp/segno/internal/wire"
)

// How many messages a second a child can say.
func BenchmarkFromChild(b *testing.B) {
	for _, size := range []int{200, 2000} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			o := Options{Argv: []string{os.Args[0]}, Env: []string{fmt.Sprintf("%s=flood %d %d", roleVar, b.N, size)}}
			c, err := New(o).Connect(b.Context(), "bench")
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			b.SetBytes(int64(size))
			b.ResetTimer()
			n, batches := 0, 0
			for {
				msgs, err := c.Recv(b.Context())
				var gone *wire.Gone
				if errors.As(err, &gone) {
					break
				}
				if err != nil {
					b.Fatal(err)
				}
				n += len(msgs)
				batches++
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "msgs/s")
			b.ReportMetric(float64(n)/float64(batches), "msgs/batch")
		})
	}
}

// How many messages a second a child can be told.
func BenchmarkToChild(b *testing.B) {
	o := Options{Argv: []string{"cat"}}
	c, err := New(o).Connect(b.Context(), "bench")
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	msg := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"m","params":{"p":"%0150d"}}`, 0)
	done := make(chan int)
	go func() {
		n := 0
		for n < b.N {
			msgs, err := c.Recv(b.Context())
			if err != nil {
				break
			}
			n += len(msgs)
		}
		done <- n
	}()
	b.SetBytes(int64(len(msg)))
	b.ResetTimer()
	for range b.N {
		if err := c.Send(b.Context(), msg); err != nil {
			b.Fatal(err)
		}
	}
	if n := <-done; n != b.N {
		b.Fatalf("%d of %d came back", n, b.N)
	}
}

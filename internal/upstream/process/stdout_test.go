package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// What stands in for deadlines where files have none.
func TestAPumpedPipeHasDeadlinesAndEnds(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := pumped(r)
	out := &stdout{pipe: p, max: 1 << 20}
	buf := make([]byte, 100)
	go func() {
		time.Sleep(10 * time.Millisecond)
		out.interrupt()
	}()
	if _, err := out.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	out.resume()
	want := bytes.Repeat([]byte("x"), 100_000)
	go func() {
		w.Write(want)
		w.Close()
	}()
	first, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if !out.drain(5 * time.Second) {
		t.Error("the end was not seen")
	}
	rest, err := io.ReadAll(out)
	if err != nil || first+len(rest) != len(want) {
		t.Errorf("%d bytes, %v", first+len(rest), err)
	}
}

// laggy gives a reader time to get in after the deadline was lifted.
type laggy struct{ *os.File }

func (l laggy) SetReadDeadline(t time.Time) error {
	err := l.File.SetReadDeadline(t)
	if t.IsZero() {
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// Somebody else keeps the other end open, and a caller waits in Read.
func TestDrainingEndsBesideAReaderThatWaits(t *testing.T) {
	for range 5 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		out := &stdout{pipe: laggy{r}, max: 1 << 20}
		read := make(chan error)
		go func() {
			err := os.ErrDeadlineExceeded
			for errors.Is(err, os.ErrDeadlineExceeded) {
				_, err = out.Read(make([]byte, 10))
			}
			read <- err
		}()
		drained := make(chan bool)
		go func() { drained <- out.drain(time.Millisecond) }()
		select {
		case ended := <-drained:
			if ended {
				t.Error("an end was seen that is none")
			}
		case <-time.After(5 * time.Second):
			t.Error("it does not end")
			w.Close()
			<-drained
		}
		out.end()
		if err := <-read; err != io.EOF {
			t.Errorf("the reader got %v", err)
		}
		w.Close()
		if t.Failed() {
			return
		}
	}
}

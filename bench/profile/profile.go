// Package profile takes profiles of a process that serves net/http/pprof.
package profile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Taking is a CPU profile that runs.
type Taking struct {
	url, file string
	done      chan error
}

// Start begins a CPU profile of the process whose admin listener is at url.
// Files are named after what is measured.
func Start(ctx context.Context, url, dir, name string, long time.Duration) (*Taking, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	name = strings.NewReplacer(" ", "-", "/", "-").Replace(name)
	t := &Taking{url: url, file: filepath.Join(dir, name), done: make(chan error, 1)}
	go func() {
		t.done <- t.get(ctx, fmt.Sprintf("profile?seconds=%.0f", max(1, long.Seconds())), "cpu")
	}()
	return t, nil
}

// End waits for the CPU profile and adds what lives on the heap, after a
// collection, and all that was allocated.
func (t *Taking) End(ctx context.Context) error {
	return errors.Join(<-t.done, t.get(ctx, "heap?gc=1", "heap"), t.get(ctx, "allocs", "allocs"))
}

func (t *Taking) get(ctx context.Context, what, ext string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+"/debug/pprof/"+what, nil)
	if err != nil {
		return err
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("getting a profile: %s", a.Status)
	}
	f, err := os.Create(t.file + "." + ext)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, a.Body)
	return errors.Join(err, f.Close())
}

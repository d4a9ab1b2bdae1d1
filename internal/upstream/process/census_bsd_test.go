//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package process

import (
	"os"
	"testing"
)

// processes can not be told by their environment here.
func processes(string) (pids []int) { return nil }

func files(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// processes are those that carry the run's mark.
func processes(run string) (pids []int) {
	names, _ := readNames("/proc")
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if at, _ := startTime(pid); at != "" && strings.Contains(string(b), runVar+"="+run) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// zombies counts this process's own.
func zombies(t *testing.T) (n int) {
	t.Helper()
	names, _ := readNames("/proc")
	for _, name := range names {
		b, _ := os.ReadFile("/proc/" + name + "/stat")
		_, rest, ok := strings.Cut(string(b), ") ")
		if ok && strings.HasPrefix(rest, fmt.Sprintf("Z %d ", os.Getpid())) {
			n++
		}
	}
	return n
}

func files(t *testing.T) int {
	t.Helper()
	names, err := readNames("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

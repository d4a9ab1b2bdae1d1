package process

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// cgroup holds a child and all that ever comes of it: unlike the process group
// nothing can leave it. It is made below Segno's own where that is allowed; a
// nil *cgroup stands for none and does nothing.
type cgroup struct {
	dir  string
	f    *os.File // open while the child is started
	once sync.Once
}

// ownCgroup is the folder of the version 2 cgroup that Segno runs in.
var ownCgroup = sync.OnceValue(func() string {
	group, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer mounts.Close()
	for line := range strings.Lines(string(group)) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return cgroupDir(bufio.NewScanner(mounts), at)
		}
	}
	return ""
})

// cgroupDir finds where the cgroup at is mounted.
func cgroupDir(mounts *bufio.Scanner, at string) string {
	for mounts.Scan() {
		head, tail, ok := strings.Cut(mounts.Text(), " - ")
		f := strings.Fields(head)
		if !ok || len(f) < 5 || !strings.HasPrefix(tail, "cgroup2 ") {
			continue
		}
		below, err := filepath.Rel(f[3], at)
		if err != nil || strings.HasPrefix(below, "..") {
			continue
		}
		return filepath.Join(f[4], below)
	}
	return ""
}

// newCgroup makes one for a child, nil if it can't.
func newCgroup(mark string) *cgroup {
	own := ownCgroup()
	if own == "" {
		return nil
	}
	dir := filepath.Join(own, "segno-"+mark)
	if os.Mkdir(dir, 0o755) != nil {
		return nil
	}
	c := &cgroup{dir: dir}
	var err error
	if c.f, err = os.Open(dir); err == nil {
		_, err = os.Stat(filepath.Join(dir, "cgroup.kill"))
	}
	if err != nil {
		c.remove()
		return nil
	}
	return c
}

// openCgroup is the one of a record.
func openCgroup(dir string) *cgroup {
	if dir == "" {
		return nil
	}
	return &cgroup{dir: dir}
}

func (c *cgroup) enter(attr *syscall.SysProcAttr) {
	if c != nil {
		attr.UseCgroupFD = true
		attr.CgroupFD = int(c.f.Fd())
	}
}

func (c *cgroup) path() string {
	if c == nil {
		return ""
	}
	return c.dir
}

func (c *cgroup) kill() {
	if c != nil {
		_ = os.WriteFile(filepath.Join(c.dir, "cgroup.kill"), []byte("1"), 0)
	}
}

// remove waits a moment for the killed to be gone from it.
func (c *cgroup) remove() {
	if c == nil {
		return
	}
	c.once.Do(func() {
		if c.f != nil {
			c.f.Close()
		}
		for wait := time.Millisecond; wait < time.Second; wait *= 2 {
			if err := os.Remove(c.dir); err == nil || os.IsNotExist(err) {
				return
			}
			time.Sleep(wait)
		}
	})
}

package process

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// record is a running child as it is written down in the state folder, one
// file each, so that the next Segno can end it if this one is killed.
type record struct {
	Boot       string `json:"boot"`
	Owner      int    `json:"owner"`
	OwnerStart string `json:"ownerStart"`
	PID        int    `json:"pid,omitempty"` // 0: about to be started
	Start      string `json:"start,omitempty"`
	Mark       string `json:"mark"`
	Cgroup     string `json:"cgroup,omitempty"`
	Label      string `json:"label"`
	Command    string `json:"command"`

	file string
}

const recordPrefix, recordSuffix = "child-", ".json"

func newMark() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// write puts the record into the folder; with no folder it does nothing.
func (r *record) write(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	r.file = filepath.Join(dir, recordPrefix+r.Mark+recordSuffix)
	return r.save()
}

// save replaces the file as a whole, so that Sweep never finds half of one.
func (r *record) save() error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := r.file + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, r.file)
}

// started adds the number that the child got. If that can't be written the mark
// is still there.
func (r *record) started(pid int) {
	r.PID = pid
	r.Start, _ = startTime(pid)
	if r.file != "" {
		_ = r.save()
	}
}

func (r *record) forget() {
	if r.file != "" {
		_ = os.Remove(r.file)
	}
}

// sweepWait is how long a leftover has between SIGTERM and SIGKILL.
const sweepWait = time.Second

// Sweep ends the children that a killed Segno left behind, by the records in
// the state folder, and returns how many processes that were. It is called at
// start, before the first child. Children of a Segno that still runs are left
// alone, and so is every process that is not surely one of the recorded: a
// number alone proves nothing.
//
// On Windows there is nothing to do, the system ends the children with Segno.
func Sweep(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || dir == "" {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("looking for leftover children: %w", err)
	}
	ended := 0
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if !strings.HasPrefix(e.Name(), recordPrefix) {
			continue
		}
		if !strings.HasSuffix(e.Name(), recordSuffix) {
			sweepHalf(e, file)
			continue
		}
		n, rerr := sweepOne(file)
		ended += n
		err = errors.Join(err, rerr)
	}
	if err != nil {
		return ended, fmt.Errorf("looking for leftover children: %w", err)
	}
	return ended, nil
}

// sweepHalf removes what a Segno killed while writing left, not what one is
// writing now.
func sweepHalf(e os.DirEntry, file string) {
	if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > time.Minute {
		_ = os.Remove(file)
	}
}

func sweepOne(file string) (int, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	r := record{file: file}
	if json.Unmarshal(b, &r) != nil || r.Mark == "" || filepath.Base(file) != recordPrefix+r.Mark+recordSuffix {
		r.forget()
		return 0, nil
	}
	if r.Boot != bootID() {
		r.forget()
		return 0, nil
	}
	if start, _ := startTime(r.Owner); start != "" && start == r.OwnerStart {
		return 0, nil
	}
	n := r.end()
	r.forget()
	return n, nil
}

// end terminates what is left of the child and returns how many processes.
func (r *record) end() int {
	found := leftovers(r)
	for _, pid := range found {
		signalLeftover(pid, r, syscall.SIGTERM)
	}
	left := found
	for until := time.Now().Add(sweepWait); len(left) > 0 && time.Now().Before(until); left = leftovers(r) {
		time.Sleep(20 * time.Millisecond)
	}
	for _, pid := range left {
		signalLeftover(pid, r, syscall.SIGKILL)
	}
	// The name holds the mark, so nobody else's cgroup has it.
	if strings.HasSuffix(r.Cgroup, "segno-"+r.Mark) {
		cg := openCgroup(r.Cgroup)
		cg.kill()
		cg.remove()
	}
	return len(found)
}

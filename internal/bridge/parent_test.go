package bridge

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// role is set in the processes that TestRealParentThatDies starts: a parent,
// which starts a child and waits for ever, and the child.
const role = "BRIDGE_TEST_ROLE"

func play() {
	switch os.Getenv(role) {
	case "parent":
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), role+"=child")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
		}
		time.Sleep(time.Hour)
	case "child":
		ctx, stop := WithParent(context.Background())
		fmt.Println("waits")
		<-ctx.Done()
		stop()
		fmt.Println(context.Cause(ctx))
		os.Exit(0)
	}
}

// TestRealParentThatDies kills the parent of a process whose own output stays
// open.
func TestRealParentThatDies(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("on Windows nobody inherits orphans: the end of input tells")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), role+"=parent")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.SetReadDeadline(time.Now().Add(20 * time.Second))
	lines := bufio.NewScanner(r)
	if !lines.Scan() || lines.Text() != "waits" {
		t.Fatalf("the child said %q, %v", lines.Text(), lines.Err())
	}
	cmd.Process.Kill()
	cmd.Wait()
	if !lines.Scan() || lines.Text() != errOrphan.Error() {
		t.Errorf("the orphan said %q, %v", lines.Text(), lines.Err())
	}
}

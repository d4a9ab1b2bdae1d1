package listen

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAcceptedSocketsHaveTheUserTimeout(t *testing.T) {
	l, err := Open(t.Context(), "127.0.0.1:0", Options{Unacknowledged: 45 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	raw, err := server.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	var failed error
	if err := raw.Control(func(fd uintptr) {
		got, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	if got != 45000 {
		t.Errorf("TCP_USER_TIMEOUT is %d ms, want 45000", got)
	}
}

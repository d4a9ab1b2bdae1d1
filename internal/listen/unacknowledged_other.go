//go:build !linux

package listen

import (
	"syscall"
	"time"
)

// userTimeout does nothing where there is no TCP_USER_TIMEOUT.
func userTimeout(time.Duration) func(network, address string, c syscall.RawConn) error { return nil }

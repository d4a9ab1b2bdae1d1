package config

import "fmt"

// Fault is an error of the one who runs the command, and what can be done.
type Fault struct {
	Text string // lower case, without a full stop
	Hint string // empty if there is nothing to suggest
}

func (f *Fault) Error() string { return f.Text }

// Faultf makes a Fault; the hint is taken as it is.
func Faultf(hint, format string, args ...any) *Fault {
	return &Fault{Text: fmt.Sprintf(format, args...), Hint: hint}
}

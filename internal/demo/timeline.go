package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// timeline prints what the client sees, as it sees it.
type timeline struct {
	out      io.Writer
	color    bool
	rows     int
	interval time.Duration
	start    time.Time
	opened   time.Time // the connection in use
	last     int       // row
}

func newTimeline(o *Options) *timeline {
	return &timeline{out: o.Out, color: o.Color, rows: o.Rows, interval: o.Interval, start: time.Now()}
}

// The colours of a terminal (ECMA-48, SGR).
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (t *timeline) paint(color, s string) string {
	if !t.color {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

// idWidth fits a Segno event id: 22 and 6 characters and a number.
const idWidth = 34

func (t *timeline) title(o *Options) {
	with := "with Segno"
	if o.WithoutSegno {
		with = "without Segno, at a server that keeps nothing of what it sent"
	}
	fmt.Fprintf(t.out, "%s\n\n", t.paint(bold, "One tool call and a broken connection, "+with))
	fmt.Fprintf(t.out, "The tool exports %d rows, one every %v, and reports each.\n", o.Rows, o.Interval)
	fmt.Fprintf(t.out, "At %d %% the network resets the connection and stays away for %v.\n\n", cutPercent, o.Outage)
	head := fmt.Sprintf("%8s  %-4s  %-*s  %-17s  %s", "time", "conn", idWidth, "event id", "progress", "checksum")
	fmt.Fprintln(t.out, t.paint(dim, strings.TrimRight(head, " ")))
}

// began sets the clock to the call.
func (t *timeline) began() { t.start = time.Now() }

func (t *timeline) clock() string { return fmt.Sprintf("%7.3fs", time.Since(t.start).Seconds()) }

// note is a line that is no event.
func (t *timeline) note(color, format string, args ...any) {
	fmt.Fprintf(t.out, "%s  %s\n", t.clock(), t.paint(color, fmt.Sprintf(format, args...)))
}

func (t *timeline) connected(n int, method, lastEventID string) {
	t.opened = time.Now()
	switch {
	case method == "POST":
		t.note(bold, "#%d    POST tools/call export", n)
	case lastEventID == "":
		t.note(bold, "#%d    GET, with no id to resume from", n)
	default:
		t.note(bold, "#%d    GET, Last-Event-ID: %s", n, lastEventID)
	}
}

func (t *timeline) arrived(a *arrival) {
	id := a.id
	if id == "" {
		id = "(none)"
	}
	if len(id) > idWidth {
		id = id[:idWidth-9] + "…" + id[len(id)-8:]
	}
	line := fmt.Sprintf("%s  #%-3d  %-*s  %s", t.clock(), a.conn, idWidth, id, t.what(a))
	fmt.Fprintln(t.out, strings.TrimRight(line, " "))
}

func (t *timeline) what(a *arrival) string {
	switch {
	case a.msg == nil:
		return t.paint(dim, "a place to resume from")
	case a.progress != nil:
		return t.row(a)
	case a.msg.Method == "":
		return t.paint(green, "the outcome")
	case strings.Contains(string(a.msg.Params), `"gap"`):
		return t.paint(red, "a gap is told: "+string(a.msg.Params))
	default:
		return t.paint(dim, a.msg.Method)
	}
}

// row is a bar, the row, the checksum up to it, and what is odd about it.
func (t *timeline) row(a *arrival) string {
	i := int(a.progress.Progress)
	color, how := t.judge(i, a.id)
	t.last = i
	sum := a.progress.Meta.Checksum
	return fmt.Sprintf("%s %3d/%-3d  %s%s", t.paint(color, bar(i, t.rows)), i, t.rows, sum[:min(8, len(sum))], t.paint(color, how))
}

// judge tells replayed events by their time: one that was due before this
// connection was there must have been kept for it.
func (t *timeline) judge(row int, id string) (color, how string) {
	due := t.start.Add(time.Duration(row) * t.interval)
	switch {
	case row > t.last+1:
		return red, fmt.Sprintf("  jumps over %d", row-t.last-1)
	case row <= t.last:
		return red, "  again"
	case id != "" && due.Before(t.opened):
		return yellow, "  replayed"
	default:
		return green, ""
	}
}

const barWidth = 10

func bar(done, of int) string {
	full := min(barWidth, max(0, done)*barWidth/max(1, of))
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
}

func (t *timeline) cut(outage time.Duration) {
	t.note(red, "──    the connection is reset; the network is away for %v", outage)
}

func (t *timeline) broke(n int, err error, wait time.Duration) {
	t.note(red, "#%d    broken: %v; next try in %v", n, lastCause(err), wait.Round(time.Millisecond))
}

func (t *timeline) lost(err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("no answer came")
	}
	t.note(red, "──    the call is lost: %v", err)
}

// lastCause leaves out the addresses, which say nothing here.
func lastCause(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

func (t *timeline) summary(a *account, o *Options) {
	r := &a.report
	fmt.Fprintln(t.out)
	t.fact(true, "events", "%d over %s", r.Events, plural(r.Connections, "connection"))
	t.fact(r.Duplicates == 0, "twice", "%d", r.Duplicates)
	t.fact(r.Missing == 0, "missing", "%s", missingText(a))
	t.fact(r.Backwards == 0, "out of order", "%d", r.Backwards)
	if r.Gaps > 0 {
		t.fact(false, "gaps told", "%d", r.Gaps)
	}
	switch {
	case !r.Outcome:
		t.fact(false, "outcome", "never came")
		return
	case !r.Checksums:
		t.fact(false, "checksum", "of what was reported and of the outcome differ")
	default:
		t.fact(true, "checksum", "%.16s…, the outcome's, is that of all %d rows", a.checksum, o.Rows)
	}
	if o.WithoutSegno {
		return
	}
	if a.uri == "" {
		t.fact(false, "rows", "the outcome names no resource to read them from")
		return
	}
	how := "read afterwards, have the same checksum"
	if !r.Rows {
		how = "read afterwards, have another checksum"
	}
	t.fact(r.Rows, "rows", "%s, %s", a.uri, how)
}

func (t *timeline) fact(good bool, name, format string, args ...any) {
	mark, color := "✓", green
	if !good {
		mark, color = "✗", red
	}
	fmt.Fprintf(t.out, "  %s %-12s  %s\n", t.paint(color, mark), name, fmt.Sprintf(format, args...))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func missingText(a *account) string {
	ranges := a.missing()
	if len(ranges) == 0 {
		return "0"
	}
	var parts []string
	for _, r := range ranges {
		if r[0] == r[1] {
			parts = append(parts, fmt.Sprint(r[0]))
			continue
		}
		parts = append(parts, fmt.Sprintf("%d to %d", r[0], r[1]))
	}
	if a.report.Missing == 1 {
		return fmt.Sprintf("1: row %s was never reported", parts[0])
	}
	return fmt.Sprintf("%d: rows %s were never reported", a.report.Missing, strings.Join(parts, ", "))
}

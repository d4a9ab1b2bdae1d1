package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// NewLogger writes log records to w. format is text or json; level is debug,
// info, warn or error. Control characters, line ends among them, are escaped in
// both, so nothing that came from outside can look like a line of its own. The
// keys of what everyone logs are session, stream, request, principal, instance.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("reading the log level: %w", err)
	}
	o := &slog.HandlerOptions{Level: least, ReplaceAttr: short}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("reading the log format: %q is neither text nor json", format)
}

// longest is how much of one text that came from outside a log line takes.
const longest = 4 << 10

// short also writes times in JSON as in text, with their unit: 1.5s.
func short(_ []string, a slog.Attr) slog.Attr {
	switch {
	case a.Value.Kind() == slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	case a.Value.Kind() == slog.KindString && len(a.Value.String()) > longest:
		a.Value = slog.StringValue(strings.ToValidUTF8(a.Value.String()[:longest], "") + "…")
	}
	return a
}

// Announce logs a line whatever the level is: other programs wait for it.
func Announce(ctx context.Context, l *slog.Logger, msg string, args ...any) {
	r := slog.NewRecord(time.Now(), slog.LevelInfo, msg, 0)
	r.Add(args...)
	_ = l.Handler().Handle(ctx, r)
}

package telemetry

import "github.com/segno-mcp/segno/internal/session"

// What Segno counts as the client of a server behind a URL.
const (
	EventsReceived    session.Metric = "events_received_total"
	DuplicatesDropped session.Metric = "duplicates_dropped_total"
)

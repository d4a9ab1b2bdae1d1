// Package telemetry makes a running Segno visible: metrics for Prometheus, logs
// and traces. It is the only place that knows the libraries for these; the
// others declare what they need, as metric.Meter does.
//
//	table.go   every metric: its kind, its label's values, its help
//	meter.go   metric.Meter on a registry of its own
//	totals.go  what was counted so far, for the dashboard
//	store.go   what the store reports
//	log.go     slog, as text or JSON
//	trace.go   one span for each call
package telemetry

// Package admin is what an operator sees of a running Segno: metrics, health,
// profiles, the sessions and streams as JSON, and a dashboard that draws them.
// It reads and never changes anything.
//
//	handler.go    the routes
//	guard.go      who may look: host, origin, key
//	source.go     what is shown, and the interface it is read by
//	logview.go    that interface on a log, of a running Segno or not
//	status.go     all of it as one document
//	diagnosis.go  what the numbers mean
//	health.go     alive, ready
//	dashboard.go  one page, no assets from elsewhere
package admin

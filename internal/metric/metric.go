// Package metric names what Segno counts and measures. Whoever counts needs no
// more than these names and a Meter; telemetry knows what becomes of them.
package metric

// Name names one thing that is counted or measured. The names are the ones
// that are exported, without the prefix segno_.
type Name string

// What sessions and fronts report. Counters end in _total.
const (
	SessionsOpen      Name = "sessions"
	SessionsEnded     Name = "sessions_ended_total" // label: why
	StreamsOpen       Name = "streams"              // running calls
	ChildrenRunning   Name = "children"
	ChildExits        Name = "child_exits_total"       // label: why
	ConnectionsOpen   Name = "connections"             // label: kind
	ConnectionSeconds Name = "connection_seconds"      // label: why it ended
	MessagesIn        Name = "messages_received_total" // label: from
	MessagesOut       Name = "messages_sent_total"     // label: to
	BytesIn           Name = "bytes_received_total"    // label: from
	BytesOut          Name = "bytes_sent_total"        // label: to
	FirstEvent        Name = "first_event_seconds"     // from accepted to the first event in the log
	OutcomeSeconds    Name = "outcome_seconds"         // from accepted to the outcome
	Errors            Name = "errors_total"            // label: kind
	Refused           Name = "refused_total"           // label: which limit
	Dropped           Name = "messages_dropped_total"  // label: why
	Resumes           Name = "resumes_total"           // label: result
	ResumeReplayed    Name = "resume_replayed_events"  // events a resume replayed
	EvictedEvents     Name = "evicted_events_total"    // removed by retention
	RetainedEvents    Name = "retained_events"         // kept now
	ForeignResumes    Name = "resumes_foreign_instance_total"
	Gaps              Name = "gaps_total"     // label: reason
	Clients           Name = "clients_total"  // label: the name the client gives itself; only the Meter bounds it
	Outcomes          Name = "outcomes_total" // label: result, error, unknown, cancelled
)

// Meter takes what is counted. A label is one of a bounded set, but for Clients. Methods may be
// called from anywhere and must not block.
type Meter interface {
	Add(m Name, label string, n float64)
	Observe(m Name, label string, v float64)
}

// None is a Meter that counts nothing.
type None struct{}

// Add does nothing.
func (None) Add(Name, string, float64) {}

// Observe does nothing.
func (None) Observe(Name, string, float64) {}

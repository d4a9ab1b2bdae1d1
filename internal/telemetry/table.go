package telemetry

import "github.com/segno-mcp/segno/internal/metric"

// kind is how a metric behaves.
type kind uint8

const (
	counter kind = iota
	gauge
	histogram
)

// other is the value of every label that is not in the table, so that nobody
// outside decides how many series there are.
const other = "other"

// row is one metric. A label without a name has one series, a label with one
// has a series for each value, and one for other.
type row struct {
	metric  metric.Name
	kind    kind
	label   string
	values  []string
	buckets []float64
	help    string
}

var (
	sides = []string{"client", "server"}

	// From a call that is answered at once to one that runs for a day.
	lives = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}
	// The first event is what a user waits for: fine below a second.
	firsts = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	// From memory to a disk that is far too slow.
	writes = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5}
	// Up to what --retain-events keeps by default, and above.
	replays = []float64{0, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 50000}
)

// clients are the names that MCP clients send in initialize, as far as they
// are told apart.
var clients = []string{
	"claude-ai", "claude-code", "codex-mcp-client", "cursor-vscode", "gemini-cli-mcp-client", "goose",
	"LibreChat", "mcp-inspector", "mcp-remote", "openai-mcp", "segno", "Visual Studio Code", "windsurf-client", "Zed",
}

var table = []row{
	{metric: metric.SessionsOpen, kind: gauge, help: "Sessions that are kept in memory."},
	{metric: metric.SessionsEnded, label: "why", values: []string{"DELETE", "expired", "refused", "pushed out"},
		help: "Sessions that ended, by why."},
	{metric: metric.StreamsOpen, kind: gauge, help: "Calls that have no outcome yet."},
	{metric: metric.ChildrenRunning, kind: gauge, help: "Server processes that run."},
	{metric: metric.ChildExits, label: "why", values: []string{"itself", "stopped"},
		help: "Server processes that ended, by themselves or because they were stopped."},
	{metric: metric.ConnectionsOpen, kind: gauge, label: "kind", values: []string{"post", "get", "resume"},
		help: "Connections of clients that are open, by what they are for."},
	{metric: metric.ConnectionSeconds, kind: histogram, label: "why", buckets: lives,
		values: []string{"ended", "client_gone", "write_timeout", "superseded", "rotated", "drained", "limit", "revoked", "session_ended", "failed"},
		help:   "How long connections were open, by why they ended."},
	{metric: metric.MessagesIn, label: "from", values: sides, help: "Messages that came in."},
	{metric: metric.MessagesOut, label: "to", values: sides, help: "Messages that went out; replayed ones count again."},
	{metric: metric.BytesIn, label: "from", values: sides, help: "Bytes of messages that came in."},
	{metric: metric.BytesOut, label: "to", values: sides, help: "Bytes of messages that went out; replayed ones count again."},
	{metric: metric.FirstEvent, kind: histogram, buckets: firsts,
		help: "Time from accepting a call to its first event in the log."},
	{metric: StoreSeconds, kind: histogram, buckets: writes, help: "Time an append to the store took until it counted."},
	{metric: metric.OutcomeSeconds, kind: histogram, buckets: lives,
		help: "Time from accepting a call to its outcome."},
	{metric: metric.Errors, label: "kind",
		values: []string{"internal", "panic", "stream", "store", "read_timeout", "write_timeout", "unsupported_writer", "stdout", "malformed", "oversized", "on_gap"},
		help:   "Errors, by kind: what a client did wrong, what took too long, what failed here."},
	{metric: metric.Refused, label: "limit",
		values: []string{"child-exits", "drain", "idempotency-key", "inflight-max", "max-children", "max-children-per-principal", "max-connections", "max-connections-per-principal", "max-message", "max-sessions", "max-sessions-per-principal", "owner", "principal-max", "session-max", "store", "store-max"},
		help:   "Requests that were refused and not executed, by the limit that was reached."},
	{metric: metric.Dropped, label: "why", values: []string{"cancel for no call", "cancel for no request", "late answer", "late response", "progress for no call", "progress without token", "repost", "response without id", "server does not listen", "stream ended", "unanswered request"},
		help: "Messages of the server that belong to nothing that runs, by why."},
	{metric: metric.Resumes, label: "result", values: []string{"exact", "current", "evicted", "diverged", "gone", "unknown", "dead"},
		help: "Resumes by what was found at the cursor; exact and current are hits."},
	{metric: metric.ResumeReplayed, kind: histogram, buckets: replays, help: "Events that a resume replayed."},
	{metric: metric.EvictedEvents, help: "Events that retention removed."},
	{metric: metric.RetainedEvents, kind: gauge, help: "Events that are kept for replay."},
	{metric: metric.ForeignResumes, help: "Resumes of sessions that were with another instance until then, and requests for such that are not found here."},
	{metric: metric.Gaps, label: "reason", values: []string{"retention", "slow_reader", "store", "policy", "gone", "unknown"},
		help: "Gaps that clients were told of, by reason."},
	{metric: EventsReceived, help: "Events that came from servers behind a URL, without the dropped ones."},
	{metric: DuplicatesDropped, help: "Events of servers behind a URL that came twice and were dropped."},
	{metric: metric.Clients, label: "name", values: clients, help: "Clients that initialized, by name."},
	{metric: metric.Outcomes, label: "result", values: []string{"result", "error", "unknown", "cancelled"},
		help: "Outcomes of calls; unknown: nobody can say whether the tool ran."},
}

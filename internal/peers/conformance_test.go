package peers

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// check is one finding of the conformance suite, in its checks.json.
type check struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Message string `json:"errorMessage"`
}

// scenario is the count of a scenario's findings by status.
type scenario struct {
	name   string
	counts map[string]int
	bad    []check
}

// TestConformance runs the official suite against go-sdk's everything server on
// stdio behind Segno, as Segno is by default: no failure and no warning.
func TestConformance(t *testing.T) {
	need(t, "npm")
	s := serve(t, nil, built.everything)
	t.Cleanup(func() { t.Log("suite: all server scenarios of 2025-11-25") })
	found := conformance(t, s.url, "--suite", "all")
	if len(found) < 30 {
		t.Errorf("only %d scenarios ran", len(found))
	}
	spotless(t, found)
}

// TestConformanceRotating runs the scenarios of streams with connections that
// Segno ends early, before a tool that outlasts them: the suite has to resume.
func TestConformanceRotating(t *testing.T) {
	need(t, "npm")
	// A connection lives 0.8 to 0.88 s, so the slow tool ends on the second one:
	// the suite resumes only once.
	flags := []string{"--json-within", "0", "--rotate", "800ms", "--retry", "300ms"}
	l := ledger(t.TempDir())
	for name, command := range map[string][]string{
		"everything": {built.everything},
		"slow":       l.command(t, "2025-11-25"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, flags, command...)
			polling := conformance(t, s.url, "--scenario", "server-sse-polling")
			spotless(t, polling)
			spotless(t, conformance(t, s.url, "--scenario", "server-sse-multiple-streams"))
			if name == "slow" && !resumed(polling) {
				t.Errorf("the suite did not get to resume: %+v", polling)
			}
		})
	}
}

// resumed tells whether the check of a resume was passed and not left out.
func resumed(found []scenario) bool {
	return len(found) == 1 && found[0].counts["server-sse-disconnect-resume SUCCESS"] == 1
}

// conformance runs the suite and reads every finding it wrote.
func conformance(t *testing.T, url string, args ...string) []scenario {
	t.Helper()
	out := t.TempDir()
	// The suite's own check of rebinding takes this name only.
	url = strings.Replace(url, "127.0.0.1", "localhost", 1)
	args = append([]string{"testdata/npm/node_modules/@modelcontextprotocol/conformance/dist/index.js",
		"server", "--url", url, "--spec-version", "2025-11-25", "-o", out}, args...)
	said, err := exec.CommandContext(t.Context(), node(t), args...).CombinedOutput()
	files, globErr := filepath.Glob(filepath.Join(out, "*", "checks.json"))
	if err != nil || globErr != nil || len(files) == 0 {
		t.Errorf("the suite ended with %v, %d results\n%s", err, len(files), tail(said))
	}
	var found []scenario
	for _, f := range files {
		found = append(found, readChecks(t, f))
	}
	slices.SortFunc(found, func(a, b scenario) int { return strings.Compare(a.name, b.name) })
	return found
}

func tail(said []byte) string {
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}

var stamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT.*$`)

func readChecks(t *testing.T, file string) scenario {
	t.Helper()
	s := scenario{name: stamp.ReplaceAllString(filepath.Base(filepath.Dir(file)), ""), counts: map[string]int{}}
	s.name = strings.TrimPrefix(s.name, "server-")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var checks []check
	if err := json.Unmarshal(text, &checks); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, c := range checks {
		s.counts[c.Status]++
		s.counts[c.ID+" "+c.Status]++
		switch c.Status {
		case "SUCCESS", "INFO", "SKIPPED":
		default: // a status that is not known here counts as bad
			s.bad = append(s.bad, c)
		}
	}
	return s
}

// spotless prints the table and fails for each finding that is not good, and
// for each scenario that found nothing.
func spotless(t *testing.T, found []scenario) {
	t.Helper()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\tpassed\tskipped\tbad")
	total := 0
	for _, s := range found {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", s.name, s.counts["SUCCESS"], s.counts["SKIPPED"], len(s.bad))
		total += s.counts["SUCCESS"]
		if s.counts["SUCCESS"] == 0 {
			t.Errorf("%s: nothing was checked", s.name)
		}
		for _, c := range s.bad {
			t.Errorf("%s: %s: %s: %s", s.name, c.Status, c.ID, c.Message)
		}
	}
	w.Flush()
	t.Logf("%d scenarios, %d checks passed\n%s", len(found), total, table.String())
}

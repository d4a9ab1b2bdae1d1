package telemetry

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/notice"
	"github.com/segno-mcp/segno/internal/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func scrape(t *testing.T, m *Meter) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func has(t *testing.T, text, line string) {
	t.Helper()
	if !slices.Contains(strings.Split(text, "\n"), line) {
		t.Errorf("the scrape has no line %q", line)
	}
}

func TestCountsAndMeasures(t *testing.T) {
	m := NewMeter("v1")
	m.Add(metric.Resumes, "exact", 2)
	m.Add(metric.SessionsOpen, "", 3)
	m.Add(metric.SessionsOpen, "", -1)
	m.Observe(metric.ResumeReplayed, "", 7)
	m.Gauge("store_bytes", "Size.", func() float64 { return 42 })
	text := scrape(t, m)
	has(t, text, `segno_resumes_total{result="exact"} 2`)
	has(t, text, `segno_sessions 2`)
	has(t, text, `segno_resume_replayed_events_bucket{le="10"} 1`)
	has(t, text, `segno_resume_replayed_events_bucket{le="5"} 0`)
	has(t, text, `segno_store_bytes 42`)
	has(t, text, `segno_build_info{version="v1"} 1`)
	if !strings.Contains(text, "go_goroutines ") || !strings.Contains(text, "process_") {
		t.Error("the scrape has nothing of the runtime or the process")
	}
	if got := m.Totals(metric.Resumes); len(got) != 1 || got["exact"] != 2 {
		t.Errorf("totals of resumes: %v", got)
	}
	if got := m.Total(metric.SessionsOpen); got != 2 {
		t.Errorf("total of sessions: %v", got)
	}
}

// seriesIn counts the lines that are samples.
func seriesIn(text string) (n int) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "segno_") {
			n++
		}
	}
	return n
}

func TestField109_NamesFromOutsideMakeNoSeries(t *testing.T) {
	m := NewMeter("v1")
	before := seriesIn(scrape(t, m))
	for i := range 1000 {
		for _, r := range table {
			m.Add(r.metric, fmt.Sprintf("secret-%d", i), 1)
			m.Observe(r.metric, fmt.Sprintf("secret-%d", i), 1)
		}
		m.Add(metric.Name(fmt.Sprintf("invented_%d", i)), "", 1)
	}
	text := scrape(t, m)
	if after := seriesIn(text); after != before {
		t.Errorf("%d series became %d", before, after)
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "invented") {
		t.Error("a name from outside is shown")
	}
	has(t, text, `segno_clients_total{name="other"} 1000`)
}

func TestWrongNumbersDoNotPanic(t *testing.T) {
	m := NewMeter("v1")
	m.Add(metric.EvictedEvents, "", -1)
	m.Add(metric.EvictedEvents, "", math.NaN())
	m.Observe(metric.EvictedEvents, "", 1)
	m.Add(metric.OutcomeSeconds, "", 1)
	has(t, scrape(t, m), `segno_evicted_events_total 0`)
}

func TestEveryMetricIsInTheTable(t *testing.T) {
	m := NewMeter("v1")
	n := 0
	for name, value := range constants(t) {
		n++
		if _, ok := m.metrics[metric.Name(value)]; !ok {
			t.Errorf("metric.%s (%s) is not in the table", name, value)
		}
	}
	if n < 20 {
		t.Errorf("found %d metrics in the source, it must be read wrongly", n)
	}
}

// constants reads the names and values of all metrics from the source.
func constants(t *testing.T) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../metric/metric.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "Name" {
				found[v.Names[0].Name], _ = strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			}
		}
		return true
	})
	return found
}

// TestLabelsInUseAreInTheTable reads every call of a Meter with a literal label:
// one that is not in the table would be counted as other and never be missed.
func TestLabelsInUseAreInTheTable(t *testing.T) {
	m, names := NewMeter("v1"), constants(t)
	seen := 0
	for _, dir := range []string{"../session", "../front", "../.."} {
		for _, file := range sources(t, dir) {
			seen += labels(t, m, names, file)
		}
	}
	if seen < 10 {
		t.Errorf("only %d calls found in the source, it must be read wrongly", seen)
	}
}

func sources(t *testing.T, dir string) (files []string) {
	t.Helper()
	if dir == "../.." {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, "_test.go") {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func labels(t *testing.T, m *Meter, names map[string]string, file string) (seen int) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 3 {
			return true
		}
		s, ok := m.metrics[metric.Name(names[metricName(call.Args[0])])]
		if !ok {
			return true
		}
		seen++
		lit, ok := call.Args[1].(*ast.BasicLit)
		if !ok {
			return true
		}
		label, _ := strconv.Unquote(lit.Value)
		if (label == "") != (s.row.label == "") || label != "" && !slices.Contains(s.row.values, label) {
			t.Errorf("%s: %s has no label %q: add it to table.go, or it counts as other", fset.Position(call.Pos()), s.row.metric, label)
		}
		return true
	})
	return seen
}

// TestReasonsAreInTheTable is about labels that are named constants.
func TestReasonsAreInTheTable(t *testing.T) {
	m := NewMeter("v1")
	reasons := map[metric.Name][]string{
		metric.Resumes: {session.Exact, session.Current, session.Evicted, session.Diverged, session.GoneCall, session.Unknown, session.Dead},
		metric.Gaps:    {notice.Retention, notice.SlowReader, notice.Store, notice.Policy, notice.Gone, notice.Unknown},
	}
	f, err := parser.ParseFile(token.NewFileSet(), "../front/streamable/stream.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && strings.HasPrefix(v.Names[0].Name, "why") {
			why, _ := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			reasons[metric.ConnectionSeconds] = append(reasons[metric.ConnectionSeconds], why)
		}
		return true
	})
	if len(reasons[metric.ConnectionSeconds]) < 5 {
		t.Error("few reasons for the end of connections found, the source must be read wrongly")
	}
	for metric, labels := range reasons {
		for _, l := range labels {
			if !slices.Contains(m.metrics[metric].row.values, l) {
				t.Errorf("%s has no label %q in the table", metric, l)
			}
		}
	}
}

func metricName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func TestNamesAreGoodManners(t *testing.T) {
	m := NewMeter("v1")
	problems, err := promlint.New(strings.NewReader(scrape(t, m))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "segno_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	m := NewMeter("v1")
	if n := testing.AllocsPerRun(100, func() { m.Add(metric.MessagesOut, "client", 1) }); n != 0 {
		t.Errorf("counting one message allocates %v times", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	m := NewMeter("v1")
	for b.Loop() {
		m.Add(metric.MessagesOut, "client", 1)
	}
}

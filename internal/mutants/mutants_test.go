package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestMutantsFit keeps every mutant in step with the code it edits, without
// running any.
func TestMutantsFit(t *testing.T) {
	root := filepath.Join("..", "..")
	all, err := load("testdata", regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if _, err := m.apply(root); err != nil {
			t.Error(err)
		}
		if !hasTest(t, filepath.Join(root, filepath.FromSlash(m.pkg)), m.test) {
			t.Errorf("mutant %s: no test in %s matches %s", m.name, m.pkg, m.test)
		}
	}
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	top, _, _ := strings.Cut(name, "/")
	match := regexp.MustCompile(top)
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range testFunc.FindAllStringSubmatch(string(text), -1) {
			if match.MatchString(found[1]) {
				return true
			}
		}
	}
	return false
}

const sample = `promise: 1
file: add.go
kill: . TestAdd
why: a sum that is a difference
--- old
a + b
--- new
a - b
`

func TestParse(t *testing.T) {
	m, err := parseMutant("x", sample)
	if err != nil {
		t.Fatal(err)
	}
	want := mutant{name: "x", promise: "1", file: "add.go", pkg: ".", test: "TestAdd",
		why: "a sum that is a difference", old: "a + b", with: "a - b"}
	if m != want {
		t.Errorf("got %+v\nwant %+v", m, want)
	}
	for name, text := range map[string]string{
		"no old":      strings.Replace(sample, "--- old", "---", 1),
		"no new":      strings.Replace(sample, "--- new", "---", 1),
		"no promise":  strings.Replace(sample, "promise: 1\n", "", 1),
		"no why":      strings.Replace(sample, "why: a sum that is a difference\n", "", 1),
		"unknown key": strings.Replace(sample, "why:", "because:", 1),
		"one word":    strings.Replace(sample, ". TestAdd", "TestAdd", 1),
		"bad regexp":  strings.Replace(sample, "TestAdd", "Test(", 1),
		"same":        strings.Replace(sample, "a - b", "a + b", 1),
	} {
		if _, err := parseMutant("x", text); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestPackagePath(t *testing.T) {
	for in, want := range map[string]string{
		"./eventlog/memlog":                   "./eventlog/memlog",
		"eventlog/memlog":                     "./eventlog/memlog",
		"github.com/segno-mcp/segno/eventlog": "./eventlog",
		"github.com/segno-mcp/segno":          ".",
		".":                                   ".",
		"./":                                  ".",
	} {
		if got := packagePath(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestJudge(t *testing.T) {
	failed := errors.New("exit status 1")
	for _, c := range []struct {
		out  string
		err  error
		want verdict
		says string
	}{
		{"ok  \tx\t0.1s\n", nil, survived, ""},
		{"ok  \tx\t0.1s [no tests to run]\n", nil, invalid, "no such test"},
		{"?   \tx\t[no test files]\n", nil, invalid, "no such test"},
		{"# x\n./a.go:1:1: oops\nFAIL\tx [build failed]\n", failed, invalid, "./a.go:1:1: oops"},
		{"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\nFAIL\nFAIL\tx\t0.1s\n", failed, killed, "TestA/b"},
		{"panic: test timed out after 1s\nFAIL\tx\t1s\n", failed, timedOut, "timeout"},
		{"panic: nil map\nFAIL\tx\t1s\n", failed, killed, "panic: nil map"},
		{"go: no such tool\n", failed, invalid, "no such tool"},
	} {
		got, says := judge(c.out, c.err)
		if got != c.want || !strings.Contains(says, c.says) {
			t.Errorf("%q: got %s (%s), want %s (%s)", c.out, got, says, c.want, c.says)
		}
	}
}

// TestCommand runs the command on a module of its own: one mutant is killed, one
// survives, one does not compile, one does not fit, and the tree stays untouched.
func TestCommand(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command:", err)
	}
	root := t.TempDir()
	files := map[string]string{
		"go.mod":                                 "module example.org/sum\n\ngo 1.26\n",
		"add.go":                                 "package sum\n\nfunc add(a, b int) int { return a + b }\n",
		"add_test.go":                            "package sum\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif add(2, 2) != 4 {\n\t\tt.Fatal(add(2, 2))\n\t}\n}\n",
		"internal/mutants/testdata/killed.txt":   sample,
		"internal/mutants/testdata/survives.txt": strings.Replace(sample, "a - b", "a * b", 1),
		"internal/mutants/testdata/broken.txt":   strings.Replace(sample, "a - b", "a -", 1),
		"internal/mutants/testdata/stale.txt":    strings.Replace(sample, "a + b", "a % b", 1),
	}
	for name, text := range files {
		p := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	start := time.Now()
	err := command(t.Context(), []string{"-root", root}, &out)
	if err == nil || !strings.Contains(err.Error(), "3 of 4 mutants were not killed") {
		t.Errorf("error: %v", err)
	}
	for _, want := range []string{
		`killed +1 +killed +TestAdd`, `survives +1 +SURVIVED`, `broken +1 +INVALID +does not compile`,
		`stale +1 +INVALID +.*occurs 0 times in add.go`, `4 mutants, 1 killed`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("the table has no %q:\n%s", want, out.String())
		}
	}
	if err := command(t.Context(), []string{"-root", root, "-run", "^killed$"}, &out); err != nil {
		t.Errorf("with a killed mutant alone: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(root, "add.go"))
	if err != nil || string(text) != files["add.go"] {
		t.Errorf("the tree was touched: %q, %v", text, err)
	}
	t.Logf("took %s", time.Since(start))
}

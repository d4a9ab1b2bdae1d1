// Package segno_test holds the shape of the whole module as tables: which
// package may import which, which library belongs to whom, and how large files,
// functions, packages and interfaces may grow.
package segno_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/segno-mcp/segno"

// layers says which packages of this module a package may import, outside of
// its tests. A package that is not listed must be added with what it needs; an
// entry that ends in /... stands for everything under it.
var layers = map[string][]string{
	".":         {"eventlog/...", "internal/..."},
	"cmd/segno": {"...", "eventlog/...", "internal/..."},

	"eventlog":               {},
	"eventlog/internal/disk": {},
	"eventlog/internal/tail": {"eventlog"},
	"eventlog/memlog":        {"eventlog", "eventlog/internal/..."},
	"eventlog/pebblelog":     {"eventlog", "eventlog/internal/..."},
	"eventlog/redislog":      {"eventlog", "eventlog/internal/..."},
	"eventlog/logtest":       {"eventlog"},

	"internal/wire":   {},
	"internal/metric": {},
	"internal/sse":    {},
	"internal/quirks": {},

	"internal/notice":    {"eventlog", "internal/wire"},
	"internal/retention": {"eventlog"},
	"internal/session":   {"eventlog", "internal/metric", "internal/notice", "internal/quirks", "internal/retention", "internal/wire"},

	"internal/front/streamable": {"eventlog", "internal/metric", "internal/notice", "internal/quirks", "internal/session", "internal/sse", "internal/wire"},
	"internal/front/modern":     {"eventlog", "internal/metric", "internal/notice", "internal/quirks", "internal/session", "internal/sse", "internal/wire"},
	"internal/front/legacysse":  {"eventlog", "internal/metric", "internal/notice", "internal/quirks", "internal/session", "internal/sse", "internal/wire"},
	"internal/front/websocket":  {"eventlog", "internal/metric", "internal/notice", "internal/quirks", "internal/session", "internal/wire"},
	"internal/front/longpoll":   {"eventlog", "internal/metric", "internal/notice", "internal/quirks", "internal/session", "internal/wire"},

	"internal/access": {"internal/wire"},
	"internal/listen": {},

	"internal/upstream/process": {"internal/wire"},
	"internal/upstream/remote":  {"internal/quirks", "internal/sse", "internal/wire"},
	"internal/bridge":           {"internal/wire"},

	"internal/config":    {},
	"internal/shelf":     {},
	"internal/telemetry": {"internal/metric"},
	"internal/admin":     {"eventlog", "internal/metric", "internal/session", "internal/telemetry", "internal/wire"},
	"internal/check":     {"eventlog", "internal/sse", "internal/wire"},
	"internal/example":   {},
	"internal/demo":      {"internal/example", "internal/sse"},

	"internal/memnet":  {},
	"internal/fakemcp": {"internal/memnet", "internal/wire"},
	"internal/oracle":  {"eventlog/...", "internal/..."},
	"internal/mutants": {},
}

// owners says which packages may use a library outside of tests. A library
// that is not listed has no place yet.
var owners = map[string][]string{
	"github.com/cockroachdb/pebble/v2":           {"eventlog/internal/disk", "eventlog/pebblelog"},
	"github.com/redis/rueidis":                   {"eventlog/redislog"},
	"github.com/prometheus/client_golang":        {"internal/telemetry"},
	"github.com/prometheus/client_model":         {"internal/telemetry"},
	"go.opentelemetry.io/otel":                   {"internal/telemetry"},
	"github.com/alecthomas/kong":                 {"cmd/segno"},
	"github.com/coder/websocket":                 {"internal/front/websocket", "internal/upstream/remote"},
	"github.com/rs/cors":                         {"internal/access", "internal/admin"},
	"github.com/modelcontextprotocol/go-sdk":     {"internal/example", "internal/upstream/remote", "internal/oracle"},
	"pgregory.net/rapid":                         {"eventlog/logtest", "internal/oracle"},
	"github.com/rogpeppe/go-internal/testscript": {},
	"go.uber.org/goleak":                         {"eventlog/logtest", "internal/oracle"},
	"golang.org/x/net":                           {"internal/upstream/remote"},
	"golang.org/x/time":                          {"internal/...", "."},
	"golang.org/x/sys":                           {"internal/...", "eventlog/...", "cmd/segno"},
	"golang.org/x/sync":                          {"internal/...", "eventlog/...", "cmd/segno", "."},
	"golang.org/x/term":                          {"cmd/segno"},
}

// free are folders where the table of imports does not hold.
var free = []string{"bench/..."}

// Limits on size. They hold for tests too, but for files of tests and the
// number of files.
const (
	maxFile     = 500 // lines
	maxTestFile = 800 // lines
	maxFunc     = 80  // lines
	maxFiles    = 15  // in a package, without tests
	maxMethods  = 5   // of an interface, embedded interfaces counting as one
)

// exceptions are what may be larger, by "file", "file func" or "file type",
// each with its reason. The list only shrinks.
var exceptions = map[string]string{}

// empty are names of files that say nothing about what is in them.
var empty = []string{"util", "utils", "common", "type", "types", "helper", "helpers", "misc", "base", "lib"}

// source is one parsed Go file.
type source struct {
	name  string // path from the root, with slashes
	dir   string
	test  bool
	lines int
	file  *ast.File
}

// tree is every Go file of the module.
type tree struct {
	fset  *token.FileSet
	files []source
}

func parse(t *testing.T, root string) *tree {
	t.Helper()
	tr := &tree{fset: token.NewFileSet()}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipDir(root, p)
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		return tr.add(root, p)
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// skipDir leaves out what the go command leaves out as well.
func skipDir(root, p string) error {
	base := filepath.Base(p)
	hidden := strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
	if p != root && (hidden || base == "testdata" || base == "node_modules" || base == "vendor") {
		return filepath.SkipDir
	}
	return nil
}

func (tr *tree) add(root, p string) error {
	text, err := os.ReadFile(p)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(root, p)
	if err != nil {
		return err
	}
	name := filepath.ToSlash(rel)
	f, err := parser.ParseFile(tr.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	tr.files = append(tr.files, source{
		name:  name,
		dir:   path.Dir(name),
		test:  strings.HasSuffix(name, "_test.go"),
		lines: strings.Count(string(text), "\n"),
		file:  f,
	})
	return nil
}

// under tells whether dir is what the pattern names.
func under(pattern, dir string) bool {
	if pattern == "..." {
		return dir == "."
	}
	if top, all := strings.CutSuffix(pattern, "/..."); all {
		return dir == top || strings.HasPrefix(dir, top+"/")
	}
	return pattern == dir
}

func allowed(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return under(p, dir) })
}

// library finds the table's name for an import path.
func library(imp string) (string, bool) {
	for name := range owners {
		if imp == name || strings.HasPrefix(imp, name+"/") {
			return name, true
		}
	}
	return "", false
}

func (tr *tree) imports() (wrong []string) {
	for _, s := range tr.files {
		if s.test || allowed(free, s.dir) {
			continue
		}
		for _, spec := range s.file.Imports {
			imp := strings.Trim(spec.Path.Value, `"`)
			if why := importFault(s.dir, imp); why != "" {
				wrong = append(wrong, fmt.Sprintf("%s: %s", tr.fset.Position(spec.Pos()), why))
			}
		}
	}
	return wrong
}

func importFault(dir, imp string) string {
	if imp == "C" {
		return "no cgo: the binary is static"
	}
	if imp == module || strings.HasPrefix(imp, module+"/") {
		return layerFault(dir, strings.TrimPrefix(strings.TrimPrefix(imp, module), "/"))
	}
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	name, known := library(imp)
	if !known {
		return fmt.Sprintf("imports %s, which no package owns: add it to owners or do without", imp)
	}
	if !allowed(owners[name], dir) {
		return fmt.Sprintf("imports %s, which only %v may", imp, owners[name])
	}
	return ""
}

func layerFault(dir, target string) string {
	if target == "" {
		target = "."
	}
	if strings.HasPrefix(dir, "cmd/") && dir != "cmd/segno" {
		return "a second command: only cmd/segno is listed"
	}
	may, listed := layers[dir]
	if !listed {
		return fmt.Sprintf("package %s is not in layers: say what it may import", dir)
	}
	if target == "internal/config" && dir != "cmd/segno" {
		return "imports internal/config: only the command reads configuration"
	}
	if !allowed(may, target) {
		return fmt.Sprintf("%s may not import %s (allowed: %v)", dir, target, may)
	}
	return ""
}

func (tr *tree) sizes() (wrong []string) {
	files := map[string]int{}
	for _, s := range tr.files {
		limit := maxTestFile
		if !s.test {
			limit = maxFile
			files[s.dir]++
		}
		if s.lines > limit && exceptions[s.name] == "" {
			wrong = append(wrong, fmt.Sprintf("%s: %d lines, at most %d: split it by idea", s.name, s.lines, limit))
		}
		wrong = append(wrong, tr.parts(s)...)
	}
	for _, dir := range slices.Sorted(maps.Keys(files)) {
		if n := files[dir]; n > maxFiles && exceptions[dir] == "" {
			wrong = append(wrong, fmt.Sprintf("%s: %d files, at most %d: two ideas share the package", dir, n, maxFiles))
		}
	}
	return wrong
}

// parts checks the functions and interfaces of a file.
func (tr *tree) parts(s source) (wrong []string) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			lines := tr.fset.Position(n.End()).Line - tr.fset.Position(n.Pos()).Line + 1
			if lines > maxFunc && exceptions[s.name+" "+n.Name.Name] == "" {
				wrong = append(wrong, fmt.Sprintf("%s: %s has %d lines, at most %d",
					tr.fset.Position(n.Pos()), n.Name.Name, lines, maxFunc))
			}
		case *ast.TypeSpec:
			i, ok := n.Type.(*ast.InterfaceType)
			if ok && methods(i) > maxMethods && exceptions[s.name+" "+n.Name.Name] == "" {
				wrong = append(wrong, fmt.Sprintf("%s: interface %s has %d methods, at most %d",
					tr.fset.Position(n.Pos()), n.Name.Name, methods(i), maxMethods))
			}
		}
		return true
	})
	return wrong
}

func methods(i *ast.InterfaceType) int {
	n := 0
	for _, f := range i.Methods.List {
		n += max(1, len(f.Names))
	}
	return n
}

func (tr *tree) names() (wrong []string) {
	documented, where, code := map[string]bool{}, map[string]string{}, map[string]bool{}
	for _, s := range tr.files {
		code[s.dir] = code[s.dir] || !s.test
	}
	for _, s := range tr.files {
		stem := strings.TrimSuffix(strings.TrimSuffix(path.Base(s.name), ".go"), "_test")
		if slices.Contains(empty, stem) || slices.Contains(empty, path.Base(s.dir)) {
			wrong = append(wrong, s.name+": the name says nothing about what is in it")
		}
		if where[s.dir] == "" {
			where[s.dir] = s.name
		}
		if s.test && code[s.dir] {
			continue
		}
		if s.file.Doc != nil && strings.TrimSpace(s.file.Doc.Text()) != "" {
			documented[s.dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(where)) {
		if !documented[dir] {
			wrong = append(wrong, fmt.Sprintf("%s: package %s has no doc comment", where[dir], dir))
		}
	}
	return wrong
}

// public finds types of internal packages in the signatures of what users of
// the module call: nobody else can name them. An alias gives one a name.
func (tr *tree) public() (wrong []string) {
	for _, s := range tr.files {
		if s.test || s.dir == "cmd/segno" || strings.Contains("/"+s.dir+"/", "/internal/") {
			continue
		}
		hidden := map[string]bool{}
		for _, imp := range s.file.Imports {
			if p := strings.Trim(imp.Path.Value, `"`); strings.Contains(p, "/internal/") {
				hidden[path.Base(p)] = true
			}
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			ast.Inspect(f.Type, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if id, ok := sel.X.(*ast.Ident); ok && hidden[id.Name] {
					wrong = append(wrong, fmt.Sprintf("%s: %s has %s.%s in its signature", tr.fset.Position(f.Pos()), f.Name.Name, id.Name, sel.Sel.Name))
				}
				return false
			})
		}
	}
	return wrong
}

func report(t *testing.T, wrong []string) {
	t.Helper()
	for _, w := range wrong {
		t.Error(w)
	}
}

func TestImportsGoOneWay(t *testing.T)       { report(t, parse(t, ".").imports()) }
func TestSizesStayWithinLimits(t *testing.T) { report(t, parse(t, ".").sizes()) }
func TestNamesAndDocs(t *testing.T)          { report(t, parse(t, ".").names()) }
func TestPublicSignatures(t *testing.T)      { report(t, parse(t, ".").public()) }

// TestExceptionsAreNeeded keeps the list of exceptions from growing old.
func TestExceptionsAreNeeded(t *testing.T) {
	for what, why := range exceptions {
		if len(why) < 20 {
			t.Errorf("exception %q has no reason worth reading", what)
		}
	}
	kept := exceptions
	exceptions = nil
	defer func() { exceptions = kept }()
	found := strings.Join(parse(t, ".").sizes(), "\n")
	for what := range kept {
		name, part, _ := strings.Cut(what, " ")
		if !strings.Contains(found, name) || !strings.Contains(found, part) {
			t.Errorf("exception %q is not needed any more: remove it", what)
		}
	}
}

// TestRulesBite runs the rules on a tree that breaks each of them once.
func TestRulesBite(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		p := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	head := "package x\nimport _ \"" + module + "/"
	write("internal/front/websocket/a.go", "// Package x is documented.\n"+head+"internal/front/streamable\"\n")
	write("internal/upstream/process/a.go", head+"internal/session\"\n")
	write("eventlog/a.go", head+"internal/wire\"\n")
	write("internal/session/a.go", head+"internal/config\"\n")
	write("internal/nowhere/a.go", head+"eventlog\"\n")
	write("internal/sse/a.go", "package x\nimport _ \"github.com/cockroachdb/pebble/v2/vfs\"\n")
	write("internal/wire/a.go", "package x\nimport _ \"example.org/new\"\n")
	write("internal/quirks/util.go", "package x\nfunc long() {\n"+strings.Repeat("\n", maxFile)+"}\n")
	write("api.go", "package x\nimport \""+module+"/internal/wire\"\nfunc Bad() wire.Conn { return nil }\nfunc fine() wire.Conn { return nil }\n")
	write("internal/quirks/b.go", "package x\ntype wide interface { A(); B(); C(); D(); E(); F() }\n")
	for i := range maxFiles + 1 {
		write(fmt.Sprintf("internal/admin/f%d.go", i), "package x\n")
	}
	tr := parse(t, root)
	all := strings.Join(slices.Concat(tr.imports(), tr.sizes(), tr.names(), tr.public()), "\n")
	for _, want := range []string{
		"internal/front/websocket may not import internal/front/streamable",
		"internal/upstream/process may not import internal/session",
		"eventlog may not import internal/wire",
		"internal/session/a.go:2:8: imports internal/config: only the command",
		"package internal/nowhere is not in layers",
		"internal/sse/a.go:2:8: imports github.com/cockroachdb/pebble/v2/vfs, which only",
		"imports example.org/new, which no package owns",
		"internal/quirks/util.go: 503 lines, at most 500",
		"internal/quirks/util.go:2:1: long has 502 lines",
		"internal/quirks/util.go: the name says nothing",
		"interface wide has 6 methods",
		"internal/admin: 16 files, at most 15",
		"package internal/sse has no doc comment",
		"api.go:3:1: Bad has wire.Conn in its signature",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("the rules did not say %q\nthey said:\n%s", want, all)
		}
	}
	if strings.Contains(all, "package internal/front/websocket has no doc comment") {
		t.Error("a documented package was called undocumented")
	}
}

package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is one small wrong edit and the test that must notice it.
type mutant struct {
	name    string // of its file, without the ending
	promise string
	file    string // from the module's root
	pkg     string // where the test is
	test    string // regular expression for go test -run
	why     string
	old     string
	with    string
}

const (
	oldMark = "\n--- old\n"
	newMark = "\n--- new\n"
)

// parseMutant reads a mutant's text: a head of "key: value" lines, the text to
// replace after "--- old", and what replaces it after "--- new". The last
// newline of each part belongs to the format and not to the text.
func parseMutant(name, text string) (mutant, error) {
	m := mutant{name: name}
	head, rest, ok := strings.Cut(text, oldMark)
	if !ok {
		return m, fmt.Errorf("mutant %s: no line %q", name, strings.TrimSpace(oldMark))
	}
	m.old, m.with, ok = strings.Cut(rest, newMark)
	if !ok {
		// Nothing between the marks would be "--- old" and "--- new" in a row.
		return m, fmt.Errorf("mutant %s: no line %q after some old text", name, strings.TrimSpace(newMark))
	}
	m.with = strings.TrimSuffix(m.with, "\n")
	if err := m.readHead(head); err != nil {
		return m, fmt.Errorf("mutant %s: %w", name, err)
	}
	if m.old == m.with {
		return m, fmt.Errorf("mutant %s: old and new are the same", name)
	}
	return m, nil
}

func (m *mutant) readHead(head string) error {
	lines := bufio.NewScanner(strings.NewReader(head))
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), ":")
		if !ok {
			return fmt.Errorf("line %q is not \"key: value\"", lines.Text())
		}
		if err := m.set(strings.TrimSpace(key), strings.TrimSpace(value)); err != nil {
			return err
		}
	}
	for key, value := range map[string]string{
		"promise": m.promise, "file": m.file, "kill": m.test, "why": m.why,
	} {
		if value == "" {
			return fmt.Errorf("no %s", key)
		}
	}
	return nil
}

func (m *mutant) set(key, value string) error {
	switch key {
	case "promise":
		m.promise = value
	case "file":
		m.file = filepath.ToSlash(filepath.Clean(value))
	case "why":
		m.why = value
	case "kill":
		fields := strings.Fields(value)
		if len(fields) != 2 {
			return fmt.Errorf("kill: %q is not a package and a test", value)
		}
		if _, err := regexp.Compile(fields[1]); err != nil {
			return fmt.Errorf("kill: %w", err)
		}
		m.pkg, m.test = packagePath(fields[0]), fields[1]
	default:
		return fmt.Errorf("unknown key %q", key)
	}
	return nil
}

// packagePath makes a path within the module of any way to write one.
func packagePath(p string) string {
	p = strings.TrimPrefix(p, "github.com/segno-mcp/segno")
	p = strings.Trim(strings.TrimPrefix(p, "."), "/")
	if p == "" {
		return "."
	}
	return "./" + p
}

// apply returns the file's text with the edit in it.
func (m *mutant) apply(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.file)))
	if err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.name, err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("mutant %s: its old text occurs %d times in %s, must be once", m.name, n, m.file)
	}
	return strings.Replace(string(text), m.old, m.with, 1), nil
}

// load reads every mutant of a folder whose name matches, in order.
func load(dir string, only *regexp.Regexp) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var all []mutant
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".txt")
		if !only.MatchString(name) {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		m, err := parseMutant(name, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// NotFoundError says that the command is nowhere to be found.
type NotFoundError struct {
	Name    string
	Dirs    []string // the folders that were searched; none if Name is a path
	Endings []string // the endings that were tried (PATHEXT); none on Unix
}

func (e *NotFoundError) Error() string {
	if len(e.Dirs) == 0 {
		return fmt.Sprintf("finding the command: %q is not an executable file%s", e.Name, e.endings())
	}
	return fmt.Sprintf("finding the command: no %q%s in %s", e.Name, e.endings(), strings.Join(e.Dirs, ", "))
}

func (e *NotFoundError) endings() string {
	if len(e.Endings) == 0 {
		return ""
	}
	return " (" + strings.Join(e.Endings, " ") + ")"
}

// Hint says what may help.
func (e *NotFoundError) Hint() string {
	if strings.ContainsAny(e.Name, " \t") {
		return "give the command and each argument as words of their own; no shell splits them"
	}
	if len(e.Dirs) == 0 {
		return "check the path, and that the file may be executed"
	}
	return "install it, add its folder to PATH, or give its full path"
}

// finder looks a command up the way its system does.
type finder struct {
	path    []string // the folders of PATH
	endings []string // of PATHEXT, with the dot; none on Unix
	seps    string   // what makes a name a path
	dir     string   // what relative paths are relative to
	runs    func(file string) bool
}

// newFinder searches the PATH that the child will have.
func newFinder(env []string, dir string) finder {
	f := finder{path: filepath.SplitList(lookupEnv(env, "PATH")), seps: separators, dir: dir, runs: executable}
	if hasEndings {
		f.endings = splitEndings(lookupEnv(env, "PATHEXT"))
	}
	return f
}

func splitEndings(s string) []string {
	if s == "" {
		s = ".COM;.EXE;.BAT;.CMD"
	}
	var out []string
	for e := range strings.SplitSeq(strings.ToLower(s), ";") {
		if e == "" {
			continue
		}
		out = append(out, "."+strings.TrimPrefix(e, "."))
	}
	return out
}

// find returns the file to run. Relative folders in PATH are passed over, as
// they would let a file in the working directory stand in for a command.
func (f finder) find(name string) (string, error) {
	if name == "" {
		return "", &NotFoundError{Name: name, Endings: f.endings}
	}
	if strings.ContainsAny(name, f.seps) {
		file := name
		if !filepath.IsAbs(file) && f.dir != "" {
			file = filepath.Join(f.dir, file)
		}
		if got, ok := f.try(file); ok {
			return got, nil
		}
		return "", &NotFoundError{Name: name, Endings: f.endings}
	}
	var searched []string
	for _, dir := range f.path {
		if !filepath.IsAbs(dir) || slices.Contains(searched, dir) {
			continue
		}
		searched = append(searched, dir)
		if got, ok := f.try(filepath.Join(dir, name)); ok {
			return got, nil
		}
	}
	if len(searched) == 0 {
		searched = []string{"an empty PATH"}
	}
	return "", &NotFoundError{Name: name, Dirs: searched, Endings: f.endings}
}

// try tests the file as it is named and with each ending. Where endings exist a
// file without one of them can't be run: npm puts a shell script called npx
// beside npx.cmd.
func (f finder) try(file string) (string, bool) {
	if len(f.endings) == 0 {
		return file, f.runs(file)
	}
	if slices.Contains(f.endings, strings.ToLower(filepath.Ext(file))) && f.runs(file) {
		return file, true
	}
	for _, e := range f.endings {
		if f.runs(file + e) {
			return file + e, true
		}
	}
	return "", false
}

// batchLine is the command line that makes cmd.exe run a batch file with
// arguments that arrive unchanged: cmd.exe does not split arguments as programs
// do, and would expand %NAME% and take & as its own.
func batchLine(shell, file string, args []string) (string, error) {
	if strings.ContainsAny(file, "\"%\r\n\x00") {
		return "", fmt.Errorf("running %q: cmd.exe can't take such a path", file)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `"%s" /e:ON /v:OFF /d /c ""%s"`, shell, file)
	for _, a := range args {
		if strings.ContainsAny(a, "\r\n\x00") {
			return "", fmt.Errorf("running %s: an argument holds a line break or a zero byte, which a batch file can't take", file)
		}
		b.WriteByte(' ')
		batchArg(&b, a)
	}
	b.WriteByte('"')
	return b.String(), nil
}

// batchArg quotes one argument. Quotes are doubled, which both cmd.exe and the
// program behind it read as one. The substring of %cd% that is inserted before
// a percent sign is empty, and keeps the sign from opening a name.
func batchArg(b *strings.Builder, a string) {
	quote := a == "" || strings.HasSuffix(a, `\`) || strings.ContainsFunc(a, needsQuote)
	if quote {
		b.WriteByte('"')
	}
	slashes := 0
	for i := range len(a) {
		switch a[i] {
		case '"':
			b.WriteString(strings.Repeat(`\`, slashes) + `"`)
		case '%':
			b.WriteString("%%cd:~,")
		}
		if a[i] == '\\' {
			slashes++
		} else {
			slashes = 0
		}
		b.WriteByte(a[i])
	}
	if quote {
		b.WriteString(strings.Repeat(`\`, slashes) + `"`)
	}
}

func needsQuote(r rune) bool {
	plain := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r > 0x9f ||
		strings.ContainsRune(`#$*+-./:?@\_`, r)
	return !plain
}

// lookupEnv finds the last value of a variable.
func lookupEnv(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		k, v, ok := strings.Cut(kv, "=")
		if ok && sameName(k, name) {
			return v
		}
	}
	return ""
}

// childEnv is Segno's environment without its own variables, which may hold
// keys and mean something to another Segno, then what the options add, and the
// mark by which Sweep knows the child's processes.
func childEnv(own, extra []string, mark string) []string {
	env := make([]string, 0, len(own)+len(extra)+1)
	for _, kv := range own {
		if !strings.HasPrefix(strings.ToUpper(kv), "SEGNO_") {
			env = append(env, kv)
		}
	}
	env = append(env, extra...)
	return append(env, markVar+"="+mark)
}

// markVar names the variable that holds a child's mark. Its children inherit
// it, so that they can be told from processes that only got the same number.
const markVar = "DALSEGNO"

func executable(file string) bool {
	st, err := os.Stat(file)
	return err == nil && !st.IsDir() && (hasEndings || st.Mode()&0o111 != 0)
}

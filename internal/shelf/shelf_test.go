package shelf

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestStateDirFollowsTheSystem(t *testing.T) {
	abs := filepath.Join(t.TempDir(), "state")
	env := func(m map[string]string) func(string) string { return func(k string) string { return m[k] } }
	if got, err := StateDir(env(map[string]string{"XDG_STATE_HOME": abs})); err != nil || got != filepath.Join(abs, "segno") {
		t.Errorf("with XDG_STATE_HOME: %q, %v", got, err)
	}
	// A relative one is to be ignored (XDG Base Directory Specification).
	if got, err := StateDir(env(map[string]string{"XDG_STATE_HOME": "rel"})); err == nil && !filepath.IsAbs(got) {
		t.Errorf("with a relative XDG_STATE_HOME: %q", got)
	}
	if runtime.GOOS == "linux" {
		t.Setenv("HOME", "/home/x")
		if got, err := StateDir(env(nil)); err != nil || got != "/home/x/.local/state/segno" {
			t.Errorf("without: %q, %v", got, err)
		}
	}
}

func server(words ...string) Server {
	return Server{Fingerprint: strings.Join(words, " "), Command: words}
}

func TestFoldersTellServersApart(t *testing.T) {
	const listen = "127.0.0.1:8080"
	seen := map[string]Server{}
	for _, s := range []Server{
		server("npx", "-y", "a"), server("npx", "-y", "b"), server("/usr/bin/npx", "-y", "a"),
		{Name: "x", Fingerprint: "f", Command: []string{"npx"}}, {Name: "y", Fingerprint: "f", Command: []string{"npx"}},
		{Name: "x", Fingerprint: "f", Command: []string{"npx"}, Env: []string{"DB=test"}},
		{Name: "x", Fingerprint: "f", Command: []string{"npx"}, Env: []string{"DB=real"}},
		{Fingerprint: "url-1", URL: "https://user:secret@host:1/mcp?key=secret"},
		{Name: "../..", Fingerprint: "f"},
		{Name: strings.Repeat("x", 40) + "1", Fingerprint: "f"}, {Name: strings.Repeat("x", 40) + "2", Fingerprint: "f"},
	} {
		dir := Folder("/logs", s, listen)
		if other, taken := seen[dir]; taken {
			t.Errorf("%+v and %+v have the same log", s, other)
		}
		seen[dir] = s
		if filepath.Dir(dir) != filepath.FromSlash("/logs") || strings.Contains(dir, "secret") {
			t.Errorf("%+v is kept in %s", s, dir)
		}
	}
	ab := Server{Name: "x", Env: []string{"A=1", "B=2"}}
	ba := Server{Name: "x", Env: []string{"B=2", "A=1"}}
	if Folder("/logs", ab, listen) != Folder("/logs", ba, listen) {
		t.Error("the order of the environment counts")
	}
}

func TestSpellingsOfOneAddress(t *testing.T) {
	for _, same := range [][]string{
		{"127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080"},
		{":8080", "0.0.0.0:8080", "[::]:8080"},
		{"127.0.0.1:80", "127.0.0.1:http"},
		{"[::1]:8080"}, {"127.0.0.1:8081"}, {"10.0.0.1:8080"},
	} {
		for _, listen := range same {
			if got, want := Folder("/logs", server("a"), listen), Folder("/logs", server("a"), same[0]); got != want {
				t.Errorf("%s is kept in %s, %s in %s", listen, got, same[0], want)
			}
			if n := filepath.Base(Folder("/logs", server("a"), listen)); n != plain(n) {
				t.Errorf("%s is no name for a file everywhere", n)
			}
		}
	}
	if Folder("/logs", server("a"), "127.0.0.1:1") == Folder("/logs", server("a"), "127.0.0.1:2") {
		t.Error("two ports have the same log")
	}
}

// TestWhereItWasStarted: from a shell to systemd the log is found again, unless
// the command would be another one there.
func TestWhereItWasStarted(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		if err := os.WriteFile(filepath.Join(dir, "server.py"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(dir string, s Server) string {
		t.Chdir(dir)
		return Folder("/logs", s, "127.0.0.1:8080")
	}
	for _, c := range []struct {
		words []string
		same  bool
	}{
		{[]string{"npx", "-y", "@scope/server"}, true},
		{[]string{"server.py"}, true}, // a command without a path is looked up in PATH
		{[]string{"./server.py"}, false},
		{[]string{"python", "server.py"}, false},
		{[]string{"python", filepath.Join(one, "server.py")}, true},
		{[]string{"run", "--file=server.py"}, false},
		{[]string{"run", "--file=other.py", "file=server.py", "", "-"}, true},
		{[]string{"fs", "."}, false},
	} {
		if got := in(one, server(c.words...)) == in(two, server(c.words...)); got != c.same {
			t.Errorf("%q started elsewhere has the same log: %v, want %v", c.words, got, c.same)
		}
	}
	configured := server("python", "server.py")
	configured.Dir = one
	if in(one, configured) != in(two, configured) {
		t.Error("where segno was started counts although the server's folder is configured")
	}
}

// TestFileThatTheServerMakes: it is not there at the first start.
func TestFileThatTheServerMakes(t *testing.T) {
	dir, logs := t.TempDir(), t.TempDir()
	t.Chdir(dir)
	s := server("db", "data.sqlite")
	first := Folder(logs, s, "127.0.0.1:8080")
	mark(t, first)
	if err := NewCard(s, "abcd").Write(first); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("data.sqlite", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if again := Folder(logs, s, "127.0.0.1:8080"); again != first {
		t.Errorf("its log was in %s and is looked for in %s", first, again)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("data.sqlite", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if other := Folder(logs, s, "127.0.0.1:8080"); other == first {
		t.Error("another folder's data has the same log")
	}
}

// mark makes a folder look like that of a log.
func mark(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "marker.format.1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLogsBelow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[b]*?")
	if runtime.GOOS == "windows" {
		dir = t.TempDir()
	}
	mark(t, filepath.Join(dir, "one"))
	mark(t, filepath.Join(dir, "two"))
	if err := os.MkdirAll(filepath.Join(dir, "none"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, "one"), filepath.Join(dir, "two")}
	if got := Below(dir); !slices.Equal(got, want) || IsLog(dir) || !IsLog(want[0]) {
		t.Errorf("below it are %q", got)
	}
	if got := Below(filepath.Join(dir, "nowhere")); got != nil {
		t.Errorf("below nothing are %q", got)
	}
}

func TestCardIsKeptForItsOwner(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadCard(dir); err == nil {
		t.Error("a card where there is none")
	}
	a := NewCard(Server{Name: "n", Command: []string{"npx", "a"}, Env: []string{"KEY=secret"}}, "ab12")
	if err := a.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := ReadCard(dir)
	if err != nil || got.Instance != "ab12" || got.Differs(a) != "" {
		t.Errorf("read back: %+v, %v", got, err)
	}
	info, err := os.Stat(filepath.Join(dir, cardFile))
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(filepath.Join(dir, cardFile))
	if err != nil || strings.Contains(string(text), "secret") {
		t.Errorf("it holds %s, %v", text, err)
	}
	for _, c := range []struct {
		s    Server
		says string
	}{
		{Server{Command: []string{"npx", "b"}}, `the log of "npx a", and this is "npx b"`},
		{Server{Command: []string{"npx", "a"}, Dir: "/elsewhere"}, "this is in " + filepath.FromSlash("/elsewhere")},
		{Server{URL: "https://u:secret@h/mcp?k=secret"}, "this is https://h/mcp"},
	} {
		if got := a.Differs(NewCard(c.s, "")); !strings.Contains(got, c.says) && runtime.GOOS != "windows" {
			t.Errorf("it says %q, want %q in it", got, c.says)
		}
	}
	for _, bad := range []string{"", "{", `{"instance":"AB12"}`, `{"instance":"ab123"}`} {
		if err := os.WriteFile(filepath.Join(dir, cardFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := ReadCard(dir); err == nil {
			t.Errorf("%q was taken: %+v", bad, c)
		}
	}
}

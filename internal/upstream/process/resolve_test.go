package process

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The rules of Windows, told to a finder on any system.
func TestField64_CommandsAreFoundByTheirEnding(t *testing.T) {
	there := map[string]bool{}
	for _, f := range []string{"/a/npx", "/a/npx.cmd", "/b/npx.exe", "/b/uv.exe", "/b/tool.v2.exe", "/b/notes.txt", "/here/run.bat"} {
		there[filepath.FromSlash(f)] = true
	}
	f := finder{
		path: []string{"", "rel", filepath.FromSlash("/a"), filepath.FromSlash("/b")}, endings: splitEndings(".COM;.EXE;;BAT;.CMD"),
		seps: `/\`, dir: filepath.FromSlash("/here"), runs: func(file string) bool { return there[file] },
	}
	for name, want := range map[string]string{
		"npx": "/a/npx.cmd", "uv": "/b/uv.exe", "UV.EXE": "", "uv.exe": "/b/uv.exe", "tool.v2": "/b/tool.v2.exe",
		"./run": "/here/run.bat", "/b/uv": "/b/uv.exe", "notes.txt": "", "gone": "", "./gone": "", "": "",
	} {
		got, err := f.find(name)
		if filepath.ToSlash(got) != want {
			t.Errorf("%q is found as %q", name, got)
		}
		var nf *NotFoundError
		if (err != nil) != (want == "") || err != nil && !errors.As(err, &nf) {
			t.Errorf("%q: %v", name, err)
		}
	}
	_, err := f.find("gone")
	if err == nil || !strings.Contains(err.Error(), `"gone" (.com .exe .bat .cmd) in `) || strings.Contains(err.Error(), "rel") {
		t.Errorf("the error is %v", err)
	}
	_, err = f.find("npx -y server")
	var nf *NotFoundError
	if !errors.As(err, &nf) || !strings.Contains(nf.Hint(), "no shell splits them") {
		t.Errorf("the error is %v", err)
	}
	if got := splitEndings(""); !slices.Contains(got, ".cmd") {
		t.Errorf("without PATHEXT: %v", got)
	}
}

func TestField64_ArgumentsOfBatchFilesAreQuoted(t *testing.T) {
	for arg, want := range map[string]string{
		"plain":      `plain`,
		"a b":        `"a b"`,
		"a&calc.exe": `"a&calc.exe"`,
		"%PATH%":     `"%%cd:~,%PATH%%cd:~,%"`,
		`say "hi"`:   `"say ""hi"""`,
		`a\"b`:       `"a\\""b"`,
		"":           `""`,
		`C:\dir\`:    `"C:\dir\\"`,
		`C:\dir\x`:   `C:\dir\x`,
		"^|<>()!":    `"^|<>()!"`,
		"größe":      `größe`,
	} {
		got, err := batchLine(`C:\Windows\System32\cmd.exe`, `C:\npm\npx.cmd`, []string{arg})
		full := `"C:\Windows\System32\cmd.exe" /e:ON /v:OFF /d /c ""C:\npm\npx.cmd" ` + want + `"`
		if err != nil || got != full {
			t.Errorf("%s\nbecame %s\nnot    %s (%v)", arg, got, full, err)
		}
	}
	for _, bad := range []string{"a\nb", "a\rb", "a\x00b"} {
		if line, err := batchLine("cmd.exe", "x.cmd", []string{bad}); err == nil {
			t.Errorf("%q became %s", bad, line)
		}
	}
	if line, err := batchLine("cmd.exe", `x".cmd`, nil); err == nil {
		t.Errorf("the path became %s", line)
	}
}

func TestFingerprintTellsCommandsApart(t *testing.T) {
	a := New(Options{Argv: []string{"a", "b"}}).Fingerprint()
	for _, o := range []Options{{Argv: []string{"a b"}}, {Argv: []string{"a", "b"}, Dir: "/x"}, {Argv: []string{"a"}}} {
		if New(o).Fingerprint() == a {
			t.Errorf("%v has the same", o)
		}
	}
	if New(Options{Argv: []string{"a", "b"}, Env: []string{"K=v"}}).Fingerprint() != a {
		t.Error("the environment changes it")
	}
	t.Chdir(t.TempDir())
	if New(Options{Argv: []string{"a", "b"}}).Fingerprint() != a {
		t.Error("where segno was started changes it")
	}
}

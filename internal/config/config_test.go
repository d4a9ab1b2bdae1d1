package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1024": 1024, "16MiB": 16 << 20, "16m": 16 << 20, "64 kB": 64000, "1.5GiB": 3 << 29, "1TB": 1e12,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "16XB", "1e99", "9223372036854775808", "1.2.3", "NaN"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", text, got)
		}
	}
	for size, want := range map[Size]string{0: "0B", 1023: "1023B", 16 << 20: "16MiB", 3 << 29: "1536MiB", 1 << 40: "1TiB"} {
		if size.String() != want {
			t.Errorf("%d is written %s, want %s", int64(size), size, want)
		}
	}
}

func TestNearestName(t *testing.T) {
	known := []string{"retain-events", "retain-bytes", "retain-age", "listen", "log-level"}
	for name, want := range map[string]string{
		"retain-event": "retain-events", "retainBytes": "retain-bytes", "RETAIN_AGE": "retain-age",
		"litsen": "listen", "loglevel": "log-level", "colour": "", "x": "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("nearest to %q is %q, want %q", name, got, want)
		}
	}
}

func TestDistanceCountsSwapsOnce(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "axc", 1}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// fault checks that an error says what is wrong and what to do.
func fault(t *testing.T, err error, text, hint string) {
	t.Helper()
	var f *Fault
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want a fault that says %q", err, text)
	}
	if !strings.Contains(f.Text, text) || !strings.Contains(f.Hint, hint) {
		t.Errorf("got %q, hint %q\nwant %q, hint %q", f.Text, f.Hint, text, hint)
	}
}

func TestUnknownNamesAreFaultsWithTheNearestKnown(t *testing.T) {
	known := []string{"listen", "retain-age", "store"}
	l := NewLayers([]string{"SEGNO_LISTEN=:1", "SEGNO_RETAINAGE=1s", "SEGNO_EMPTY=", "OTHER=x"}, nil)
	fault(t, l.Check(known), "SEGNO_RETAINAGE", "did you mean SEGNO_RETAIN_AGE?")

	l = NewLayers(nil, &File{Path: "f.json", Settings: map[string]any{"stroe": "x"}})
	fault(t, l.Check(known), `f.json: unknown key "stroe"`, `did you mean "store"?`)

	l = NewLayers([]string{"SEGNO_QQQQQQQ=1"}, nil)
	fault(t, l.Check(known), "SEGNO_QQQQQQQ", "--help")
}

func TestLinksOfKubernetesAreNoSettings(t *testing.T) {
	l := NewLayers([]string{
		"SEGNO_SERVICE_HOST=10.0.0.1", "SEGNO_SERVICE_PORT=80", "SEGNO_SERVICE_PORT_HTTP=80",
		"SEGNO_PORT=tcp://10.0.0.1:80", "SEGNO_PORT_80_TCP=tcp://10.0.0.1:80", "SEGNO_PORT_80_TCP_ADDR=10.0.0.1",
		"SEGNO_ADMIN_SERVICE_HOST=10.0.0.2", "SEGNO_ADMIN_PORT=tcp://10.0.0.2:9464",
	}, nil)
	if err := l.Check([]string{"listen"}); err != nil {
		t.Errorf("a pod beside a service called segno does not start: %v", err)
	}
	if err := NewLayers([]string{"SEGNO_PORT=8080"}, nil).Check([]string{"listen"}); err == nil {
		t.Error("SEGNO_PORT=8080 was taken for a link: whoever sets it means --listen")
	}
}

func TestLayersInOrderAndTheirSources(t *testing.T) {
	l := NewLayers([]string{"SEGNO_LISTEN=:1"}, &File{Path: "f.json", Settings: map[string]any{"listen": ":2", "keep": "2h"}})
	if v, from := l.Lookup("listen"); v != ":1" || from != FromEnv {
		t.Errorf("listen is %v from %v, want :1 from the environment", v, from)
	}
	if v, from := l.Lookup("keep"); v != "2h" || from != FromFile {
		t.Errorf("keep is %v from %v, want 2h from the file", v, from)
	}
	if v, from := l.Lookup("grace"); v != nil || from != FromDefault {
		t.Errorf("grace is %v from %v, want the default", v, from)
	}
	l.Given("path")
	for name, want := range map[string]string{
		"listen": "SEGNO_LISTEN", "keep": `"keep" in f.json`, "grace": "--grace", "path": "--path",
	} {
		if got := l.Where(name); got != want {
			t.Errorf("%s was written as %s, want %s", name, got, want)
		}
	}
	if l.Source("path") != FromFlag {
		t.Errorf("path is from %v", l.Source("path"))
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "segno.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	f, err := ReadFile(write(t, `{
		"globalShortcut": "Ctrl+Space", "$schema": "x", "inputs": [],
		"mcpServers": {
			"time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"TZ": "UTC"}},
			"files": {"type": "stdio", "command": "npx", "cwd": "`+filepath.ToSlash(dir)+`", "autoApprove": ["x"], "timeout": 60},
			"old": {"command": "gone", "cwd": "/nowhere/at/all", "disabled": true, "description": "…"},
			"off": {"command": "gone", "enabled": false},
			"on": {"url": "http://x", "transport": "streamableHttp", "disabled": false, "enabled": true}
		},
		"segno": {"retain-events": 12345678901, "insecure": true, "allow-host": ["a", "b"], "keep": "2h"}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	want := "[{files stdio npx [] map[] " + filepath.ToSlash(dir) + "  map[]} {on streamableHttp  [] map[]  http://x map[]} {time  uvx [mcp-server-time] map[TZ:UTC]   map[]}]"
	if got := fmt.Sprint(f.Servers); got != want {
		t.Errorf("servers: %s", got)
	}
	if got := fmt.Sprint(f.Settings); got != "map[allow-host:[a b] insecure:true keep:2h retain-events:12345678901]" {
		t.Errorf("settings: %s", got)
	}
	if got := fmt.Sprint(f.Disabled, f.Ignored); got != "[old off] [globalShortcut inputs files.autoApprove files.timeout old.description]" {
		t.Errorf("disabled, ignored: %s", got)
	}
}

func TestFaultsOfFiles(t *testing.T) {
	for _, c := range []struct{ text, fault, hint string }{
		{`{"mcpServer": {}}`, `unknown key "mcpServer"`, `did you mean "mcpServers"?`},
		{"{\n \"segno\": {,}}", "line 2, column 12", "the file looks like"},
		{`{"mcpServers": {}} x`, "line 1, column 20", "the file looks like"},
		{`[]`, "the file must be an object, not a list", "looks like"},
		{`{"segno": {"keep": {}}}`, `key "keep" in "segno" must be`, ""},
		{`{"segno": {"keep": null}}`, `key "keep" in "segno" must be`, ""},
		{`{"segno": []}`, `"segno" must be an object, not a list`, ""},
		{`{"segno": {"keep": "1h", "keep": "2h"}}`, `"segno" has the key "keep" twice`, ""},
		{`{"segnp": {}}`, `unknown key "segnp"`, `did you mean "segno"?`},
		{`{"servers": {}}`, `unknown key "servers"`, `did you mean "mcpServers"?`},
		{`{"mcpServers": []}`, `"mcpServers" must be an object, not a list`, ""},
		{`{"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}, "a": {"command": "y"}}}`, `"mcpServers" has the key "a" twice`, ""},
		{`{"mcpServers": {"a": "npx"}}`, `server "a" must be an object, not a string`, "command"},
		{`{"mcpServers": {"a": {"command": ["npx"]}}}`, `server "a": "command" must be a string, not a list`, ""},
		{`{"mcpServers": {"a": {"command": "x", "env": {"PORT": 80}}}}`, `server "a": "env" has "PORT", which must be a string, not a number: write "80"`, ""},
		{`{"mcpServers": {"a": {"command": "x", "env": ["A=1"]}}}`, `server "a": "env" must be an object, not a list`, ""},
		{`{"mcpServers": {"a": {"command": "x", "args": ["-p", 80]}}}`, `"args" must be a list of strings, and one is a number: write "80"`, ""},
		{`{"mcpServers": {"a": {"command": "x", "disabled": "no"}}}`, `"disabled" must be true or false, not a string`, ""},
		{`{"mcpServers": {"a": {"command": "x", "cwd": "/nowhere/at/all"}}}`, `server "a": "cwd" is "/nowhere/at/all": there is no such folder`, "folder"},
		{`{"mcpServers": {"a": {"command": "x", "envFile": "f"}}}`, `unknown key "envFile"`, "known keys"},
		{`{"mcpServers": {"a b": {"command": "x"}}}`, "not a usable name", "part of the URL"},
		{`{"mcpServers": {"..": {"command": "x"}}}`, "not a usable name", ""},
		{`{"mcpServers": {"a": {"comand": "x"}}}`, `unknown key "comand"`, `did you mean "command"?`},
		{`{"mcpServers": {"a": {"args": "x", "command": "y"}}}`, `"args" must be a list of strings, not a string`, ""},
		{`{"mcpServers": {"a": {"type": "http"}}}`, "has no url", "url"},
		{`{"mcpServers": {"a": {"url": "http://x", "type": "sse"}}}`, "cannot be of type", "http"},
		{`{"mcpServers": {"a": {"url": "http://x", "command": "y"}}}`, "a command and a url", ""},
		{`{"mcpServers": {"a": {}}}`, "has no command", "command"},
	} {
		_, err := ReadFile(write(t, c.text))
		fault(t, err, c.fault, c.hint)
	}
	_, err := ReadFile(filepath.Join(t.TempDir(), "none.json"))
	fault(t, err, "none.json", "")
}

// usable are settings that pass every check.
func usable() *Serve {
	s := &Serve{}
	s.Listen, s.Path, s.Admin = "127.0.0.1:8080", "/mcp", "127.0.0.1:9464"
	s.Heartbeat, s.Retry = 15*time.Second, 2*time.Second
	s.Grace, s.Keep, s.Orphan, s.RetainAge = 5*time.Minute, time.Hour, time.Hour, 15*time.Minute
	s.AskTimeout, s.StartTimeout = time.Minute, time.Minute
	s.RetainEvents, s.RetainBytes = 10000, 16<<20
	s.SessionMax, s.PrincipalMax, s.StoreMax = 256<<20, 1<<30, 4<<30
	s.MaxMessage, s.InflightMax = 64<<20, 256<<20
	s.MaxSessions, s.MaxSessionsPrincipal, s.MaxChildren = 1, 1, 1
	s.MaxChildrenPrincipal, s.MaxConnections, s.MaxConnectionsPrincipal = 1, 1, 1
	return s
}

func TestChecks(t *testing.T) {
	where := func(name string) string { return "--" + name }
	if err := usable().Check(where); err != nil {
		t.Fatalf("usable settings: %v", err)
	}
	for _, c := range []struct {
		name  string
		edit  func(*Serve)
		fault string
		hint  string
	}{
		{"keep below retain-age", func(s *Serve) { s.Keep = time.Minute }, "streams would outlive their session", "--keep"},
		{"negative time", func(s *Serve) { s.Drain = -1 }, "--drain is -1ns: must be at least 0s", ""},
		{"hasty rotation", func(s *Serve) { s.Rotate = 100*time.Millisecond - 1 }, "--rotate is 99.999999ms: must be at least 100ms, or 0", ""},
		{"no heartbeat", func(s *Serve) { s.Heartbeat = 0 }, "--heartbeat", ""},
		{"no events", func(s *Serve) { s.RetainEvents = 0 }, "--retain-events is 0: must be at least 1", ""},
		{"message above memory", func(s *Serve) { s.InflightMax = 1 << 20 }, "could never be taken", "--max-message"},
		{"stream above session", func(s *Serve) { s.SessionMax = 1 << 20 }, "fill its session", "--retain-bytes"},
		{"half of TLS", func(s *Serve) { s.TLSCert = "x" }, "--tls-cert and --tls-key", ""},
		{"address", func(s *Serve) { s.Listen = "8080" }, "not an address", "HOST:PORT"},
		{"port", func(s *Serve) { s.Listen = "127.0.0.1:99999" }, "not an address", "HOST:PORT"},
		{"admin", func(s *Serve) { s.Admin = "no" }, "not an address", "off"},
		{"path", func(s *Serve) { s.Path = "mcp" }, "not a path", "/mcp"},
		{"root path", func(s *Serve) { s.Path = "/" }, "not a path", "/mcp"},
		{"open to all", func(s *Serve) { s.Listen = ":8080" }, "anyone who reaches it", "--token-file"},
		{"open by name", func(s *Serve) { s.Listen = "myhost:8080" }, "anyone who reaches it", "--insecure"},
		{"origin", func(s *Serve) { s.AllowOrigin = []string{"app.example"} }, "not an origin", "https://app.example"},
		{"any origin", func(s *Serve) { s.AllowOrigin = []string{"https://*"} }, "not an origin", ""},
		{"host", func(s *Serve) { s.AllowHost = []string{"https://x"} }, "not a host", ""},
		{"proxy", func(s *Serve) { s.TrustProxy = []string{"10.0.0.0/99"} }, "not a range", "10.0.0.0/8"},
		{"public", func(s *Serve) { s.PublicURL = "mcp.example.com" }, "not a URL", "https://"},
		{"redis", func(s *Serve) { s.Store = "redis://localhost" }, "not in this version", "pebble:DIR"},
		{"store", func(s *Serve) { s.Store = "/var/lib" }, "not a store", "pebble:DIR"},
		{"pebble without folder", func(s *Serve) { s.Store = "pebble:" }, "no folder", "pebble:DIR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := usable()
			c.edit(s)
			fault(t, s.Check(where), c.fault, c.hint)
		})
	}
}

func TestWhatIsAllowed(t *testing.T) {
	where := func(name string) string { return "--" + name }
	for name, edit := range map[string]func(*Serve){
		"other address with keys": func(s *Serve) { s.Listen, s.TokenFile = ":8080", "keys" },
		"insecure":                func(s *Serve) { s.Listen, s.Insecure = "0.0.0.0:8080", true },
		"loopback of IPv6":        func(s *Serve) { s.Listen = "[::1]:0" },
		"localhost":               func(s *Serve) { s.Listen = "localhost:0" },
		"single proxy":            func(s *Serve) { s.TrustProxy = []string{"10.1.2.3", "fd00::/8"} },
		"no admin":                func(s *Serve) { s.Admin = "off" },
		"small upper limit":       func(s *Serve) { s.StoreMax = 512 << 20 },
	} {
		s := usable()
		edit(s)
		if err := s.Check(where); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	where := func(name string) string { return "--" + name }
	s := usable()
	if w := s.Warnings(where); len(w) != 0 {
		t.Errorf("warnings for usable settings: %q", w)
	}
	s.Grace, s.Keep = time.Second, time.Second
	s.Listen, s.Insecure = ":80", true
	if w := s.Warnings(where); len(w) != 2 || !strings.Contains(w[0], "session that is gone") || !strings.Contains(w[1], "no keys") {
		t.Errorf("warnings: %q", w)
	}
	for public, warned := range map[string]bool{
		"https://mcp.example.com/mcp": true, "http://10.0.0.1": true,
		"http://localhost:8080/mcp": false, "http://127.0.0.1/mcp": false, "http://[::1]/mcp": false,
	} {
		s := usable()
		s.PublicURL = public
		if w := s.Warnings(where); (len(w) == 1) != warned || warned && !strings.Contains(w[0], public) {
			t.Errorf("without keys at %s: %q", public, w)
		}
		s.TokenFile = "keys"
		if w := s.Warnings(where); len(w) != 0 {
			t.Errorf("with keys at %s: %q", public, w)
		}
	}
}

func TestStores(t *testing.T) {
	for text, want := range map[string]Store{
		"memory:": {Memory: true}, "memory://": {Memory: true},
		"pebble:/var/lib/segno": {Dir: filepath.FromSlash("/var/lib/segno")}, "pebble:///x": {Dir: filepath.FromSlash("/x")},
		"pebble:rel/dir": {Dir: filepath.FromSlash("rel/dir")},
	} {
		if got, err := ParseStore(text, "--store"); err != nil || got != want {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
}

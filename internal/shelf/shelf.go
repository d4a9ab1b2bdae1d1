// Package shelf knows the folders that logs are kept in: which one a server
// gets if none was named, whose a log is, and which logs lie below a folder.
package shelf

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// StateDir is where Segno keeps what outlives it: $XDG_STATE_HOME/segno, or
// what the system has instead (XDG Base Directory Specification).
func StateDir(getenv func(string) string) (string, error) {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "segno"), nil
	}
	switch runtime.GOOS {
	case "windows":
		if dir := getenv("LocalAppData"); dir != "" {
			return filepath.Join(dir, "segno"), nil
		}
	case "darwin":
		if home := getenv("HOME"); home != "" {
			return filepath.Join(home, "Library", "Application Support", "segno"), nil
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("looking for the state folder: %w", err)
	}
	return filepath.Join(home, ".local", "state", "segno"), nil
}

// Server is an MCP server as its log knows it.
type Server struct {
	Name        string   // in the configuration file; empty: of the command line
	Fingerprint string   // of the upstream
	Command     []string // as it was written
	Dir         string   // as it was configured; empty: none was
	Env         []string // KEY=VALUE, as configured
	URL         string   // instead of a command
}

// Folder chooses the folder in parent for the log of a server at an address to
// listen on. Name, command, configured environment and folder tell servers
// apart. The working directory does only where a word of the command is the
// path of something in it, so that a move from a shell to a service manager
// finds the log again.
func Folder(parent string, s Server, listen string) string {
	everywhere := filepath.Join(parent, s.folder("", listen))
	here := s.here()
	if here == "" {
		return everywhere
	}
	local := filepath.Join(parent, s.folder(here, listen))
	// The file may have come to be after the first start, by the server itself.
	if old, err := ReadCard(everywhere); err == nil && old.Dir == here && !IsLog(local) {
		return everywhere
	}
	return local
}

func (s Server) folder(here, listen string) string {
	env := slices.Sorted(slices.Values(s.Env))
	parts := append([]string{s.Fingerprint, s.Name, here}, env...)
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return s.label() + "-" + hex.EncodeToString(sum[:6]) + "-" + plain(place(listen))
}

// here is the working directory if the command says something else in another
// one: its own path, or that of an argument or of a flag's value, is relative
// and there.
func (s Server) here() string {
	dir, err := os.Getwd()
	if err != nil || s.Dir != "" || len(s.Command) == 0 {
		return ""
	}
	for i, word := range s.Command {
		if _, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "-") {
			word = value
		}
		if word == "" || filepath.IsAbs(word) || i == 0 && !strings.ContainsAny(word, `/\`) {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, word)); err == nil {
			return dir
		}
	}
	return ""
}

// label lets a person find the folder.
func (s Server) label() string {
	name := s.Name
	switch {
	case name != "":
	case len(s.Command) > 0:
		name = strings.TrimSuffix(filepath.Base(s.Command[0]), ".exe")
	default:
		_, name, _ = strings.Cut(s.URL, "://")
		name, _, _ = strings.Cut(name, "/")
		name = name[strings.LastIndexByte(name, '@')+1:]
	}
	name = plain(name)
	return name[:min(len(name), 32)]
}

// place spells an address to listen on: localhost is 127.0.0.1, and all that
// stand for every address of the machine are one.
func place(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if n, err := net.LookupPort("tcp", port); err == nil {
		port = strconv.Itoa(n)
	}
	switch strings.ToLower(host) {
	case "localhost":
		host = "127.0.0.1"
	case "", "0.0.0.0", "::":
		host = "any"
	}
	return host + "_" + port
}

// plain leaves what may be in the name of a file everywhere.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, text)
}

// IsLog tells whether there is a log in a folder.
func IsLog(dir string) bool {
	marks, err := filepath.Glob(filepath.Join(escapeGlob(dir), "marker.*"))
	return err == nil && len(marks) > 0
}

var globbing = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)

func escapeGlob(dir string) string {
	if runtime.GOOS == "windows" {
		return dir // no escapes there, and no * or ? in names
	}
	return globbing.Replace(dir)
}

// Below lists the logs that lie in a folder.
func Below(dir string) (logs []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if one := filepath.Join(dir, e.Name()); e.IsDir() && IsLog(one) {
			logs = append(logs, one)
		}
	}
	return logs
}

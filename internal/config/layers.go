package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Source says where the value of a setting came from.
type Source string

// The sources, first come first.
const (
	FromFlag    Source = "flag"
	FromEnv     Source = "environment"
	FromFile    Source = "file"
	FromDefault Source = "default"
)

// Prefix begins the names of all variables of the environment that are settings.
const Prefix = "SEGNO_"

// Variable is the name of a setting in the environment.
func Variable(name string) string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Layers are the values that lie below the flags: environment, then file.
type Layers struct {
	env     map[string]string // by variable
	file    *File
	sources map[string]Source
}

// NewLayers takes the environment as os.Environ gives it, and a file or nil. An
// empty variable is as good as none.
func NewLayers(environ []string, file *File) *Layers {
	l := &Layers{env: map[string]string{}, file: file, sources: map[string]Source{}}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if value != "" && strings.HasPrefix(name, Prefix) && !linked(name, value) {
			l.env[name] = value
		}
	}
	return l
}

// Kubernetes puts the addresses of every service of a namespace into the
// environment of its pods. With a service called segno these begin with
// SEGNO_ and are no settings: SEGNO_SERVICE_HOST, SEGNO_PORT=tcp://10.0.0.1:80,
// SEGNO_PORT_80_TCP_ADDR … (Kubernetes, "Accessing the Service", environment
// variables).
var links = regexp.MustCompile(`^SEGNO_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

func linked(name, value string) bool {
	return links.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

// Variable returns the value of one variable that is a setting.
func (l *Layers) Variable(name string) (string, bool) {
	v, ok := l.env[Variable(name)]
	return v, ok
}

// File is the file, nil if there is none.
func (l *Layers) File() *File { return l.file }

// Check finds names that no setting has: a variable that begins with SEGNO_,
// or a key of the file. known are the settings of all commands.
func (l *Layers) Check(known []string) error {
	variables := map[string]bool{}
	for _, name := range known {
		variables[Variable(name)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		if !variables[name] {
			return Faultf(DidYouMean(name[len(Prefix):], known, Variable, "segno serve --help lists the flags; SEGNO_NAME stands for --name"),
				"unknown variable %s in the environment", name)
		}
	}
	if l.file == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(l.file.Settings)) {
		if !slices.Contains(known, name) {
			return Faultf(DidYouMean(name, known, quoted, "segno serve --help lists the flags; a key is a flag without its dashes"),
				"%s: unknown key %q in \"segno\"", l.file.Path, name)
		}
	}
	return nil
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

// Lookup returns the value that a setting has below the flags, and remembers
// where it came from. It is a string, or a []string from the file.
func (l *Layers) Lookup(name string) (value any, from Source) {
	if v, ok := l.Variable(name); ok {
		l.sources[name] = FromEnv
		return v, FromEnv
	}
	if l.file != nil {
		if v, ok := l.file.Settings[name]; ok {
			l.sources[name] = FromFile
			return v, FromFile
		}
	}
	return nil, FromDefault
}

// Given records that a setting was given as a flag.
func (l *Layers) Given(name string) { l.sources[name] = FromFlag }

// Source tells where the value of a setting came from.
func (l *Layers) Source(name string) Source {
	if s, ok := l.sources[name]; ok {
		return s
	}
	return FromDefault
}

// Where is a setting as its user wrote it, for messages.
func (l *Layers) Where(name string) string {
	switch l.Source(name) {
	case FromEnv:
		return Variable(name)
	case FromFile:
		return fmt.Sprintf("%q in %s", name, l.file.Path)
	}
	return "--" + name
}

// Sources returns where the values came from that are not defaults.
func (l *Layers) Sources() map[string]Source { return maps.Clone(l.sources) }

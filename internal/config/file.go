package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
)

// Server is one MCP server of the file, in the form that clients use.
type Server struct {
	Name    string            `json:"-"`
	Type    string            `json:"type"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	Cwd     string            `json:"cwd"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

var serverKeys = []string{"type", "command", "args", "env", "cwd", "url", "headers"}

var serverName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$`)

// File is what a configuration file says.
type File struct {
	Path     string
	Servers  []Server       // by name
	Settings map[string]any // string, or []string for a list
}

// maxFile is far above any real file; a wrong path to a huge one is no reason
// to fill the memory.
const maxFile = 4 << 20

// ReadFile reads a configuration file. Unknown keys are faults.
func ReadFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, Faultf("", "reading the configuration: %v", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, Faultf("", "reading the configuration: %v", err)
	}
	if len(text) > maxFile {
		return nil, Faultf("", "reading the configuration %s: larger than %v", path, Size(maxFile))
	}
	return parseFile(path, text)
}

func parseFile(path string, text []byte) (*File, error) {
	file := &File{Path: path, Settings: map[string]any{}}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	var top struct {
		servers, settings map[string]json.RawMessage
	}
	err := members(path, text, map[string]any{"mcpServers": &top.servers, "segno": &top.settings, "$schema": new(string)})
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(top.servers)) {
		s, err := parseServer(path, name, top.servers[name])
		if err != nil {
			return nil, err
		}
		file.Servers = append(file.Servers, *s)
	}
	for name, raw := range top.settings {
		value, err := setting(raw)
		if err != nil {
			return nil, Faultf("", "%s: key %q: %v", path, name, err)
		}
		file.Settings[name] = value
	}
	return file, nil
}

// members decodes an object whose keys are all known.
func members(path string, text []byte, into map[string]any) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return Faultf(`the file looks like {"mcpServers": {"NAME": {"command": …}}, "segno": {"listen": …}}`,
			"%s: %s", path, where(text, err))
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		target, known := into[key]
		if !known {
			names := slices.Collect(maps.Keys(into))
			return Faultf(DidYouMean(key, names, strconv.Quote, fmt.Sprintf("known keys are %q", slices.Sorted(slices.Values(names)))),
				"%s: unknown key %q", path, key)
		}
		if err := json.Unmarshal(object[key], target); err != nil {
			return Faultf("", "%s: key %q: %s", path, key, where(object[key], err))
		}
	}
	return nil
}

func parseServer(path, name string, raw json.RawMessage) (*Server, error) {
	at := fmt.Sprintf("%s: server %q", path, name)
	if !serverName.MatchString(name) {
		return nil, Faultf("use letters, digits, -, _ and dots: the name is a part of the URL", "%s: not a usable name", at)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, Faultf("", "%s: %s", at, where(raw, err))
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(serverKeys, key) {
			return nil, Faultf(DidYouMean(key, serverKeys, strconv.Quote, fmt.Sprintf("known keys are %q", serverKeys)),
				"%s: unknown key %q", at, key)
		}
	}
	s := &Server{Name: name}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, Faultf("", "%s: %s", at, where(raw, err))
	}
	return s, s.check(at)
}

func (s *Server) check(at string) error {
	switch {
	case s.Command != "" && s.URL != "":
		return Faultf("a server is either started by its command or reached at its url", "%s: has a command and a url", at)
	case s.URL == "" && s.Type != "" && s.Type != "stdio":
		return Faultf(`give it a "url"`, "%s: is of type %s and has no url", at, s.Type)
	case s.Command == "" && s.URL == "":
		return Faultf(`give it a "command" or a "url"`, "%s: has no command and no url", at)
	case s.Command == "" && !slices.Contains([]string{"", "http", "streamable-http"}, s.Type):
		return Faultf(`"http" is what can be served`, "%s: a server with a url cannot be of type %q", at, s.Type)
	}
	return nil
}

// setting brings a value of the file into the form a flag would have.
func setting(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return scalar(v)
	}
	texts := make([]string, 0, len(list))
	for _, item := range list {
		text, err := scalar(item)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}

func scalar(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", errors.New("must be a string, a number, true, false or a list of these")
}

// where says at which line an error of the decoder is.
func where(text []byte, err error) string {
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		upto := text[:min(int64(len(text)), syntax.Offset)]
		line := bytes.Count(upto, []byte("\n")) + 1
		column := len(upto) - bytes.LastIndexByte(upto, '\n') - 1
		return fmt.Sprintf("line %d, column %d: %v", line, column, syntax)
	case errors.As(err, &wrong):
		return fmt.Sprintf("%s where %s belongs", wrong.Value, wrong.Type)
	}
	return err.Error()
}

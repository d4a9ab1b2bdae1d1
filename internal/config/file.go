package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// File is what a configuration file says.
type File struct {
	Path     string
	Servers  []Server       // that are to be served, by name
	Settings map[string]any // string, or []string for a list
	Disabled []string       // servers that the file switches off
	Ignored  []string       // keys that mean something to other programs only
}

// maxFile is far above any real file; a wrong path to a huge one is no reason
// to fill the memory.
const maxFile = 4 << 20

// ReadFile reads a configuration file. Unknown keys are faults, but for what
// other programs that start MCP servers keep in such a file.
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
	const looks = `the file looks like {"mcpServers": {"NAME": {"command": …}}, "segno": {"listen": …}}`
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		return nil, Faultf(looks, "%s: %s", path, where(text, err))
	}
	top, err := object(text)
	if err != nil {
		return nil, Faultf(looks, "%s: the file %v", path, err)
	}
	for _, m := range top {
		switch m.key {
		case "mcpServers":
			err = file.servers(m.value)
		case "segno":
			err = file.settings(m.value)
		case "$schema":
		default:
			err = file.foreign(m.key, top)
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(file.Servers, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	return file, nil
}

// foreign ignores a key at the top that is none of Segno's, unless it is
// likely meant to be.
func (f *File) foreign(key string, top []member) error {
	hint := DidYouMean(key, []string{"mcpServers", "segno"}, strconv.Quote, "")
	// Some programs have their servers under another name.
	if strings.Contains(fold(key), "server") && !has(top, "mcpServers") {
		hint = `did you mean "mcpServers"?`
	}
	if hint != "" {
		return Faultf(hint, "%s: unknown key %q", f.Path, key)
	}
	f.Ignored = append(f.Ignored, key)
	return nil
}

func (f *File) servers(raw json.RawMessage) error {
	all, err := object(raw)
	if err != nil {
		return Faultf("", "%s: \"mcpServers\" %v", f.Path, err)
	}
	for _, m := range all {
		e := entry{at: fmt.Sprintf("%s: server %q", f.Path, m.key), server: Server{Name: m.key}}
		if err := e.read(m.value); err != nil {
			return err
		}
		for _, key := range e.ignored {
			f.Ignored = append(f.Ignored, m.key+"."+key)
		}
		if e.disabled {
			f.Disabled = append(f.Disabled, m.key)
			continue
		}
		if err := e.check(); err != nil {
			return err
		}
		f.Servers = append(f.Servers, e.server)
	}
	return nil
}

func (f *File) settings(raw json.RawMessage) error {
	all, err := object(raw)
	if err != nil {
		return Faultf("", "%s: \"segno\" %v", f.Path, err)
	}
	for _, m := range all {
		value, err := setting(m.value)
		if err != nil {
			return Faultf("", "%s: key %q in \"segno\" %v", f.Path, m.key, err)
		}
		f.Settings[m.key] = value
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
	if !errors.As(err, &syntax) {
		return err.Error()
	}
	upto := text[:min(int64(len(text)), syntax.Offset)]
	line := bytes.Count(upto, []byte("\n")) + 1
	column := len(upto) - bytes.LastIndexByte(upto, '\n') - 1
	return fmt.Sprintf("line %d, column %d: %v", line, column, syntax)
}

package config

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
)

// Server is one MCP server of the file, in the form that clients use.
type Server struct {
	Name    string
	Type    string
	Command string
	Args    []string
	Env     map[string]string
	Cwd     string
	URL     string
	Headers map[string]string
}

var serverKeys = []string{"type", "command", "args", "env", "cwd", "url", "headers", "disabled"}

// others are keys by which the programs that start MCP servers say how they
// treat one. Without them the server is the same.
var others = []string{
	"allowedTools", "alwaysAllow", "autoApprove", "description", "disabledTools", "excludeTools", "icon", "id",
	"includeTools", "initTimeout", "isActive", "name", "note", "provider", "startupTimeout", "tags", "timeout",
	"toolTimeout", "tools", "trust", "version",
}

var serverName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$`)

// entry is a server of the file while it is read.
type entry struct {
	at       string // for errors
	server   Server
	disabled bool
	ignored  []string
}

func (e *entry) read(raw json.RawMessage) error {
	if !serverName.MatchString(e.server.Name) {
		return Faultf("use letters, digits, -, _ and dots: the name is a part of the URL", "%s: not a usable name", e.at)
	}
	all, err := object(raw)
	if err != nil {
		return Faultf(`it looks like {"command": "npx", "args": ["-y", "some-server"]}`, "%s %v", e.at, err)
	}
	for _, m := range all {
		if err := e.member(m); err != nil {
			return err
		}
	}
	return nil
}

func (e *entry) member(m member) (err error) {
	s := &e.server
	switch m.key {
	case "command":
		s.Command, err = text(m.value)
	case "cwd":
		s.Cwd, err = text(m.value)
	case "url":
		s.URL, err = text(m.value)
	case "type", "transport":
		s.Type, err = text(m.value)
	case "args":
		s.Args, err = texts(m.value)
	case "env":
		s.Env, err = named(m.value)
	case "headers":
		s.Headers, err = named(m.value)
	case "disabled":
		e.disabled, err = truth(m.value)
	case "enabled":
		var on bool
		on, err = truth(m.value)
		e.disabled = !on
	default:
		if slices.Contains(others, m.key) {
			e.ignored = append(e.ignored, m.key)
			return nil
		}
		return Faultf(DidYouMean(m.key, serverKeys, strconv.Quote, fmt.Sprintf("known keys are %q", serverKeys)),
			"%s: unknown key %q", e.at, m.key)
	}
	if err != nil {
		return Faultf("", "%s: %q %v", e.at, m.key, err)
	}
	return nil
}

func (e *entry) check() error {
	s := &e.server
	switch {
	case s.Command != "" && s.URL != "":
		return Faultf("a server is either started by its command or reached at its url", "%s: has a command and a url", e.at)
	case s.URL == "" && s.Type != "" && s.Type != "stdio":
		return Faultf(`give it a "url"`, "%s: is of type %s and has no url", e.at, s.Type)
	case s.Command == "" && s.URL == "":
		return Faultf(`give it a "command" or a "url"`, "%s: has no command and no url", e.at)
	case s.Command == "" && !slices.Contains([]string{"", "http", "streamable-http", "streamableHttp"}, s.Type):
		return Faultf(`"http" is what can be served`, "%s: a server with a url cannot be of type %q", e.at, s.Type)
	case s.Cwd == "":
		return nil
	}
	if info, err := os.Stat(s.Cwd); err != nil || !info.IsDir() {
		return Faultf("name the folder that the command is to run in, or leave it out", "%s: \"cwd\" is %q: there is no such folder", e.at, s.Cwd)
	}
	return nil
}

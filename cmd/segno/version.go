package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/segno-mcp/segno/internal/wire"
)

type versionCommand struct{}

// Run prints the version, and which revisions of MCP are served.
func (versionCommand) Run(sys system) error {
	_, err := fmt.Fprintf(sys.out, "segno %s\ncommit %s\ngo %s %s/%s\nMCP %s\n", version(), commit(),
		strings.TrimPrefix(runtime.Version(), "go"), runtime.GOOS, runtime.GOARCH, strings.Join(revisions(), " "))
	return err
}

// revisions are the revisions whose streams can be resumed.
func revisions() (all []string) {
	for _, r := range wire.Revisions {
		if wire.AtLeast(r, wire.Rev2025March) && !wire.Modern(r) {
			all = append(all, r)
		}
	}
	return all
}

// version is that of the module, as the go command stamped it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func commit() string {
	revision, changed := "unknown", ""
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return revision
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	return revision + changed
}

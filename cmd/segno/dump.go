package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/admin"
	"github.com/segno-mcp/segno/internal/config"
)

type dumpCommand struct {
	Name         string `arg:"" optional:"" help:"A session: show it alone. A stream: show its events; an event id names its stream."`
	Store        string `placeholder:"URL" help:"Read a log that no running Segno uses, such as pebble:DIR."`
	Admin        string `placeholder:"URL" help:"Ask a running Segno at its admin address. Default http://127.0.0.1:9464."`
	AdminKey     string `name:"admin-key" placeholder:"KEY" help:"Key of the admin address, if it has one."`
	ShowPayloads bool   `name:"show-payloads" help:"Show what events say; a running Segno must allow it too."`
	JSON         bool   `help:"Print JSON."`
}

func (dumpCommand) Help() string {
	return `Examples:

  segno dump
  segno dump k3f9c0de1234
  segno dump --admin http://127.0.0.1:9464 kTqjWm0yG6XbDNvdjUrsBg
  segno dump --store pebble:/var/lib/segno --show-payloads --json`
}

// streamName is a stream, or an event id, that begins like a flag: base64url
// has the dash.
var streamName = regexp.MustCompile(`^-[A-Za-z0-9_-]{21}(\.[A-Za-z0-9._-]*)?$`)

// streamLast lets such a name be typed as any other.
func streamLast(args []string) []string {
	if args[0] != "dump" || slices.Contains(args, "--") {
		return args
	}
	for i, a := range args {
		if streamName.MatchString(a) {
			return append(slices.Delete(slices.Clone(args), i, i+1), "--", a)
		}
	}
	return args
}

// sessionID is the public part of a session's id, which may be given whole.
var sessionID = regexp.MustCompile(`^([0-9a-z]{12})(-[A-Za-z0-9_-]{22})?$`)

// holder is where a dump comes from.
type holder interface {
	// list has all sessions, or the one with a public id.
	list(ctx context.Context, session string) ([]admin.ServerStatus, error)
	window(ctx context.Context, stream string, after uint64) (*admin.Window, error)
}

// Run prints sessions and streams, or the events of one stream.
func (d *dumpCommand) Run(ctx context.Context, sys system, layers *config.Layers) error {
	h, done, err := d.open(layers)
	if err != nil {
		return err
	}
	defer done()
	session := ""
	if found := sessionID.FindStringSubmatch(d.Name); found != nil {
		session = found[1]
	} else if d.Name != "" {
		return d.events(ctx, sys, h)
	}
	servers, err := h.list(ctx, session)
	if errors.Is(err, eventlog.ErrNoSession) {
		return config.Faultf("segno dump without a name lists the sessions", "no session is called %q", session)
	}
	if err != nil {
		return err
	}
	if d.JSON {
		return printJSON(sys.out, servers)
	}
	return printServers(sys.out, servers)
}

// open decides between a store and a running Segno. A flag decides before the
// environment, which is likely that of the Segno that runs.
func (d *dumpCommand) open(layers *config.Layers) (holder, func(), error) {
	store, running := layers.Source("store") == config.FromFlag, layers.Source("admin") == config.FromFlag
	if store && running {
		return nil, nil, config.Faultf("--store reads a log that nobody uses, --admin asks a running Segno", "--store and --admin are given, and only one can be read")
	}
	if store || !running && d.Store != "" && (d.Admin == "" || d.Admin == "off") {
		return openStored(d.Store, layers.Where("store"))
	}
	r, err := newRemote(d.Admin, d.AdminKey)
	return r, func() {}, err
}

// events prints a stream's events, window by window.
func (d *dumpCommand) events(ctx context.Context, sys system, h holder) error {
	stream, _, _ := strings.Cut(d.Name, ".")
	var all *admin.Window
	for after := uint64(0); ; {
		w, err := h.window(ctx, stream, after)
		if errors.Is(err, eventlog.ErrNoStream) {
			return config.Faultf("segno dump without a name lists the streams", "no stream is called %q", stream)
		}
		if err != nil {
			return err
		}
		if all == nil {
			all = &admin.Window{Session: w.Session, Stream: w.Stream}
		}
		all.Events = append(all.Events, w.Events...)
		if !w.More || len(w.Events) == 0 {
			break
		}
		after = w.Events[len(w.Events)-1].Seq
	}
	if !d.ShowPayloads {
		for i := range all.Events {
			all.Events[i].Payload = nil
		}
	}
	if d.ShowPayloads && len(all.Events) > 0 && !slices.ContainsFunc(all.Events, func(e admin.Event) bool { return e.Payload != nil }) {
		fmt.Fprintln(sys.err, "segno: hint: the Segno that runs shows no payloads: it must be started with --show-payloads")
	}
	if d.JSON {
		return printJSON(sys.out, all)
	}
	return printEvents(sys.out, all)
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func printServers(out io.Writer, servers []admin.ServerStatus) error {
	none := true
	for _, server := range servers {
		if server.Name != "" {
			fmt.Fprintf(out, "server %s\n", plain(server.Name))
		}
		for _, s := range server.Sessions {
			none = false
			if err := printSession(out, s); err != nil {
				return err
			}
		}
		if server.More {
			fmt.Fprintln(out, "and more sessions")
		}
	}
	if none {
		_, err := fmt.Fprintln(out, "no sessions")
		return err
	}
	return nil
}

func printSession(out io.Writer, s admin.Session) error {
	state := "kept"
	switch {
	case s.Child:
		state = "live, process runs"
	case s.Live:
		state = "live"
	}
	fmt.Fprintf(out, "session %s  %s\n", plain(s.Session), plain(strings.Join(present(s.Principal, s.Client, s.Revision, state), ", ")))
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  STREAM\tKIND\tSTATE\tKEPT\tEVENTS\tBYTES\tTERMS\tREADERS")
	for _, st := range s.Streams {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", plain(st.Stream), st.Kind, st.State, kept(st),
			st.Events, config.Size(st.Bytes), terms(st), readers(st))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if s.More {
		fmt.Fprintln(out, "  and more streams")
	}
	return nil
}

func present(all ...string) (some []string) {
	for _, s := range all {
		if s != "" {
			some = append(some, s)
		}
	}
	return some
}

func kept(st admin.Stream) string {
	if st.State == "dropped" || st.Top == 0 {
		return "-"
	}
	return fmt.Sprintf("%d-%d", st.Floor+1, st.Top)
}

func terms(st admin.Stream) string {
	var all []string
	for _, t := range st.Terms {
		all = append(all, fmt.Sprintf("%s@%d", plain(t.Term), t.First))
	}
	return strings.Join(all, " ")
}

func readers(st admin.Stream) string {
	var all []string
	for _, r := range st.Readers {
		all = append(all, fmt.Sprintf("%d(%s)", r.Cursor, plain(r.Role)))
	}
	return strings.Join(all, " ")
}

func printEvents(out io.Writer, w *admin.Window) error {
	fmt.Fprintf(out, "session %s  stream %s  %s, %s, kept %s\n", plain(w.Session), plain(w.Stream.Stream), w.Stream.Kind, w.Stream.State, kept(w.Stream))
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SEQ\tKIND\tTIME\tSIZE\tTERM\tPAYLOAD")
	for _, e := range w.Events {
		payload := "hidden"
		if e.Payload != nil {
			payload = plain(string(e.Payload))
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%s\t%s\n", e.Seq, plain(e.Kind), e.Time.Format("2006-01-02T15:04:05.000Z07:00"), e.Size, plain(e.Term), payload)
	}
	return t.Flush()
}

// plain escapes what could move the cursor of a terminal.
func plain(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			q := strconv.Quote(s)
			return q[1 : len(q)-1]
		}
	}
	return s
}

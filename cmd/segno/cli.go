package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/segno-mcp/segno/internal/config"
)

// system is what the command uses of the process it runs in.
type system struct {
	in       io.Reader
	out, err io.Writer
	environ  []string
	getenv   func(string) string
}

// commands are what can be typed after segno.
type commands struct {
	Serve         serveCommand   `cmd:"" help:"Put an MCP server on the network, with streams that survive broken connections."`
	Connect       connectCommand `cmd:"" help:"Be a local stdio server for an MCP server on the network, that leaves no request unanswered."`
	Demo          demoCommand    `cmd:"" help:"Start everything, cut the connection in the middle of an export, and show what the client sees."`
	ExampleServer exampleCommand `cmd:"" name:"example-server" help:"The MCP server of the demo, over stdio: a tool export that reports progress."`
	Dump          dumpCommand    `cmd:"" help:"Show the sessions, streams and events that a log holds."`
	Purge         purgeCommand   `cmd:"" help:"Delete a log."`
	Version       versionCommand `cmd:"" help:"Show the version."`
}

// usages are the lines that say how a command is written.
var usages = map[string]string{
	"":               "segno COMMAND [flags]",
	"serve":          "segno serve [flags] -- COMMAND [ARG…]\n       segno serve [flags] URL\n       segno serve [flags] --config FILE",
	"connect":        "segno connect [flags] URL",
	"demo":           "segno demo [flags]",
	"example-server": "segno example-server",
	"dump":           "segno dump [--store URL | --admin URL] [flags] [SESSION | STREAM]",
	"purge":          "segno purge --store URL [--yes]",
	"version":        "segno version",
}

// later are commands of the plan that this version does not have.
var later = map[string]string{
	"check": "the metrics and the diagnosis on the admin address show how resumes went",
}

var groups = []kong.Group{
	{Key: "network", Title: "Network:"},
	{Key: "remote", Title: "The server on the network:"},
	{Key: "wire", Title: "Streams, as clients see them:"},
	{Key: "session", Title: "Sessions and server processes:"},
	{Key: "store", Title: "Log:"},
	{Key: "limits", Title: "Limits:"},
	{Key: "watch", Title: "Seeing it:"},
}

const about = "Segno puts an MCP server on the network and makes its streams survive a broken connection: after a reconnect the client goes on exactly where it stopped."

// exited leaves the command line library at once, with the status.
type exited int

// Exit statuses.
const (
	failed = 1
	misuse = 2
)

// run runs one command and returns the status to exit with.
func run(ctx context.Context, args []string, sys system) (status int) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exited:
			status = int(r)
		default:
			panic(r)
		}
	}()
	var layers layered
	var c commands
	parser, err := kong.New(&c, kong.Name("segno"), kong.Description(about), kong.Writers(sys.out, sys.err),
		kong.Exit(func(code int) { panic(exited(code)) }), kong.Resolvers(&layers), kong.ExplicitGroups(groups),
		kong.Help(printHelp), kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoAppSummary: true, FlagsLast: true}))
	if err != nil {
		return sys.fail(err, failed)
	}
	args = spelled(args)
	if hint, ok := later[args[0]]; ok {
		return sys.fail(config.Faultf(hint, "segno %s is not in this version", args[0]), misuse)
	}
	args = streamLast(args)
	if err := layers.load(parser, args, sys.environ); err != nil {
		return sys.fail(err, misuse)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return sys.fail(explain(err, args), misuse)
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	if err := parsed.Run(sys, layers.Layers); err != nil {
		return sys.fail(err, failed)
	}
	return 0
}

// spelled brings what people type first into the form of a command: nothing,
// help, help COMMAND, --version.
func spelled(args []string) []string {
	switch {
	case len(args) == 0 || len(args) == 1 && args[0] == "help":
		return []string{"--help"}
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case args[0] == "--version":
		return append([]string{"version"}, args[1:]...)
	}
	return args
}

// fail prints an error, and what can be done about it.
func (sys system) fail(err error, status int) int {
	text, hint := err.Error(), ""
	var f *config.Fault
	var h interface{ Hint() string }
	switch {
	case errors.As(err, &f):
		text, hint = f.Text, f.Hint
	case errors.As(err, &h):
		hint = h.Hint()
	}
	fmt.Fprintf(sys.err, "segno: error: %s\n", text)
	if hint != "" {
		fmt.Fprintf(sys.err, "segno: hint: %s\n", hint)
	}
	return status
}

// explain makes of an error of the command line library one of ours.
func explain(err error, args []string) error {
	var f *config.Fault
	if errors.As(err, &f) {
		return f
	}
	text, meant, _ := strings.Cut(err.Error(), ", did you mean ")
	if before, ok := strings.CutSuffix(text, ` but got "EOL" (<EOL>)`); ok {
		text, _, _ = strings.Cut(before, ":")
		text += " needs a value"
	}
	hint := strings.TrimSpace("segno "+args[0]) + " --help shows what can be written"
	if usages[args[0]] == "" {
		hint = "segno --help shows what can be written"
	}
	switch {
	case len(meant) > len(`"--x"?`):
		hint = "did you mean " + strings.ReplaceAll(meant, `"`, "")
	case args[0] == "serve" && strings.HasPrefix(text, "unknown flag") && !slices.Contains(args, "--"):
		hint = "flags of the server's command come after --: segno serve [flags] -- COMMAND [ARG…]"
	}
	return config.Faultf(hint, "%s", reason(text))
}

// reason leaves out what the library says around a value that is no time.
func reason(text string) string {
	before, _, _ := strings.Cut(text, "expected duration but got ")
	if _, why, ok := strings.Cut(text, ": time: "); ok {
		return before + why + ": write a time as 90s, 15m or 1h30m"
	}
	return text
}

func printHelp(o kong.HelpOptions, ctx *kong.Context) error {
	name := ""
	if s := ctx.Selected(); s != nil {
		name = s.Name
	}
	fmt.Fprintf(ctx.Stdout, "Usage: %s\n", usages[name])
	return kong.DefaultHelpPrinter(o, ctx)
}

// layered lets the command line library look up what is no flag in the
// environment and the file.
type layered struct{ *config.Layers }

// load reads the file that --config or SEGNO_CONFIG names, before the rest of
// the line is understood, and refuses unknown names where settings are read.
func (l *layered) load(parser *kong.Kong, args, environ []string) error {
	l.Layers = config.NewLayers(environ, nil)
	trace, err := kong.Trace(parser, args)
	if err != nil || trace.Error != nil {
		return nil // Parse will say it better
	}
	selected := trace.Selected()
	if selected == nil || !slices.Contains([]string{"serve", "connect", "dump", "purge"}, selected.Name) || asksHelp(trace) {
		return nil
	}
	if path := l.path(trace); path != "" && selected.Name == "serve" {
		file, err := config.ReadFile(path)
		if err != nil {
			return err
		}
		l.Layers = config.NewLayers(environ, file)
	}
	for _, p := range trace.Path {
		if p.Flag != nil {
			l.Given(p.Flag.Name)
		}
	}
	return l.Check(names(parser.Model))
}

func asksHelp(trace *kong.Context) bool {
	return slices.ContainsFunc(trace.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == "help" })
}

func (l *layered) path(trace *kong.Context) string {
	for _, p := range trace.Path {
		if p.Flag != nil && p.Flag.Name == "config" {
			path, _ := trace.FlagValue(p.Flag).(string)
			return path
		}
	}
	path, _ := l.Variable("config")
	return path
}

// names are the settings of all commands.
func names(app *kong.Application) (all []string) {
	for _, leaf := range app.Leaves(false) {
		for _, flag := range leaf.Flags {
			all = append(all, flag.Name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Validate is a part of kong.Resolver.
func (*layered) Validate(*kong.Application) error { return nil }

// Resolve finds the value of a flag that was not given. It is tried here so
// that a wrong one is reported by the name under which its user wrote it.
func (l *layered) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if flag.Name == "help" {
		return nil, nil
	}
	value, from := l.Lookup(flag.Name)
	if from == config.FromDefault {
		return nil, nil
	}
	if list, ok := value.([]string); ok {
		value = strings.Join(list, ",")
	}
	trial := reflect.New(flag.Target.Type()).Elem()
	if err := flag.Parse(kong.Scan().PushTyped(value, kong.FlagValueToken), trial); err != nil {
		why := strings.TrimPrefix(reason(err.Error()), "--"+flag.Name+": ")
		return nil, config.Faultf("", "%s is %q: %s", l.Where(flag.Name), value, why)
	}
	if flag.Enum != "" && !flag.EnumMap()[trial.String()] {
		return nil, config.Faultf(config.DidYouMean(trial.String(), flag.EnumSlice(), quote, ""),
			"%s is %q: must be one of %s", l.Where(flag.Name), value, strings.Join(flag.EnumSlice(), ", "))
	}
	return value, nil
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

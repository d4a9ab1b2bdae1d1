package config

import "time"

// Serve are the settings of segno serve. The tags are those of the command
// line library: a name, a default, a group of the help. Durations of 0 mean
// what the help says of them, and nothing else.
type Serve struct {
	Network
	Wire
	Sessions
	Keeping
	Bounds
	Watching
}

// Network is where Segno listens and whom it lets in.
type Network struct {
	Listen      string   `default:"127.0.0.1:8080" placeholder:"ADDR" group:"network" help:"Address to listen on; port 0 takes any free one. Default ${default}."`
	Path        string   `default:"/mcp" placeholder:"PATH" group:"network" help:"Path of the endpoint. Default ${default}."`
	PublicURL   string   `name:"public-url" placeholder:"URL" group:"network" help:"The endpoint's URL as clients see it, behind a proxy: its host and origin are taken."`
	AllowOrigin []string `name:"allow-origin" placeholder:"ORIGIN" group:"network" help:"Web page that may call, such as https://app.example; may be repeated. Default: none but pages of this host."`
	AllowHost   []string `name:"allow-host" placeholder:"HOST" group:"network" help:"Host header to take besides the address itself; may be repeated."`
	TrustProxy  []string `name:"trust-proxy" placeholder:"CIDR" group:"network" help:"Proxies whose X-Forwarded-* headers are believed; may be repeated. Default: none."`
	TLSCert     string   `name:"tls-cert" placeholder:"FILE" group:"network" help:"Certificate chain in PEM. Read again when the file changes."`
	TLSKey      string   `name:"tls-key" placeholder:"FILE" group:"network" help:"Private key in PEM."`
	TokenFile   string   `name:"token-file" placeholder:"FILE" group:"network" help:"Keys of clients, one NAME:KEY a line, KEY plain or sha256:HEX; mode 0600. Read again when the file changes."`
	Header      []string `sep:"none" placeholder:"'K: V'" group:"network" help:"Header for every request to a server behind a URL; may be repeated. $${NAME} stands for that variable of the environment."`
	Insecure    bool     `group:"network" help:"Listen on other addresses than loopback without keys."`
}

// Wire is how streams look to a client.
type Wire struct {
	JSONWithin time.Duration `name:"json-within" default:"50ms" placeholder:"TIME" group:"wire" help:"Answer a call as plain JSON if it ends within this time; 0: always as a stream. Default ${default}."`
	Heartbeat  time.Duration `default:"15s" placeholder:"TIME" group:"wire" help:"A comment is sent on a silent stream this often. Default ${default}."`
	Retry      time.Duration `default:"2s" placeholder:"TIME" group:"wire" help:"Least time after which a client reconnects. Default ${default}."`
	Rotate     time.Duration `default:"0s" placeholder:"TIME" group:"wire" help:"End connections older than this (at least 100ms; each lives up to a tenth longer) cleanly, for networks that cut long ones; 0: never. Default ${default}."`
	OnGap      string        `name:"on-gap" default:"oldest" enum:"oldest,live,error" placeholder:"HOW" group:"wire" help:"After a gap go on with the oldest event kept, with live ones only, or end the call with an error: ${enum}. Default ${default}."`
	Era        string        `default:"durable" enum:"durable,legacy" placeholder:"ERA" group:"wire" help:"Which protocol revisions are preferred: ${enum}. Both answer clients of 2026-07-28 in the revision whose streams can be resumed. Default ${default}."`
}

// Sessions is how long calls, children and sessions live.
type Sessions struct {
	Grace        time.Duration `default:"5m" placeholder:"TIME" group:"session" help:"Without a sign of life for this long a session's server process is stopped. Default ${default}."`
	Keep         time.Duration `default:"1h" placeholder:"TIME" group:"session" help:"And this long after that the session is kept and can go on. Default ${default}."`
	Orphan       time.Duration `default:"1h" placeholder:"TIME" group:"session" help:"A call nobody was connected to for this long is cancelled; 0: never. Default ${default}."`
	AskTimeout   time.Duration `name:"ask-timeout" default:"10m" placeholder:"TIME" group:"session" help:"The server's own requests wait this long for an absent client; 0: for ever. Default ${default}."`
	Repost       time.Duration `default:"60s" placeholder:"TIME" group:"session" help:"The same request again gets the same outcome this long after its end; 0: only while it runs. Default ${default}."`
	CallTimeout  time.Duration `name:"call-timeout" default:"0s" placeholder:"TIME" group:"session" help:"Longest time a call may run; 0: no limit. Default ${default}."`
	StartTimeout time.Duration `name:"start-timeout" default:"60s" placeholder:"TIME" group:"session" help:"Longest time a server process may take to answer initialize. Default ${default}."`
	Drain        time.Duration `default:"30s" placeholder:"TIME" group:"session" help:"After SIGTERM running calls get this long to end. Default ${default}."`
	Process      string        `default:"session" enum:"session,shared" placeholder:"MODE" group:"session" help:"A server process for each session, or one shared by all of a client's: ${enum}. Default ${default}."`
}

// Keeping is what the log holds, and where.
type Keeping struct {
	Store        string        `placeholder:"URL" group:"store" help:"pebble:DIR on disk or memory:. Default: on disk in the user's state folder, one folder for each command (as written, with the name and the env of the file) and address; the working directory counts if the command names a file in it."`
	Sync         string        `default:"outcomes" enum:"outcomes,always,os" placeholder:"WHAT" group:"store" help:"What is on disk before it counts: outcomes and what opens a call, everything, or what the system likes: ${enum}. Default ${default}."`
	RetainEvents int64         `name:"retain-events" default:"10000" placeholder:"N" group:"store" help:"Events kept of a stream. Default ${default}."`
	RetainBytes  Size          `name:"retain-bytes" default:"16MiB" placeholder:"SIZE" group:"store" help:"Bytes kept of a stream. Default ${default}."`
	RetainAge    time.Duration `name:"retain-age" default:"15m" placeholder:"TIME" group:"store" help:"Progress is kept this long after its stream's end. Default ${default}."`
	SessionMax   Size          `name:"session-max" default:"256MiB" placeholder:"SIZE" group:"store" help:"Bytes kept of a session. Default ${default}."`
	PrincipalMax Size          `name:"principal-max" default:"1GiB" placeholder:"SIZE" group:"store" help:"Bytes kept of all sessions of one client key. Default ${default}."`
	StoreMax     Size          `name:"store-max" default:"4GiB" placeholder:"SIZE" group:"store" help:"Bytes kept in all. Default ${default}."`
}

// Bounds are the limits on what is held at one time.
type Bounds struct {
	MaxMessage              Size `name:"max-message" default:"64MiB" placeholder:"SIZE" group:"limits" help:"Largest message, from either side. Default ${default}."`
	InflightMax             Size `name:"inflight-max" default:"256MiB" placeholder:"SIZE" group:"limits" help:"Bytes of messages in memory that are being read, in all; one key has at most half of what the others leave, and messages up to 64 KiB are always taken. Default ${default}."`
	MaxSessions             int  `name:"max-sessions" default:"10000" placeholder:"N" group:"limits" help:"Sessions in all. Default ${default}."`
	MaxSessionsPrincipal    int  `name:"max-sessions-per-principal" placeholder:"N" group:"limits" help:"Sessions of one client key. Default 1000, without keys no less than in all."`
	MaxChildren             int  `name:"max-children" default:"256" placeholder:"N" group:"limits" help:"Server processes in all. Default ${default}."`
	MaxChildrenPrincipal    int  `name:"max-children-per-principal" placeholder:"N" group:"limits" help:"Server processes of one client key. Default 128, without keys no less than in all."`
	MaxConnections          int  `name:"max-connections" default:"10000" placeholder:"N" group:"limits" help:"Open streams in all. Default ${default}."`
	MaxConnectionsPrincipal int  `name:"max-connections-per-principal" placeholder:"N" group:"limits" help:"Open streams of one client key. Default 1000, without keys no less than in all."`
}

// Watching is what can be seen of a running Segno.
type Watching struct {
	Admin        string `default:"127.0.0.1:9464" placeholder:"ADDR" group:"watch" help:"Address of metrics, health and dashboard; if taken, any free port; off: none. Default ${default}."`
	AdminKey     string `name:"admin-key" placeholder:"KEY" group:"watch" help:"Key for the dashboard; without one only this machine sees more than metrics and health. Better given as SEGNO_ADMIN_KEY."`
	ShowPayloads bool   `name:"show-payloads" group:"watch" help:"Show what messages say in the dashboard and to dump."`
	LogFormat    string `name:"log-format" default:"text" enum:"text,json" placeholder:"FORMAT" group:"watch" help:"Form of the log on stderr: ${enum}. Default ${default}."`
	LogLevel     string `name:"log-level" default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" group:"watch" help:"Least level that is logged: ${enum}. Default ${default}."`
}

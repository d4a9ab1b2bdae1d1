package config

import (
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// Check finds values that are impossible, or do not go together. where names a
// setting as its user wrote it; see Layers.Where.
func (s *Serve) Check(where func(string) string) error {
	for _, check := range []func(func(string) string) error{
		s.checkTimes, s.checkAmounts, s.checkPairs, s.checkPlaces, s.checkWeb, s.checkKeys,
	} {
		if err := check(where); err != nil {
			return err
		}
	}
	return nil
}

// GiveUp is how long segno connect waits by default for a server that is away.
const GiveUp = 10 * time.Minute

// Warnings are things that work and are probably not meant.
func (s *Serve) Warnings(where func(string) string) (warnings []string) {
	if s.Grace+s.Keep < GiveUp {
		warnings = append(warnings, where("grace")+" and "+where("keep")+" together are shorter than the "+GiveUp.String()+
			" that a client waits for its connection: it may come back to a session that is gone")
	}
	if at := s.reached(); at != "" && s.TokenFile == "" {
		warnings = append(warnings, "anyone who reaches "+at+" may call the server: there are no keys")
	}
	return warnings
}

// reached is where others than this machine reach the server, if they do.
func (s *Serve) reached() string {
	if u, err := url.Parse(s.PublicURL); err == nil && u.Host != "" && !Loopback(net.JoinHostPort(u.Hostname(), "0")) {
		return s.PublicURL
	}
	if !Loopback(s.Listen) {
		return s.Listen
	}
	return ""
}

// leastRotate leaves a connection the time to be of use.
const leastRotate = 100 * time.Millisecond

func (s *Serve) checkTimes(where func(string) string) error {
	for _, t := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"json-within", s.JSONWithin, 0}, {"heartbeat", s.Heartbeat, 10 * time.Millisecond},
		{"retry", s.Retry, time.Millisecond}, {"rotate", s.Rotate, 0},
		{"grace", s.Grace, time.Millisecond}, {"keep", s.Keep, time.Millisecond}, {"orphan", s.Orphan, 0},
		{"ask-timeout", s.AskTimeout, 0}, {"repost", s.Repost, 0},
		{"call-timeout", s.CallTimeout, 0}, {"start-timeout", s.StartTimeout, time.Millisecond},
		{"drain", s.Drain, 0}, {"retain-age", s.RetainAge, 0},
	} {
		if t.value < t.least {
			return Faultf("", "%s is %v: must be at least %v", where(t.name), t.value, t.least)
		}
	}
	if s.Rotate > 0 && s.Rotate < leastRotate {
		return Faultf("", "%s is %v: must be at least %v, or 0 for never", where("rotate"), s.Rotate, leastRotate)
	}
	return nil
}

func (s *Serve) checkAmounts(where func(string) string) error {
	for _, n := range []struct {
		name  string
		value int64
		least int64
	}{
		{"retain-events", s.RetainEvents, 1}, {"retain-bytes", int64(s.RetainBytes), 1},
		{"session-max", int64(s.SessionMax), 1 << 10}, {"principal-max", int64(s.PrincipalMax), 1 << 10},
		{"store-max", int64(s.StoreMax), 1 << 20}, {"max-message", int64(s.MaxMessage), 1 << 10},
		{"inflight-max", int64(s.InflightMax), 1 << 10},
		{"max-sessions", int64(s.MaxSessions), 1}, {"max-sessions-per-principal", int64(s.MaxSessionsPrincipal), 0},
		{"max-children", int64(s.MaxChildren), 1}, {"max-children-per-principal", int64(s.MaxChildrenPrincipal), 0},
		{"max-connections", int64(s.MaxConnections), 1}, {"max-connections-per-principal", int64(s.MaxConnectionsPrincipal), 0},
	} {
		if n.value < n.least {
			return Faultf("", "%s is %d: must be at least %d", where(n.name), n.value, n.least)
		}
	}
	return nil
}

// checkPairs looks at values of which one makes no sense without the other.
// A small upper limit with the default of a lower one is none of these: the
// upper one simply holds first.
func (s *Serve) checkPairs(where func(string) string) error {
	switch {
	case s.Keep < s.RetainAge:
		return Faultf("raise --keep or lower --retain-age", "%s is %v, shorter than %s, which is %v: streams would outlive their session",
			where("keep"), s.Keep, where("retain-age"), s.RetainAge)
	case s.MaxMessage > s.InflightMax:
		return Faultf("raise --inflight-max or lower --max-message", "%s is %v, more than %s, which is %v: such a message could never be taken",
			where("max-message"), s.MaxMessage, where("inflight-max"), s.InflightMax)
	case s.RetainBytes > s.SessionMax:
		return Faultf("raise --session-max or lower --retain-bytes", "%s is %v, more than %s, which is %v: one stream could fill its session",
			where("retain-bytes"), s.RetainBytes, where("session-max"), s.SessionMax)
	case (s.TLSCert == "") != (s.TLSKey == ""):
		return Faultf("", "%s and %s are given together or not at all", where("tls-cert"), where("tls-key"))
	}
	return nil
}

func (s *Serve) checkPlaces(where func(string) string) error {
	if !address(s.Listen) {
		return Faultf("write HOST:PORT, such as 127.0.0.1:8080 or :8080", "%s is %q: not an address", where("listen"), s.Listen)
	}
	if s.Admin != "off" && !address(s.Admin) {
		return Faultf("write HOST:PORT, such as 127.0.0.1:9464, or off", "%s is %q: not an address", where("admin"), s.Admin)
	}
	if !strings.HasPrefix(s.Path, "/") || len(s.Path) < 2 || strings.HasSuffix(s.Path, "/") || strings.ContainsAny(s.Path, "?#{} ") {
		return Faultf("write it like /mcp", "%s is %q: not a path", where("path"), s.Path)
	}
	if s.Store == "" {
		return nil
	}
	_, err := ParseStore(s.Store, where("store"))
	return err
}

func (s *Serve) checkWeb(where func(string) string) error {
	for _, o := range s.AllowOrigin {
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "" || strings.Contains(o, "*") {
			return Faultf("write SCHEME://HOST or SCHEME://HOST:PORT, such as https://app.example", "%s is %q: not an origin", where("allow-origin"), o)
		}
	}
	for _, h := range s.AllowHost {
		if h == "" || strings.ContainsAny(h, "/*@ ") {
			return Faultf("write HOST or HOST:PORT", "%s is %q: not a host", where("allow-host"), h)
		}
	}
	for _, c := range s.TrustProxy {
		_, err := netip.ParsePrefix(c)
		if _, plain := netip.ParseAddr(c); err != nil && plain != nil {
			return Faultf("write an address or a range, such as 10.0.0.0/8", "%s is %q: not a range of addresses", where("trust-proxy"), c)
		}
	}
	if s.PublicURL == "" {
		return nil
	}
	u, err := url.Parse(s.PublicURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return Faultf("write it like https://mcp.example.com/mcp", "%s is %q: not a URL of http or https", where("public-url"), s.PublicURL)
	}
	return nil
}

func (s *Serve) checkKeys(where func(string) string) error {
	if s.TokenFile == "" && !s.Insecure && !Loopback(s.Listen) {
		return Faultf("give the clients' keys with --token-file FILE, or say --insecure if something else keeps strangers out",
			"%s is %s: anyone who reaches it could call the server", where("listen"), s.Listen)
	}
	return nil
}

func address(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsAny(host, "/ ") {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil
}

// Loopback tells whether an address to listen on is reached from this machine
// only. A name other than localhost may be anything.
func Loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// Store is a place for the log.
type Store struct {
	Dir    string // of pebble
	Memory bool
}

// ParseStore reads the URL of a store; where names the setting in errors.
func ParseStore(text, where string) (Store, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "memory":
		if strings.Trim(rest, "/") == "" {
			return Store{Memory: true}, nil
		}
	case "pebble":
		if dir := strings.TrimPrefix(rest, "//"); dir != "" {
			return Store{Dir: filepath.FromSlash(dir)}, nil
		}
		return Store{}, Faultf("write pebble:DIR", "%s is %q: no folder", where, text)
	case "redis", "rediss", "valkey":
		return Store{}, Faultf("this version keeps its log in pebble:DIR or memory:", "%s is %q: stores shared over the network are not in this version", where, text)
	}
	return Store{}, Faultf("write pebble:DIR or memory:", "%s is %q: not a store", where, text)
}

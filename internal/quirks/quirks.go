// Package quirks is the one place where Segno treats a client unlike others.
// MCP says that clientInfo is not for behaviour, so a row needs a client that
// fails otherwise, a source that shows it, and a test; and it only ever leaves
// something out that another client would use.
package quirks

import "strings"

// Exception is what is done otherwise for a client.
type Exception uint8

// The exceptions.
const (
	// NoRetry sends no retry: line.
	NoRetry Exception = 1 << iota
)

// Set is what is done otherwise for one client.
type Set uint8

// Has tells whether the set has the exception in it.
func (s Set) Has(e Exception) bool { return s&Set(e) != 0 }

// Row is one exception for one kind of client. Of Name and Agent one that is
// not empty must match.
type Row struct {
	Client    string // for people
	Name      string // part of clientInfo.name, in any case
	Agent     string // beginning of the User-Agent header, in any case
	Exception Exception
	Why       string
	Source    string
	Test      string // package path below the module and test function
}

// Table is all there is.
var Table = []Row{
	{
		Client: "Java SDK on the JDK's HTTP client", Name: "java sdk mcp client", Agent: "java-http-client/",
		Exception: NoRetry,
		Why:       "up to 2.0.1 its reader takes any line but id, event, data and comments for an invalid response and fails the stream; the header is the JDK's own, as applications choose their clientInfo freely",
		Source:    "https://github.com/modelcontextprotocol/java-sdk/issues/1047",
		Test:      "internal/quirks TestStrictReaderTakesAStreamWithoutRetry",
	},
	{
		Client: "AWS Bedrock AgentCore Gateway", Name: "agentcore", Agent: "agentcore",
		Exception: NoRetry,
		Why:       "it rejects the same line, which breaks every tool call; how it names itself is not documented, so this goes by the product's name",
		Source:    "https://github.com/jordiboehme/crystalline/pull/26",
		Test:      "internal/quirks TestStrictReaderTakesAStreamWithoutRetry",
	},
}

// For returns the exceptions for a client by what it calls itself in
// initialize and in the User-Agent header. Either may be empty.
func For(name, agent string) Set {
	name, agent = strings.ToLower(name), strings.ToLower(agent)
	var s Set
	for _, r := range Table {
		if r.Name != "" && strings.Contains(name, r.Name) || r.Agent != "" && strings.HasPrefix(agent, r.Agent) {
			s |= Set(r.Exception)
		}
	}
	return s
}

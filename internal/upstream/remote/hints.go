package remote

import (
	"encoding/json"
	"sync"

	"github.com/segno-mcp/segno/internal/wire"
)

// hints are which tools say of themselves that running them twice does no harm
// (MCP 2025-03-26, Tools, annotations). A server that is not trusted may lie,
// so they count only where the user says so.
type hints struct {
	mu   sync.Mutex
	safe map[string]bool
}

func (h *hints) learn(m *wire.Message) {
	var list struct {
		Tools []struct {
			Name        string `json:"name"`
			Annotations struct {
				ReadOnly   bool `json:"readOnlyHint"`
				Idempotent bool `json:"idempotentHint"`
			} `json:"annotations"`
		} `json:"tools"`
	}
	if json.Unmarshal(m.Text(m.Result), &list) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.safe == nil {
		h.safe = map[string]bool{}
	}
	for _, t := range list.Tools {
		h.safe[t.Name] = t.Annotations.ReadOnly || t.Annotations.Idempotent
	}
}

// forget is for a list that has changed.
func (h *hints) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.safe = nil
}

func (h *hints) allow(tool string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.safe[tool]
}

// harmless are the requests that only read or set to the same value again.
var harmless = map[string]bool{
	wire.Initialize: true, wire.Ping: true, wire.SetLevel: true, wire.Complete: true,
	wire.ToolsList: true, wire.ResourcesList: true, wire.ResourceTemplates: true, wire.ResourcesRead: true,
	wire.Subscribe: true, wire.Unsubscribe: true, wire.PromptsList: true, wire.PromptsGet: true,
	wire.TasksGet: true, wire.TasksList: true, wire.TasksResult: true,
}

// safeTwice tells whether a request may run twice at a server.
func (c *conn) safeTwice(r *request) bool {
	return harmless[r.method] || r.method == wire.ToolsCall && c.o.ReplaySafe && c.tools.allow(r.tool)
}

// repeatable tells whether a request that the server may have can be sent
// again: it may run twice, or the server is a Segno, which runs it once for all
// requests with its key, in the session in which it was sent.
func (c *conn) repeatable(r *request, l *life) bool {
	return c.safeTwice(r) || r.key != "" && l != nil && l.segno && r.life == l
}

// promise takes from initialize's result which lists the client will be told
// of.
func (s *settings) promise(m *wire.Message) {
	s.promised = nil
	for name, method := range map[string]string{
		"tools": wire.ToolsChanged, "resources": wire.ResourcesChanged, "prompts": wire.PromptsChanged,
	} {
		if at, err := m.Find("result", "capabilities", name, "listChanged"); err == nil && string(m.Text(at)) == "true" {
			s.promised = append(s.promised, method)
		}
	}
}

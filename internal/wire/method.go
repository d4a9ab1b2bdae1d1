package wire

// Methods of MCP that Segno knows by name, all revisions together.
const (
	Initialize        = "initialize"
	Initialized       = "notifications/initialized"
	Ping              = "ping"
	Cancelled         = "notifications/cancelled"
	ProgressNote      = "notifications/progress"
	LogNote           = "notifications/message"
	SetLevel          = "logging/setLevel"
	Complete          = "completion/complete"
	ToolsList         = "tools/list"
	ToolsCall         = "tools/call"
	ToolsChanged      = "notifications/tools/list_changed"
	ResourcesList     = "resources/list"
	ResourceTemplates = "resources/templates/list"
	ResourcesRead     = "resources/read"
	Subscribe         = "resources/subscribe"
	Unsubscribe       = "resources/unsubscribe"
	ResourceUpdated   = "notifications/resources/updated"
	ResourcesChanged  = "notifications/resources/list_changed"
	PromptsList       = "prompts/list"
	PromptsGet        = "prompts/get"
	PromptsChanged    = "notifications/prompts/list_changed"
	RootsList         = "roots/list"
	RootsChanged      = "notifications/roots/list_changed"
	Sampling          = "sampling/createMessage"
	Elicitation       = "elicitation/create"
	ElicitationDone   = "notifications/elicitation/complete"
	TasksGet          = "tasks/get"
	TasksResult       = "tasks/result"
	TasksList         = "tasks/list"
	TasksCancel       = "tasks/cancel"
	TasksUpdate       = "tasks/update"
	TaskStatus        = "notifications/tasks/status"
	TaskNote          = "notifications/tasks"
	Discover          = "server/discover"
	Listen            = "subscriptions/listen"
	Acknowledged      = "notifications/subscriptions/acknowledged"
)

// methodName is the method that a string's inside stands for. The known ones
// cost no memory.
func methodName(inside []byte) string {
	switch string(inside) {
	case ProgressNote:
		return ProgressNote
	case ToolsCall:
		return ToolsCall
	case LogNote:
		return LogNote
	case Cancelled:
		return Cancelled
	case Ping:
		return Ping
	}
	if name := rareMethod(inside); name != "" {
		return name
	}
	name, _ := unescape(inside)
	return name
}

func rareMethod(inside []byte) string {
	i := methodIndex[string(inside)]
	if i == 0 {
		return ""
	}
	return methods[i-1]
}

var methods = [...]string{
	Initialize, Initialized, SetLevel, Complete, ToolsList, ToolsChanged,
	ResourcesList, ResourceTemplates, ResourcesRead, Subscribe, Unsubscribe,
	ResourceUpdated, ResourcesChanged, PromptsList, PromptsGet, PromptsChanged,
	RootsList, RootsChanged, Sampling, Elicitation, ElicitationDone, TasksGet,
	TasksResult, TasksList, TasksCancel, TasksUpdate, TaskStatus, TaskNote,
	Discover, Listen, Acknowledged,
}

var methodIndex = func() map[string]int {
	index := make(map[string]int, len(methods))
	for i, name := range methods {
		index[name] = i + 1
	}
	return index
}()

package wire

// IsArray tells whether the text is a JSON array, as far as its first character
// goes: a batch of messages.
func IsArray(b []byte) bool {
	b = trim(b)
	return len(b) > 0 && b[0] == '['
}

// Split returns the elements of a batch as parts of b (MCP 2025-03-26, Base
// Protocol, Batching). The whole is checked to be JSON; whether an element is a
// message is for Parse to say. An empty array is an error, as JSON-RPC 2.0
// section 6 wants it.
func Split(b []byte) ([][]byte, *Error) {
	b = trim(b)
	if len(b) == 0 || b[0] != '[' {
		return nil, notObject(b)
	}
	end := skipArray(b, 1, maxDepth)
	if end >= 0 && end != len(b) {
		end = ^end
	}
	if end < 0 {
		return nil, notJSON(end)
	}
	var parts [][]byte
	for i := skipSpace(b, 1); b[i] != ']'; {
		to := skipValue(b, i, maxDepth)
		parts = append(parts, b[i:to:to])
		if i = skipSpace(b, to); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	if len(parts) == 0 {
		return nil, &Error{Code: CodeInvalid, Message: "an empty batch"}
	}
	return parts, nil
}

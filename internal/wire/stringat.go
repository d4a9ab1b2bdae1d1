package wire

// StringAt is the string at the path, "" if there is none or it is no string.
func (m *Message) StringAt(path ...string) string {
	at, err := m.Find(path...)
	if err != nil || !at.Ok() {
		return ""
	}
	s, _ := Unquote(m.Text(at))
	return s
}

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// member is one key of an object with its value.
type member struct {
	key   string
	value json.RawMessage
}

func has(all []member, key string) bool {
	return slices.ContainsFunc(all, func(m member) bool { return m.key == key })
}

// object reads valid JSON that must be an object, in its order. Of a key that is
// there twice the library would take the last one without a word.
func object(raw []byte) (all []member, err error) {
	if kind(raw) != "an object" {
		return nil, wrong("an object", raw)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{key: fmt.Sprint(key)}
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		if has(all, m.key) {
			return nil, fmt.Errorf("has the key %q twice", m.key)
		}
		all = append(all, m)
	}
	return all, nil
}

// kind names what a value is, as people call it.
func kind(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "a list"
	case raw[0] == '"':
		return "a string"
	case raw[0] == 't', raw[0] == 'f':
		return string(raw)
	case raw[0] == 'n':
		return "null"
	}
	return "a number"
}

func wrong(want string, raw []byte) error {
	return fmt.Errorf("must be %s, not %s", want, kind(raw))
}

func text(raw json.RawMessage) (s string, err error) {
	if kind(raw) != "a string" {
		return "", wrong("a string", raw)
	}
	return s, json.Unmarshal(raw, &s)
}

func truth(raw json.RawMessage) (bool, error) {
	if k := kind(raw); k != "true" && k != "false" {
		return false, wrong("true or false", raw)
	}
	return kind(raw) == "true", nil
}

// texts reads a list of strings.
func texts(raw json.RawMessage) ([]string, error) {
	if kind(raw) != "a list" {
		return nil, wrong("a list of strings", raw)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, err
	}
	all := []string{}
	for _, item := range items {
		s, err := text(item)
		if err != nil {
			return nil, fmt.Errorf("must be a list of strings, and one is %s%s", kind(item), inQuotes(item))
		}
		all = append(all, s)
	}
	return all, nil
}

// named reads an object of strings.
func named(raw json.RawMessage) (map[string]string, error) {
	all, err := object(raw)
	if err != nil {
		return nil, err
	}
	byName := map[string]string{}
	for _, m := range all {
		s, err := text(m.value)
		if err != nil {
			return nil, fmt.Errorf("has %q, which must be a string, not %s%s", m.key, kind(m.value), inQuotes(m.value))
		}
		byName[m.key] = s
	}
	return byName, nil
}

// inQuotes shows how a number or a truth is written as a string.
func inQuotes(raw []byte) string {
	switch kind(raw) {
	case "a number", "true", "false":
		return fmt.Sprintf(": write \"%s\"", bytes.TrimSpace(raw))
	}
	return ""
}

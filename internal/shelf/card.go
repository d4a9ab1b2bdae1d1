package shelf

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// cardFile lies beside what a log is made of.
const cardFile = "about.json"

// Card says whose a log is. It outlives the process, as the log does.
type Card struct {
	// Instance begins the ids of the sessions in the log. A process that opens
	// the log goes on under that name: its sessions are no strangers.
	Instance string   `json:"instance"`
	Server   string   `json:"server,omitempty"`
	Command  []string `json:"command,omitempty"`
	Dir      string   `json:"dir,omitempty"` // where the command runs
	URL      string   `json:"url,omitempty"`
}

// NewCard describes a server. Secrets in its URL are left out; what is in its
// environment and headers is not part of it.
func NewCard(s Server, instance string) Card {
	c := Card{Instance: instance, Server: s.Name, Command: s.Command}
	if u, err := url.Parse(s.URL); err == nil && s.URL != "" {
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		c.URL = u.String()
	}
	if len(s.Command) > 0 {
		c.Dir, _ = filepath.Abs(s.Dir)
	}
	return c
}

var instance = regexp.MustCompile(`^[0-9a-z]{4}$`)

// ReadCard reads the card of a log.
func ReadCard(dir string) (Card, error) {
	var c Card
	text, err := os.ReadFile(filepath.Join(dir, cardFile))
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil && !instance.MatchString(c.Instance) {
		err = fmt.Errorf("%q is no instance", c.Instance)
	}
	if err != nil {
		return Card{}, fmt.Errorf("reading whose log %s is: %w", dir, err)
	}
	return c, nil
}

// Write puts the card into the folder of a log, which the caller has to itself.
// Only the owner of the log can read it.
func (c Card) Write(dir string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("writing whose log %s is: %w", dir, err)
	}
	path := filepath.Join(dir, cardFile)
	if old, err := os.ReadFile(path); err == nil && string(old) == string(text) {
		return nil
	}
	if err := writeWhole(path, text); err != nil {
		return fmt.Errorf("writing whose log %s is: %w", dir, err)
	}
	return nil
}

// writeWhole leaves the old file or the new one, whatever happens.
func writeWhole(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Differs says what tells the server of c from the one of other; empty if
// nothing that the cards know of.
func (c Card) Differs(other Card) string {
	switch {
	case !slices.Equal(c.Command, other.Command) || c.URL != other.URL:
		return fmt.Sprintf("it is the log of %s, and this is %s", c.what(), other.what())
	case c.Dir != other.Dir:
		return fmt.Sprintf("it is the log of %s in %s, and this is in %s", c.what(), c.Dir, other.Dir)
	}
	return ""
}

func (c Card) what() string {
	if c.URL != "" {
		return c.URL
	}
	return fmt.Sprintf("%q", strings.Join(c.Command, " "))
}

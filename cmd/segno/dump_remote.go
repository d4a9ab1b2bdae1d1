package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/admin"
	"github.com/segno-mcp/segno/internal/config"
)

// remote is a running Segno, asked at its admin address.
type remote struct {
	base   *url.URL
	key    string
	client http.Client
}

func newRemote(address, key string) (*remote, error) {
	if address == "" {
		address = "127.0.0.1:9464"
	}
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, config.Faultf("write it like http://127.0.0.1:9464", "--admin is %q: not a URL", address)
	}
	return &remote{base: base, key: key, client: http.Client{Timeout: time.Minute}}, nil
}

func (r *remote) list(ctx context.Context, session string) ([]admin.ServerStatus, error) {
	u := r.base.JoinPath("streams")
	if session != "" {
		u.RawQuery = "session=" + url.QueryEscape(session)
	}
	var s admin.Status
	if err := r.get(ctx, u, &s); err != nil || session == "" {
		return s.Servers, err
	}
	for _, server := range s.Servers {
		if len(server.Sessions) > 0 {
			return []admin.ServerStatus{server}, nil
		}
	}
	return nil, eventlog.ErrNoSession
}

func (r *remote) window(ctx context.Context, stream string, after uint64) (*admin.Window, error) {
	u := r.base.JoinPath("streams", url.PathEscape(stream))
	u.RawQuery = "after=" + strconv.FormatUint(after, 10)
	w := new(admin.Window)
	return w, r.get(ctx, u, w)
}

// maxAnswer bounds what is read of an answer: something else may listen there.
const maxAnswer = 256 << 20

func (r *remote) get(ctx context.Context, u *url.URL, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", u, err)
	}
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	resp, err := r.client.Do(req)
	var fault *url.Error
	if errors.As(err, &fault) {
		return config.Faultf("segno serve prints its admin address as it starts; give it with --admin, or a log with --store", "asking %s: %v", u, fault.Err)
	}
	if err != nil {
		return fmt.Errorf("asking %s: %w", u, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(v); err != nil {
			return config.Faultf("is this the admin address of a Segno?", "asking %s: the answer is not what was expected", u)
		}
		return nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return config.Faultf("give --admin-key, or SEGNO_ADMIN_KEY", "asking %s: %s", u, resp.Status)
	case http.StatusNotFound:
		if _, one := v.(*admin.Window); one {
			return eventlog.ErrNoStream
		}
	}
	return config.Faultf("is this the admin address of a Segno?", "asking %s: %s", u, resp.Status)
}

package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// patience bounds how long a store may take to answer a probe.
const patience = 2 * time.Second

// alive answers as long as the process can: a store that is away is no reason
// to kill it.
func (a *Admin) alive(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, map[string]string{"status": "alive", "version": a.o.Version})
}

// ready answers 503, and why, while new sessions are not taken.
func (a *Admin) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	for _, s := range a.o.Servers {
		if err := s.Source.Ready(ctx); err != nil {
			answer := map[string]string{"status": "not ready", "why": err.Error()}
			if s.Name != "" {
				answer["server"] = s.Name
			}
			write(w, http.StatusServiceUnavailable, answer)
			return
		}
	}
	write(w, http.StatusOK, map[string]string{"status": "ready"})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(true)
	_ = e.Encode(v)
}

package admin

import (
	"embed"
	"net/http"
	"path"
)

//go:embed static
var static embed.FS

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
}

func dashboard(name string) http.HandlerFunc {
	page, err := static.ReadFile("static/" + name)
	return func(w http.ResponseWriter, _ *http.Request) {
		if err != nil {
			refuse(w, http.StatusInternalServerError, "the page is not in this binary")
			return
		}
		w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
		_, _ = w.Write(page)
	}
}

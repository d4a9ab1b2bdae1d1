package example

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What an export may ask for, and how many of the newest can be read.
const (
	MaxRows     = 100_000
	MaxInterval = 60_000 // milliseconds
	maxExports  = 100
)

// Request is what the tool takes.
type Request struct {
	Rows       int  `json:"rows" jsonschema:"how many rows to export, 1 to 100000"`
	IntervalMS int  `json:"interval_ms,omitempty" jsonschema:"milliseconds between two rows, 0 to 60000; default 0"`
	FailAt     *int `json:"fail_at,omitempty" jsonschema:"fail instead of exporting this row, 1 to rows"`
}

func (r *Request) check() error {
	switch {
	case r.Rows < 1 || r.Rows > MaxRows:
		return fmt.Errorf("rows must be 1 to %d, it is %d", MaxRows, r.Rows)
	case r.IntervalMS < 0 || r.IntervalMS > MaxInterval:
		return fmt.Errorf("interval_ms must be 0 to %d, it is %d", MaxInterval, r.IntervalMS)
	case r.FailAt != nil && (*r.FailAt < 1 || *r.FailAt > r.Rows):
		return fmt.Errorf("fail_at must be 1 to rows (%d), it is %d", r.Rows, *r.FailAt)
	}
	return nil
}

// Summary is what the tool returns, as structured content.
type Summary struct {
	URI      string `json:"uri" jsonschema:"the resource that holds the rows"`
	Rows     int    `json:"rows"`
	Checksum string `json:"checksum" jsonschema:"SHA-256 over all rows"`
}

// desk runs exports and remembers them.
type desk struct {
	server *mcp.Server

	mu      sync.Mutex
	exports map[string]int // rows by URI
	order   []string
}

func (d *desk) export(ctx context.Context, req *mcp.CallToolRequest, in Request) (*mcp.CallToolResult, *Summary, error) {
	if err := in.check(); err != nil {
		return nil, nil, err
	}
	sum := sha256.New()
	for i := 1; i <= in.Rows; i++ {
		if in.FailAt != nil && *in.FailAt == i {
			return nil, nil, fmt.Errorf("the export failed at row %d of %d, as asked", i, in.Rows)
		}
		if err := pause(ctx, time.Duration(in.IntervalMS)*time.Millisecond); err != nil {
			return nil, nil, fmt.Errorf("the export was cancelled after %d of %d rows", i-1, in.Rows)
		}
		sum.Write([]byte(Row(i)))
		if err := report(ctx, req, i, in.Rows, sum); err != nil {
			return nil, nil, err
		}
	}
	out := &Summary{URI: d.keep(in.Rows), Rows: in.Rows, Checksum: hex.EncodeToString(sum.Sum(nil))}
	return &mcp.CallToolResult{Content: []mcp.Content{
		&mcp.TextContent{Text: fmt.Sprintf("exported %s, checksum %s", counted(out.Rows), out.Checksum)},
		&mcp.ResourceLink{URI: out.URI, Name: name(out.URI), MIMEType: mimeType},
	}}, out, nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// report tells how far the export is: the count and the checksum so far, so
// that whoever misses a report can tell from the next.
func report(ctx context.Context, req *mcp.CallToolRequest, done, total int, sum hash.Hash) error {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	checksum := hex.EncodeToString(sum.Sum(nil))
	return req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: token,
		Progress:      float64(done),
		Total:         float64(total),
		Message:       fmt.Sprintf("row %d of %d, checksum %s", done, total, checksum[:12]),
		Meta:          mcp.Meta{"rows": done, "checksum": checksum},
	})
}

// Row is the text of row i, counted from 1. It is the same in every export.
func Row(i int) string {
	return fmt.Sprintf("%d,item-%d,%d.%02d\n", i, i, i*7%1000, i*31%100)
}

// Checksum is the SHA-256 over the first rows, in hexadecimal.
func Checksum(rows int) string {
	sum := sha256.New()
	for i := 1; i <= rows; i++ {
		sum.Write([]byte(Row(i)))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

const (
	scheme   = "export://"
	mimeType = "text/csv"
)

func name(uri string) string { return "export " + strings.TrimPrefix(uri, scheme) }

// keep lists an export as a resource; the oldest goes when there are too many.
func (d *desk) keep(rows int) (uri string) {
	uri = scheme + strings.ToLower(rand.Text()[:10])
	d.mu.Lock()
	defer d.mu.Unlock()
	d.exports[uri] = rows
	d.order = append(d.order, uri)
	if len(d.order) > maxExports {
		d.server.RemoveResources(d.order[0])
		delete(d.exports, d.order[0])
		d.order = d.order[1:]
	}
	d.server.AddResource(&mcp.Resource{
		URI: uri, Name: name(uri), MIMEType: mimeType,
		Description: counted(rows) + ", exported",
	}, d.read)
	return uri
}

func (d *desk) read(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	d.mu.Lock()
	rows, ok := d.exports[uri]
	d.mu.Unlock()
	if !ok {
		return nil, mcp.ResourceNotFoundError(uri)
	}
	var b strings.Builder
	for i := 1; i <= rows; i++ {
		b.WriteString(Row(i))
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: mimeType, Text: b.String()}}}, nil
}

func counted(rows int) string {
	if rows == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", rows)
}

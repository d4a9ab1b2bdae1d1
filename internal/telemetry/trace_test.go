package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestOneSpanForEachCall(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tr, err := newTracer(t.Context(), spans, "v1")
	if err != nil {
		t.Fatal(err)
	}
	parent := map[string]string{"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	tr.Call(parent, "abcd12345678", "stream", "tools/call", "export")("unknown")
	tr.Call(nil, "abcd12345678", "stream", "ping", "")("result")
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans for two calls", len(ended))
	}
	first := ended[0]
	if first.Parent().TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || !first.Parent().IsRemote() {
		t.Errorf("the parent is %v, not the one that came with the call", first.Parent())
	}
	if first.Name() != "tools/call export" || first.Status().Description != "unknown" || !carries(first, "mcp.session.id", "abcd12345678") {
		t.Errorf("span %q, status %v, %v", first.Name(), first.Status(), first.Attributes())
	}
	if ended[1].Parent().IsValid() {
		t.Error("a call without a context has a parent")
	}
}

func carries(s sdk.ReadOnlySpan, key, value string) bool {
	for _, a := range s.Attributes() {
		if string(a.Key) == key && a.Value.AsString() == value {
			return true
		}
	}
	return false
}

func TestTracesAreOffUnlessAskedFor(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		on   bool
		fail string
	}{
		{nil, false, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, true, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, false, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, false, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, false, "zipkin"},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, "grpc"},
	} {
		on, err := traced(func(k string) string { return c.env[k] })
		if on != c.on || (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%v: on %v, %v", c.env, on, err)
		}
	}
}

func TestSpansAreDelivered(t *testing.T) {
	got := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Method + " " + r.URL.Path + " " + string(body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
	tr, err := NewTracer(t.Context(), os.Getenv, "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tr.Call(nil, "abcd12345678", "stream", "tools/call", "export")("result")
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case sent := <-got:
		if !strings.HasPrefix(sent, "POST /v1/traces ") || !strings.Contains(sent, "tools/call export") || !strings.Contains(sent, "abcd12345678") {
			t.Errorf("sent %q", sent)
		}
	default:
		t.Error("nothing was sent")
	}
}

func TestNoTracerIsNoBurden(t *testing.T) {
	tr, err := NewTracer(t.Context(), func(string) string { return "" }, "v1", slog.New(slog.DiscardHandler))
	if err != nil || tr != nil {
		t.Fatalf("got %v, %v", tr, err)
	}
	tr.Call(nil, "", "", "", "")("result")
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

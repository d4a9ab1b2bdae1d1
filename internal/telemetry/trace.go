package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes a span of each call. A nil Tracer makes none.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// NewTracer reads the standard environment (OpenTelemetry, "Environment
// Variable Specification"): it traces where OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, or OTEL_TRACES_EXPORTER is otlp,
// and is nil otherwise. The library reads samplers, batches, headers and
// resources from there too. Spans go out by OTLP over HTTP.
func NewTracer(ctx context.Context, getenv func(string) string, version string, logger *slog.Logger) (*Tracer, error) {
	on, err := traced(getenv)
	if err != nil || !on {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("setting up traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("traces not delivered", "error", err) }))
	return newTracer(ctx, sdk.NewBatchSpanProcessor(exporter), version)
}

func newTracer(ctx context.Context, p sdk.SpanProcessor, version string) (*Tracer, error) {
	r, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "segno"), attribute.String("service.version", version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("setting up traces: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(p), sdk.WithResource(r))
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/segno-mcp/segno")}, nil
}

// traced tells whether the environment asks for traces.
func traced(getenv func(string) string) (bool, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	endpoint := getenv("OTEL_EXPORTER_OTLP_ENDPOINT") + getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "otlp":
	case "":
		if endpoint == "" {
			return false, nil
		}
	default:
		return false, fmt.Errorf("setting up traces: OTEL_TRACES_EXPORTER is %q: only otlp and none are known", exporter)
	}
	protocol := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	if protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Errorf("setting up traces: OTEL_EXPORTER_OTLP_PROTOCOL is %q: only http/protobuf is known", protocol)
	}
	return true, nil
}

// Call starts the span of a call. parent is the W3C Trace Context that came
// with it, traceparent and tracestate, from _meta or the headers; session is
// the public id. The function it returns ends the span with the outcome:
// result, error, unknown or cancelled.
func (t *Tracer) Call(parent map[string]string, session, stream, method, tool string) (end func(outcome string)) {
	if t == nil {
		return func(string) {}
	}
	// Names of parts come from clients and may be in any case in a header.
	carrier := propagation.MapCarrier{}
	for k, v := range maps.All(parent) {
		carrier[strings.ToLower(k)] = v
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
	name := method
	attributes := []attribute.KeyValue{
		attribute.String("rpc.system", "jsonrpc"), attribute.String("mcp.method.name", method),
		attribute.String("mcp.session.id", session), attribute.String("segno.stream", stream),
	}
	if tool != "" {
		name += " " + tool
		attributes = append(attributes, attribute.String("gen_ai.tool.name", tool))
	}
	_, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	return func(outcome string) {
		span.SetAttributes(attribute.String("segno.outcome", outcome))
		if outcome == "error" || outcome == "unknown" {
			span.SetStatus(codes.Error, outcome)
		}
		span.End()
	}
}

// Close delivers what is left, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

"""A worker with OpenTelemetry's SDK: asks for ARGV[1] three times, each time in a span of its own."""

import sys

import requests
from opentelemetry import baggage, context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import inject
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("worker")
context.attach(baggage.set_baggage("tenant", "a"))
with tracer.start_as_current_span("job"), requests.Session() as session:
    for _ in range(3):
        with tracer.start_as_current_span("GET", kind=SpanKind.CLIENT):
            headers = {}
            inject(headers)
            assert session.get(sys.argv[1], headers=headers, timeout=30).status_code == 200
provider.shutdown()

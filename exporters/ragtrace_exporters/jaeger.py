"""Jaeger: traces by OTLP over HTTP; scores are attributes of the spans.

Variables: `JAEGER_OTLP_ENDPOINT` (default http://localhost:4318). It takes neither metrics nor logs. Source:
jaegertracing.io/docs, "APIs", OpenTelemetry Protocol (version 2).
"""

from ragtrace_exporters.preset import Backend, Environ, preset, url


@preset("JAEGER_OTLP_ENDPOINT")
def jaeger(environ: Environ) -> Backend:
    """Send traces to Jaeger."""
    return Backend(url(environ, "JAEGER_OTLP_ENDPOINT", default="http://localhost:4318"))

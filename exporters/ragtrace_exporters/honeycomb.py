"""Honeycomb: traces, metrics and evaluation events by OTLP; scores are fields.

Variables: `HONEYCOMB_API_KEY`, `HONEYCOMB_API_ENDPOINT` (default https://api.honeycomb.io; for Europe
https://api.eu1.honeycomb.io), `HONEYCOMB_METRICS_DATASET` (default ragtrace-metrics). Source:
docs.honeycomb.io/send-data/opentelemetry.
"""

from ragtrace_exporters.preset import ALL, Backend, Environ, preset, required, text, url


@preset("HONEYCOMB_API_ENDPOINT")
def honeycomb(environ: Environ) -> Backend:
    """Send traces, metrics and events to Honeycomb."""
    base = url(environ, "HONEYCOMB_API_ENDPOINT", default="https://api.honeycomb.io")
    advice = "create an ingest key in the environment's settings"
    key = required(environ, "honeycomb", "HONEYCOMB_API_KEY", advice=advice)
    dataset = text(environ, "HONEYCOMB_METRICS_DATASET") or "ragtrace-metrics"
    own = {"metrics": {"x-honeycomb-dataset": dataset}}
    return Backend(base, {"x-honeycomb-team": key}, ALL, signal_headers=own)

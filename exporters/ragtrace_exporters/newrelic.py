"""New Relic: traces, metrics and evaluation events by OTLP; scores are attributes of the spans.

Variables: `NEW_RELIC_LICENSE_KEY` (that of a European account begins with eu), `NEW_RELIC_OTLP_ENDPOINT` (default
https://otlp.nr-data.net, or https://otlp.eu01.nr-data.net by the key). New Relic recommends delta sums:
`OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=delta`. Source: docs.newrelic.com/docs/opentelemetry/best-practices/
opentelemetry-otlp.
"""

from ragtrace_exporters.preset import ALL, Backend, Environ, preset, required, url


@preset("NEW_RELIC_OTLP_ENDPOINT")
def newrelic(environ: Environ) -> Backend:
    """Send traces, metrics and events to New Relic."""
    advice = "copy a key of type INGEST - LICENSE from the account's API keys"
    key = required(environ, "newrelic", "NEW_RELIC_LICENSE_KEY", advice=advice)
    near = "https://otlp.eu01.nr-data.net" if key.lower().startswith("eu") else "https://otlp.nr-data.net"
    return Backend(url(environ, "NEW_RELIC_OTLP_ENDPOINT", default=near), {"api-key": key}, ALL)

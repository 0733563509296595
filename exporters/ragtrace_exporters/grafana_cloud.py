"""Grafana Cloud: traces (Tempo), metrics (Mimir) and evaluation events (Loki) through its OTLP gateway.

Variables: `GRAFANA_CLOUD_OTLP_ENDPOINT` (https://otlp-gateway-<zone>.grafana.net/otlp), `GRAFANA_CLOUD_INSTANCE_ID`,
`GRAFANA_CLOUD_API_KEY`. A Tempo of your own needs no preset: `exporter="otlp"`. Source:
grafana.com/docs/grafana-cloud/send-data/otlp/send-data-otlp.
"""

from base64 import b64encode

from ragtrace_exporters.preset import ALL, Backend, Environ, preset, required, url


@preset("GRAFANA_CLOUD_OTLP_ENDPOINT")
def grafana_cloud(environ: Environ) -> Backend:
    """Send traces, metrics and events to Grafana Cloud."""
    advice = "copy it from the OpenTelemetry tile of your stack"
    base = url(environ, "GRAFANA_CLOUD_OTLP_ENDPOINT", advice=advice)
    instance = required(environ, "grafana_cloud", "GRAFANA_CLOUD_INSTANCE_ID", advice=advice)
    key = required(environ, "grafana_cloud", "GRAFANA_CLOUD_API_KEY", advice=advice)
    return Backend(base, {"Authorization": f"Basic {b64encode(f'{instance}:{key}'.encode()).decode()}"}, ALL)

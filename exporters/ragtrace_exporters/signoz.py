"""SigNoz: traces, metrics and evaluation events by OTLP; scores are attributes of the spans.

Variables: `SIGNOZ_INGESTION_KEY` and `SIGNOZ_REGION` (us, eu, in ...) for its cloud, or `SIGNOZ_ENDPOINT` of your own
server (for instance http://localhost:4318), which needs no key. Source: signoz.io/docs/ingestion/signoz-cloud/overview.
"""

import re

from ragtrace.core.errors import SettingsError
from ragtrace_exporters.preset import ALL, Backend, Environ, preset, required, text, url


@preset("SIGNOZ_ENDPOINT", "SIGNOZ_REGION")
def signoz(environ: Environ) -> Backend:
    """Send traces, metrics and events to SigNoz."""
    region, key = text(environ, "SIGNOZ_REGION") or "us", text(environ, "SIGNOZ_INGESTION_KEY")
    if not text(environ, "SIGNOZ_ENDPOINT"):
        advice = "create one in the settings, or set SIGNOZ_ENDPOINT"
        key = required(environ, "signoz", "SIGNOZ_INGESTION_KEY", advice=advice)
    if not re.fullmatch(r"[a-z0-9-]+", region):
        raise SettingsError(f"SIGNOZ_REGION must be the name of a region, got {region!r}; write us, for example")
    base = url(environ, "SIGNOZ_ENDPOINT", default=f"https://ingest.{region}.signoz.cloud:443")
    return Backend(base, {"signoz-ingestion-key": key} if key else {}, ALL)

"""SigNoz: traces, metrics and evaluation events by OTLP; scores are attributes of the spans.

Variables: `SIGNOZ_INGESTION_KEY` and `SIGNOZ_REGION` (us, eu, in ...) for its cloud, or `SIGNOZ_ENDPOINT` of your own
server (for instance http://localhost:4318), which needs no key. Source: signoz.io/docs/ingestion/signoz-cloud/overview.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Signals
from ragtrace_exporters.preset import ALL, Preset, required, text, url


def signoz(environ: Mapping[str, str]) -> Signals:
    """Traces, metrics and events for SigNoz.

    Raises:
        SettingsError: a variable is missing or has a value that cannot be used.
    """
    return _preset(environ).signals_of(environ)


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Where the signals go."""
    return _preset(environ).endpoints_of(environ)


def _preset(environ: Mapping[str, str]) -> Preset:
    key = text(environ, "SIGNOZ_INGESTION_KEY")
    if not text(environ, "SIGNOZ_ENDPOINT"):
        key = required(
            environ, "signoz", "SIGNOZ_INGESTION_KEY", advice="create one in the settings, or set SIGNOZ_ENDPOINT"
        )
    base = url(environ, "SIGNOZ_ENDPOINT", default=f"https://ingest.{_region(environ)}.signoz.cloud:443")
    return Preset(base, {"signoz-ingestion-key": key} if key else {}, ALL, where=("SIGNOZ_ENDPOINT", "SIGNOZ_REGION"))


def _region(environ: Mapping[str, str]) -> str:
    region = text(environ, "SIGNOZ_REGION") or "us"
    if not re.fullmatch(r"[a-z0-9-]+", region):
        raise SettingsError(f"SIGNOZ_REGION must be the name of a region, got {region!r}; write us, for example")
    return region

"""Opik: traces by OTLP, scores as feedback scores.

Variables: `OPIK_URL_OVERRIDE` (default https://www.comet.com/opik/api; of your own server for instance
http://localhost:5173/api), `OPIK_API_KEY`, `OPIK_WORKSPACE` (both for Comet's cloud), `OPIK_PROJECT_NAME`. It takes
neither metrics nor logs, and OTLP over HTTP only. Source: comet.com/docs/opik/tracing/opentelemetry/overview.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.types import Signals
from ragtrace_exporters.preset import OPENINFERENCE, Preset, client, required, text, url
from ragtrace_exporters.sinks.opik import OpikScores

_CLOUD: Final = "https://www.comet.com/opik/api"


def opik(environ: Mapping[str, str]) -> Signals:
    """Traces and scores for Opik.

    Raises:
        SettingsError: a variable is missing or has a value that cannot be used.
    """
    api = client(environ, _base(environ), _credentials(environ))
    return _preset(environ).signals_of(environ, OpikScores(api, text(environ, "OPIK_PROJECT_NAME")))


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Where the traces go."""
    return _preset(environ).endpoints_of(environ)


def _preset(environ: Mapping[str, str]) -> Preset:
    project = text(environ, "OPIK_PROJECT_NAME")
    headers = {**_credentials(environ), **({"projectName": project} if project else {})}
    return Preset(f"{_base(environ)}/v1/private/otel", headers, dialects=OPENINFERENCE, where=("OPIK_URL_OVERRIDE",))


def _base(environ: Mapping[str, str]) -> str:
    return url(environ, "OPIK_URL_OVERRIDE", default=_CLOUD)


def _credentials(environ: Mapping[str, str]) -> dict[str, str]:
    key, workspace = text(environ, "OPIK_API_KEY"), text(environ, "OPIK_WORKSPACE")
    if _base(environ) == _CLOUD:
        key = required(environ, "opik", "OPIK_API_KEY", advice="copy it from your account, or set OPIK_URL_OVERRIDE")
    pairs = {"Authorization": key, "Comet-Workspace": workspace}
    return {name: value for name, value in pairs.items() if value}

"""Arize Phoenix: traces by OTLP, scores as span annotations.

Variables: `PHOENIX_COLLECTOR_ENDPOINT` (default http://localhost:6006; the HTTP address, as annotations go there too),
`PHOENIX_API_KEY`, `PHOENIX_PROJECT_NAME`, `PHOENIX_CLIENT_HEADERS`. It takes neither metrics nor logs. Sources:
arize.com/docs/phoenix, "Environment variables" and "REST API"; observed with 20.26.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from ragtrace.core import semconv
from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Signals
from ragtrace_exporters.preset import OPENINFERENCE, Preset, client, text, url
from ragtrace_exporters.sinks.phoenix import PhoenixScores

_GRPC_PORT: Final = 4317
_WHERE: Final = "PHOENIX_COLLECTOR_ENDPOINT"


def phoenix(environ: Mapping[str, str]) -> Signals:
    """Traces and scores for Phoenix.

    Raises:
        SettingsError: a variable has a value that cannot be used.
    """
    preset = _preset(environ)
    return preset.signals_of(environ, PhoenixScores(client(environ, preset.base, preset.headers)))


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Where the traces go."""
    return _preset(environ).endpoints_of(environ)


def _preset(environ: Mapping[str, str]) -> Preset:
    base = url(environ, _WHERE, default="http://localhost:6006").removesuffix("/v1/traces")
    if urlsplit(base).port == _GRPC_PORT:
        raise SettingsError(
            f"{_WHERE} must be the HTTP address of Phoenix, as scores go there too, got port {_GRPC_PORT}, which is "
            "that of gRPC; write for instance http://localhost:6006"
        )
    key, project = text(environ, "PHOENIX_API_KEY"), text(environ, "PHOENIX_PROJECT_NAME")
    headers = _client_headers(environ)
    if key:
        headers["authorization"] = f"Bearer {key}"
    resource = {semconv.OI_PROJECT: project} if project else {}
    return Preset(base, headers, dialects=OPENINFERENCE, resource=resource, where=(_WHERE,))


def _client_headers(environ: Mapping[str, str]) -> dict[str, str]:
    from opentelemetry.util.re import parse_env_headers

    return dict(parse_env_headers(text(environ, "PHOENIX_CLIENT_HEADERS"), liberal=True))

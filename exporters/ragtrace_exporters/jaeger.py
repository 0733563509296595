"""Jaeger: traces by OTLP over HTTP; scores are attributes of the spans.

Variables: `JAEGER_OTLP_ENDPOINT` (default http://localhost:4318). It takes neither metrics nor logs. Source:
jaegertracing.io/docs, "APIs", OpenTelemetry Protocol (version 2).
"""

from __future__ import annotations

from collections.abc import Mapping

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.types import Signals
from ragtrace_exporters.preset import Preset, url


def jaeger(environ: Mapping[str, str]) -> Signals:
    """Traces for Jaeger.

    Raises:
        SettingsError: a variable has a value that cannot be used.
    """
    return _preset(environ).signals_of(environ)


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Where the traces go."""
    return _preset(environ).endpoints_of(environ)


def _preset(environ: Mapping[str, str]) -> Preset:
    return Preset(
        url(environ, "JAEGER_OTLP_ENDPOINT", default="http://localhost:4318"), where=("JAEGER_OTLP_ENDPOINT",)
    )

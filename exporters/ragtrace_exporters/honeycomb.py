"""Honeycomb: traces, metrics and evaluation events by OTLP; scores are fields.

Variables: `HONEYCOMB_API_KEY`, `HONEYCOMB_API_ENDPOINT` (default https://api.honeycomb.io; for Europe
https://api.eu1.honeycomb.io), `HONEYCOMB_METRICS_DATASET` (default ragtrace-metrics). Source:
docs.honeycomb.io/send-data/opentelemetry.
"""

from __future__ import annotations

from collections.abc import Mapping

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.types import Signals
from ragtrace_exporters.preset import ALL, Preset, required, text, url


def honeycomb(environ: Mapping[str, str]) -> Signals:
    """Traces, metrics and events for Honeycomb.

    Raises:
        SettingsError: a variable is missing or has a value that cannot be used.
    """
    return _preset(environ).signals_of(environ)


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Where the signals go."""
    return _preset(environ).endpoints_of(environ)


def _preset(environ: Mapping[str, str]) -> Preset:
    base = url(environ, "HONEYCOMB_API_ENDPOINT", default="https://api.honeycomb.io")
    key = required(
        environ, "honeycomb", "HONEYCOMB_API_KEY", advice="create an ingest key in the environment's settings"
    )
    dataset = text(environ, "HONEYCOMB_METRICS_DATASET") or "ragtrace-metrics"
    metrics = {"x-honeycomb-dataset": dataset}
    return Preset(
        base, {"x-honeycomb-team": key}, ALL, signal_headers={"metrics": metrics}, where=("HONEYCOMB_API_ENDPOINT",)
    )

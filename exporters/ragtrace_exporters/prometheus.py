"""Metrics of one process for Prometheus to fetch, without a collector, by OpenTelemetry's exporter for Prometheus.

A page shows one process, and has no exemplars. The metrics of several processes are sent by `otlp`, to a collector or
to the OTLP receiver of Prometheus. Spans and events go where `OTEL_EXPORTER_OTLP_*` says, as with `otlp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Final

from ragtrace.core.endpoints import Endpoint, Page
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Signals
from ragtrace_exporters import otlp
from ragtrace_exporters.preset import text

PORT: Final = 9464
"""The port that OpenTelemetry has for this."""
HOST: Final = "127.0.0.1"
_PORTS: Final = ("RAGTRACE_PROMETHEUS_PORT", "OTEL_EXPORTER_PROMETHEUS_PORT")
_HOSTS: Final = ("RAGTRACE_PROMETHEUS_HOST", "OTEL_EXPORTER_PROMETHEUS_HOST")
_METRICS_OFF: Final = {"OTEL_METRICS_EXPORTER": "none"}
DEFAULT: Final = "default"
"""Origin of a value that is not configured."""


def prometheus(environ: Mapping[str, str]) -> Signals:
    """Serve metrics at `RAGTRACE_PROMETHEUS_HOST` (127.0.0.1) and `RAGTRACE_PROMETHEUS_PORT` (9464), path /metrics.

    OpenTelemetry's own variables, `OTEL_EXPORTER_PROMETHEUS_HOST` and `_PORT`, do as well. If another process has the
    port, a warning says so, and this process's metrics are not served.

    Raises:
        SettingsError: a variable has a value that cannot be used, or the library is missing.
    """
    if find_spec("opentelemetry.exporter.prometheus") is None:
        raise SettingsError(
            "exporter 'prometheus' needs opentelemetry-exporter-prometheus, which is not installed; run: "
            "pip install 'ragtrace-otel[prometheus]'"
        )
    sent = otlp.otlp({**environ, **_METRICS_OFF})
    if text(environ, "OTEL_SDK_DISABLED").lower() == "true":
        return sent
    from ragtrace_exporters.prometheus_page import PageReader

    port, _ = _port(environ)
    return replace(sent, metrics=PageReader(text(environ, *_HOSTS) or HOST, port))


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Return the OTLP endpoints for spans and events. Metrics have none, as they are served on a page."""
    return otlp.endpoints({**environ, **_METRICS_OFF})


def page(environ: Mapping[str, str]) -> Page:
    """Return the address of the page of metrics.

    Raises:
        SettingsError: the configured port is not a port number.
    """
    host = text(environ, *_HOSTS) or HOST
    port, origin = _port(environ)
    shown = f"[{host}]" if ":" in host else host
    return Page(f"http://{shown}:{port}/metrics", origin)


def _port(environ: Mapping[str, str]) -> tuple[int, str]:
    """Return the port of the page of metrics, and the environment variable that sets it."""
    variable = next((name for name in _PORTS if text(environ, name)), DEFAULT)
    value = text(environ, variable) or str(PORT)
    if not value.isdecimal() or not 0 < int(value) < 65536:
        raise SettingsError(f"{variable} must be a port from 1 to 65535, got {value!r}; write {PORT}, for example")
    return int(value), variable

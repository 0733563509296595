"""Metrics for Prometheus to fetch, without a collector: a page of OpenMetrics with exemplars.

All processes of an application on a machine are on one page (`ragtrace_exporters.openmetrics`), so it is one target,
whichever process answers. Spans and events go where `OTEL_EXPORTER_OTLP_*` says, as with `otlp`.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
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
_DIRECTORY: Final = "RAGTRACE_PROMETHEUS_DIR"
_METRICS_OFF: Final = {"OTEL_METRICS_EXPORTER": "none"}
DEFAULT: Final = "default"
"""Origin of a value that is not configured."""


def prometheus(environ: Mapping[str, str]) -> Signals:
    """Serve metrics at `RAGTRACE_PROMETHEUS_HOST` (127.0.0.1) and `RAGTRACE_PROMETHEUS_PORT` (9464), path /metrics.

    OpenTelemetry's own variables, `OTEL_EXPORTER_PROMETHEUS_HOST` and `_PORT`, do as well. Counts go on after a
    restart: they are in `RAGTRACE_PROMETHEUS_DIR`, by default a folder among the temporary files.

    Raises:
        SettingsError: a variable has a value that cannot be used, or the library prometheus_client is missing.
    """
    if find_spec("prometheus_client") is None:
        raise SettingsError(
            "exporter 'prometheus' needs prometheus_client, which is not installed; run: "
            "pip install 'ragtrace-otel[prometheus]'"
        )
    sent = otlp.otlp({**environ, **_METRICS_OFF})
    if text(environ, "OTEL_SDK_DISABLED").lower() == "true":
        return sent
    from ragtrace_exporters.openmetrics.reader import PageReader

    port, _ = _port(environ)
    path, origin = _folder(environ, port)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(path):
            raise PermissionError("it is a link, or others own it or can write to it")
    except OSError as error:
        raise SettingsError(
            f"the processes of this application put their metrics together in {path} "
            f"({'the default' if origin == DEFAULT else origin}), which cannot be: {error}; "
            "set RAGTRACE_PROMETHEUS_DIR to a folder of your own"
        ) from error
    return replace(sent, metrics=PageReader(text(environ, *_HOSTS) or HOST, port, path))


def endpoints(environ: Mapping[str, str]) -> list[Endpoint]:
    """Return the OTLP endpoints for spans and events. Metrics have none, as they are served on a page."""
    return otlp.endpoints({**environ, **_METRICS_OFF})


def page(environ: Mapping[str, str]) -> Page:
    """Return the address of the page of metrics, and the folder through which processes share their metrics.

    Raises:
        SettingsError: the configured port is not a port number.
    """
    host = text(environ, *_HOSTS) or HOST
    port, origin = _port(environ)
    path, folder_origin = _folder(environ, port)
    shown = f"[{host}]" if ":" in host else host
    return Page(f"http://{shown}:{port}/metrics", origin, str(path), folder_origin)


def _port(environ: Mapping[str, str]) -> tuple[int, str]:
    """Return the port of the page of metrics, and the environment variable that sets it."""
    variable = next((name for name in _PORTS if text(environ, name)), DEFAULT)
    value = text(environ, variable) or str(PORT)
    if not value.isdecimal() or not 0 < int(value) < 65536:
        raise SettingsError(f"{variable} must be a port from 1 to 65535, got {value!r}; write {PORT}, for example")
    return int(value), variable


def _folder(environ: Mapping[str, str], port: int) -> tuple[Path, str]:
    """Return the folder through which processes share their metrics, and the environment variable that sets it."""
    given = text(environ, _DIRECTORY)
    if given:
        return Path(given), _DIRECTORY
    who = os.getuid() if hasattr(os, "getuid") else "user"
    shared = Path(tempfile.gettempdir()) / f"ragtrace-prometheus-{who}-{port}"
    # Another user may have created a folder of that name there; that must not keep us from starting.
    own = Path.home() / ".cache" / "ragtrace" / f"prometheus-{port}"
    return (shared if _is_private(shared) else own), DEFAULT


def _is_private(path: Path) -> bool:
    """Return whether *path* is missing, or is a real folder, not a link, that only this user can write to.

    Raises:
        OSError: *path* cannot be looked at.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return True
    if not stat.S_ISDIR(found.st_mode):
        return False
    return not hasattr(os, "getuid") or (
        found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )

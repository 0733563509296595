"""Whether anybody serves the page that Prometheus is to fetch."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from time import monotonic
from typing import Final, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from ragtrace.core.endpoints import Page
from ragtrace.core.errors import SettingsError
from ragtrace.diagnosis.files import room
from ragtrace.diagnosis.otlp_probe import Answer
from ragtrace.diagnosis.question import Question, ask_beside
from ragtrace.telemetry.export.destinations import ENTRY_POINTS

_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
_SERVED_SECONDS: Final = 2.0
"""By then a process that was configured a moment ago serves its page."""
_PAUSE_SECONDS: Final = 0.1
_MOST_BYTES: Final = 64 << 20


def page_of(exporter: str, environ: Mapping[str, str]) -> Page | None:
    """Where the exporter of that name has its page; None if it has none, or its place is not to be found out."""
    points = list(entry_points(group=ENTRY_POINTS, name=exporter))
    try:
        found = getattr(import_module(points[0].module), "page", None) if points else None
        return None if found is None else cast("Callable[[Mapping[str, str]], Page]", found)(environ)
    except (SettingsError, ImportError):  # which is told of where the endpoints are asked for
        return None


def of_page(page: Page, timeout: float, *, running: bool) -> list[Question]:
    """Fetch it, and look at the folder.

    Args:
        running: whether this process should be serving it, or another one of the application.
    """
    where = f"{page.url} (port from {page.origin})"
    folder = f"{page.folder} (from {page.folder_origin})"
    return [
        ask_beside("page of metrics", where, timeout, lambda: _fetched(page, timeout, running=running)),
        ask_beside("folder of metrics", folder, timeout, lambda: _folder(page, running=running)),
    ]


def _folder(page: Page, *, running: bool) -> Answer:
    path, origin = Path(page.folder), "RAGTRACE_PROMETHEUS_DIR"
    if not running and not path.exists():
        return Answer(True, "not made yet")
    return room(path, origin)


def _fetched(page: Page, timeout: float, *, running: bool) -> Answer:
    deadline = monotonic() + min(timeout, _SERVED_SECONDS)
    while True:
        try:
            return _seen(_fetch(_near(page.url), timeout))
        except HTTPError as error:
            error.close()
            return Answer(
                False, f"{error.code} {error.reason}", "look into the application's log, or at what else is there"
            )
        except OSError as error:
            cause = error.reason if isinstance(error, URLError) else error
            refused = isinstance(cause, ConnectionRefusedError)
        if not refused:
            return Answer(False, f"{type(cause).__name__}: {cause}", "look for what hangs at that port (lsof -i)")
        if not running:
            return Answer(True, "nobody serves it now: no process of the application runs here")
        if monotonic() > deadline:
            return Answer(
                False,
                "connection refused: nobody serves it",
                "Prometheus gets nothing; the log says why it is not served",
            )
        threading.Event().wait(_PAUSE_SECONDS)


def _near(url: str) -> str:
    """*url* as this machine reaches it."""
    host = urlsplit(url).hostname or ""
    near = _ANYWHERE.get(host)
    return url if near is None else url.replace(f"[{host}]" if ":" in host else host, near, 1)


def _fetch(url: str, timeout: float) -> str:
    # As a reader gets it: a new counter begins at 0 for whom takes OpenMetrics, and only once.
    request = Request(url, headers={"Accept": "text/plain"})
    with build_opener(ProxyHandler({})).open(request, timeout=timeout) as response:
        return str(response.read(_MOST_BYTES).decode("utf-8", "replace"))


def _seen(body: str) -> Answer:
    target = re.search(r'^target_info\{.*?service_name="([^"]*)"', body, re.MULTILINE)
    series = sum(bool(line) and not line.startswith("#") for line in body.splitlines())
    if target is None:
        return Answer(
            False,
            "another program answers there",
            "set RAGTRACE_PROMETHEUS_PORT to a port that is free, and tell Prometheus",
        )
    return Answer(True, f"{series} series of {target[1]!r}")

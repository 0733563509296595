"""Probes of the page of metrics that Prometheus scrapes, and of its folder."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from ragtrace.core.endpoints import Page
from ragtrace.core.errors import SettingsError
from ragtrace.diagnosis.file_probe import ask_directory
from ragtrace.diagnosis.otlp_probe import exporter_function
from ragtrace.diagnosis.probes import Answer, Probes

_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
_SERVED_SECONDS: Final = 2.0
"""Seconds within which a process that was just configured serves its page."""
_PAUSE_SECONDS: Final = 0.1
_MOST_BYTES: Final = 64 << 20


def page_of(exporter: str, environ: Mapping[str, str]) -> Page | None:
    """Return where the exporter of that name has its page; None: it has none, or its place cannot be found out."""
    try:
        page = exporter_function(exporter, "page")
        found: Page | None = None if page is None else page(environ)
    except (SettingsError, ImportError):  # `probe_endpoints` reports these
        return None
    return found


def probe_page(page: Page, probes: Probes, *, running: bool) -> None:
    """Probe the page, and its folder.

    Args:
        page: the page.
        probes: gets the two probes.
        running: whether this process should be serving the page, rather than another one of the application.
    """
    ask = partial(_ask_page, page, probes.timeout, running=running)
    probes.start("page of metrics", f"{page.url} (port from {page.origin})", ask)
    folder = partial(_ask_folder, Path(page.folder), running=running)
    probes.start("folder of metrics", f"{page.folder} (from {page.folder_origin})", folder)


def _ask_folder(path: Path, *, running: bool) -> Answer:
    if not running and not path.exists():
        return Answer(True, "not made yet")
    return ask_directory(path, "RAGTRACE_PROMETHEUS_DIR")


def _ask_page(page: Page, timeout: float, *, running: bool) -> Answer:
    deadline = monotonic() + min(timeout, _SERVED_SECONDS)
    while True:
        try:
            return _page_answer(_fetch(_near(page.url), timeout))
        except HTTPError as error:
            error.close()
            advice = "look into the application's log, or at what else is there"
            return Answer(False, f"{error.code} {error.reason}", advice)
        except OSError as error:
            cause = error.reason if isinstance(error, URLError) else error
        if not isinstance(cause, ConnectionRefusedError):
            return Answer(False, f"{type(cause).__name__}: {cause}", "look for what hangs at that port (lsof -i)")
        if not running:
            return Answer(True, "not served now: no process of the application runs here")
        if monotonic() > deadline:
            advice = "Prometheus gets nothing; the log says why it is not served"
            return Answer(False, "connection refused: it is not served", advice)
        threading.Event().wait(_PAUSE_SECONDS)


def _near(url: str) -> str:
    """Return *url* with a host by which this machine reaches it."""
    host = urlsplit(url).hostname or ""
    near = _ANYWHERE.get(host)
    return url if near is None else url.replace(f"[{host}]" if ":" in host else host, near, 1)


def _fetch(url: str, timeout: float) -> str:
    # Not as OpenMetrics: there a new counter begins at 0, and only for the first reader.
    request = Request(url, headers={"Accept": "text/plain"})
    with build_opener(ProxyHandler({})).open(request, timeout=timeout) as response:
        return str(response.read(_MOST_BYTES).decode("utf-8", "replace"))


def _page_answer(body: str) -> Answer:
    target = re.search(r'^target_info\{.*?service_name="([^"]*)"', body, re.MULTILINE)
    series = sum(bool(line) and not line.startswith("#") for line in body.splitlines())
    if target is None:
        advice = "set RAGTRACE_PROMETHEUS_PORT to a port that is free, and tell Prometheus"
        return Answer(False, "another program answers there", advice)
    return Answer(True, f"{series} series of {target[1]!r}")

"""Metric reader through which one process serves the metrics of all processes of an application on one page.

The page is OpenMetrics with exemplars for Prometheus, and plain text for a person.
"""

from __future__ import annotations

import contextvars
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from ragtrace.core import semconv
from ragtrace.system.faults import faults, guarded
from ragtrace.system.forks import call_in_child
from ragtrace_exporters.openmetrics.snapshot import Family, Folder, Snapshot, label_name, read_metrics, with_zero_starts

PUBLISH_SECONDS: Final = 2.0
_FIRST_SECONDS: Final = 0.25
"""Time after which the meter provider has registered the reader."""
_PATHS: Final = ("/", "/metrics")
_TIMEOUT_HEADER: Final = "X-Prometheus-Scrape-Timeout-Seconds"


class PageReader(InMemoryMetricReader):
    """Metric reader that serves the metrics of all processes of an application at *host*:*port*.

    Args:
        folder: folder in which the processes share their metrics.
    """

    def __init__(self, host: str, port: int, folder: Path) -> None:
        super().__init__()
        self._address, self._path = (host, port), folder
        self._folder: Folder | None = None
        self._server: ThreadingHTTPServer | None = None
        self._resource: dict[str, str] = {}
        self._last: Snapshot = {}
        # The second is re-entrant: a signal's handler that shuts down may interrupt a flush.
        self._serving, self._collecting = threading.Lock(), threading.RLock()
        self._ended = threading.Event()
        # In an empty context: the thread neither keeps the configuring context alive nor is traced as part of it.
        run = partial(contextvars.Context().run, self._run)
        self._thread = threading.Thread(target=run, name="ragtrace-prometheus", daemon=True)
        self._thread.start()
        call_in_child(self._after_fork)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        """Write this process's last metrics to the shared folder, and stop serving the page of metrics."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(timeout_millis / 1000)
        with guarded("prometheus"):
            self._collected()
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        if self._folder is not None:
            with self._serving:  # no page is being made: the process that serves it from now on adds up alone
                self._folder.close()
        super().shutdown(timeout_millis, **kwargs)  # pyright: ignore[reportUnknownMemberType]

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Write this process's current metrics to the shared folder, from which the page of metrics is made."""
        with guarded("prometheus"):
            self._collected()
        return True

    def page(self, accept: str) -> tuple[bytes, str, set[str]] | None:
        """Return the page of metrics in the format that *accept* asks for, its content type, and its new series.

        None if another process serves the page by now.
        """
        with self._serving:
            # Written before it is served: if this process were killed, the next page would show less, which Prometheus
            # takes for a restart from 0, and would count all of it once more.
            encode, content_type = choose_encoder(accept)
            own, new = self._collected(), set[str]()
            together, folder = own, self._folder
            if folder is not None:
                if not folder.serves:
                    return None
                together = folder.total_with(own)
                if content_type.startswith("application/openmetrics-text"):
                    together, new = with_zero_starts(together, folder.read_shown())
            common = {key: value for key, value in self._resource.items() if key != semconv.SERVICE_INSTANCE}
            registry = CollectorRegistry()
            registry.register(_SnapshotCollector(together, common))
            return encode(registry), content_type, new

    def note_scraped(self, new: set[str]) -> None:
        """Record that Prometheus has fetched the *new* series with value 0, so that the next page has real values."""
        with self._serving:
            if self._folder is not None and new:
                self._folder.write_shown(self._folder.read_shown() | new)

    def _run(self) -> None:
        wait = _FIRST_SECONDS
        while not self._ended.wait(wait):
            wait = PUBLISH_SECONDS
            with guarded("prometheus"):
                self._collected()
                self._serve()

    def _collected(self) -> Snapshot:
        """Collect the metrics of this process, write them to the shared folder, and return them."""
        with self._collecting:  # until they are written: of two threads, the one with older figures is never last
            self._last, resource = read_metrics(self.get_metrics_data(), self._last)
            own = self._last
            self._resource = resource or self._resource
            if self._folder is None and self._resource:  # before, the service is not known
                self._folder = Folder(self._path, self._resource.get(semconv.SERVICE_NAME, ""))
            if self._folder is not None:
                with guarded("prometheus"):
                    self._folder.publish(own)
            return own

    def _serve(self) -> None:
        """Start to serve the page of metrics unless another process of the application already does."""
        if self._server is not None or self._folder is None or not self._folder.try_to_serve():
            return
        try:
            server = _Server(self._address, partial(_Handler, self))
        except OSError as error:
            self._folder.stop_serving()
            faults.warn_once(
                "prometheus port",
                "the metrics cannot be served at %s:%d (%s): nothing of this application will be in Prometheus; end "
                "the other program there, or set RAGTRACE_PROMETHEUS_PORT",
                *(*self._address, error),
            )
            return
        self._server = server
        threading.Thread(target=server.serve_forever, name="ragtrace-prometheus-page", daemon=True).start()

    def _after_fork(self) -> None:
        """Close the forked child's copies of the parent's socket and file locks, which would outlive the parent."""
        self._ended = threading.Event()
        self._ended.set()
        server, self._server = self._server, None
        if server is not None:
            server.socket.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind the server's socket without the base class's look-up of the host name, which may be slow."""
        TCPServer.server_bind(self)


class _Handler(BaseHTTPRequestHandler):
    timeout = 10
    server_version, sys_version = "ragtrace", ""

    def __init__(self, reader: PageReader, *args: Any) -> None:
        self._reader = reader
        super().__init__(*args)

    def do_GET(self) -> None:
        """Answer a GET request with the page of metrics."""
        if urlsplit(self.path).path not in _PATHS:
            self.send_error(404)
            return
        began, page, status = monotonic(), None, 500
        with guarded("prometheus"):
            page = self._reader.page(self.headers.get("Accept", ""))
            status = 503 if page is None else 200
        body, content_type, new = page or (b"", "text/plain", set[str]())
        timeout = float("inf")  # Prometheus discards an answer that comes later
        with suppress(ValueError):
            timeout = float(self.headers.get(_TIMEOUT_HEADER, "inf"))
        with suppress(OSError):  # the client has left
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if monotonic() - began < timeout:
                with guarded("prometheus"):
                    self._reader.note_scraped(new)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name is the base class's)
        """Log nothing, as Prometheus makes many requests."""


class _SnapshotCollector(Collector):
    """Collector for prometheus_client that returns the metrics of a snapshot."""

    def __init__(self, snapshot: Snapshot, resource: Mapping[str, str]) -> None:
        self._snapshot, self._resource = snapshot, resource

    def collect(self) -> Iterable[Metric]:
        info = Metric("target", "Target metadata", "info")
        info.add_sample("target_info", {label_name(key): value for key, value in self._resource.items()}, 1)
        yield info
        yield from map(_metric, self._snapshot.values())


def _metric(family: Family) -> Metric:
    # A series may lack a label that another one has, which the client's own classes of metrics do not allow for.
    made = Metric(family.name, family.help or family.name, family.kind)
    for labels, series in family.series.items():
        own, name = dict(labels), family.name
        exemplars = {
            bucket: Exemplar({"trace_id": at.trace_id, "span_id": at.span_id}, at.value, round(at.at, 3))
            for bucket, at in series.exemplars.items()
        }
        if family.kind == "gauge":
            made.add_sample(name, own, series.values[0])
        elif family.kind == "counter":
            made.add_sample(f"{name}_total", own, series.values[0], exemplar=exemplars.get(0))
        else:
            *counts, total = series.values
            for bucket, bound in enumerate((*family.bounds, float("inf"))):
                le = {"le": "+Inf" if bound == float("inf") else repr(float(bound))}
                so_far = sum(counts[: bucket + 1], 0.0)
                made.add_sample(f"{name}_bucket", {**own, **le}, so_far, exemplar=exemplars.get(bucket))
            made.add_sample(f"{name}_count", own, sum(counts, 0.0))
            made.add_sample(f"{name}_sum", own, total)
    return made

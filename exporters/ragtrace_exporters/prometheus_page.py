"""Page of the metrics of this process, made by OpenTelemetry's exporter for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakMethod

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics.export import MetricReader
from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    make_wsgi_app,  # pyright: ignore[reportUnknownVariableType]
    start_http_server,
)
from prometheus_client.registry import Collector

from ragtrace.system.faults import faults
from ragtrace.system.forks import watch_forks

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client.metrics_core import Metric

_TAKES_REGISTRY: Final = "registry" in signature(PrometheusMetricReader).parameters
"""Whether the reader can have a registry of its own. Older releases add to the one of the process."""
_COLLECT_MS: Final = 60_000.0


class PageReader(PrometheusMetricReader):
    """Metric reader that serves the metrics of this process at *host*:*port*.

    If another process has the port, a warning says what to do, and nothing is served.
    """

    def __init__(self, host: str, port: int) -> None:
        registry = CollectorRegistry() if _TAKES_REGISTRY else REGISTRY
        options: Any = {"registry": registry} if _TAKES_REGISTRY else {}
        # The exporter collects by this public method, with a limit of 10 s; a collection that the SDK breaks off there
        # adds what it has read by then to the next one.
        vars(self)["collect"] = self._collect_all
        super().__init__(**options)
        shown, scraped = CollectorRegistry(), CollectorRegistry()
        collector = _OneAtATime(registry)
        shown.register(collector)
        scraped.register(_ZeroStarts(collector))
        self._server: Any = None
        try:
            self._server, _ = start_http_server(port, host, shown)
            self._server.set_app(_by_client(shown, scraped))
        except OSError as error:
            faults.warn_once(
                "prometheus port",
                "the metrics of this process cannot be served at %s:%d (%s): a page shows one process. For several "
                "processes (workers of gunicorn or uvicorn, forks) send the metrics by exporter='otlp', to a collector "
                "or to Prometheus itself (docs/alerts-and-dashboards.md); for one, end the other program there or set "
                "RAGTRACE_PROMETHEUS_PORT",
                *(host, port, error),
            )
        close = WeakMethod(self._close_copy)
        watch_forks(in_child=lambda: (alive := close()) and alive())

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Return True: a request collects what it shows.

        OpenTelemetry's would collect, and the next page would show these figures, too.
        """
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        """Stop serving the page of metrics."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        super().shutdown(timeout_millis, **kwargs)  # pyright: ignore[reportUnknownMemberType]

    def _collect_all(self, timeout_millis: float = 0.0) -> None:
        """Collect the metrics, with a time limit that is long enough for any."""
        MetricReader.collect(self, max(timeout_millis, _COLLECT_MS))

    def _close_copy(self) -> None:
        """Close the forked child's copy of the socket, with which the port would be taken while the child lives."""
        server, self._server = self._server, None
        if server is not None:
            server.socket.close()


class _OneAtATime(Collector):
    """Collector of all metrics of a registry, for one request at a time.

    OpenTelemetry's collector gives what was collected for one request to whichever of two requests comes first.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry, self._turn = registry, threading.Lock()

    def collect(self) -> Iterable[Metric]:
        """Collect the metrics of the registry."""
        with self._turn:
            return list(self._registry.collect())


class _ZeroStarts(Collector):
    """Collector that gives each counter and histogram as 0 the first time, and with its value from then on.

    Prometheus counts from the first value that it sees of a series: without the 0, what was counted before its first
    scrape would be in no increase, and the first failure of a kind in no alert.
    """

    def __init__(self, metrics: Collector) -> None:
        self._metrics = metrics
        self._seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()

    def collect(self) -> Iterable[Metric]:
        """Collect the metrics; those that were not collected before begin at 0."""
        found = list(self._metrics.collect())
        for metric in found:
            if metric.type in ("counter", "histogram"):
                keys = [(sample.name, tuple(sample.labels.items())) for sample in metric.samples]
                metric.samples = [
                    sample if key in self._seen else sample._replace(value=0.0)
                    for sample, key in zip(metric.samples, keys, strict=True)
                ]
                self._seen.update(keys)
        return found


def _by_client(shown: CollectorRegistry, scraped: CollectorRegistry) -> WSGIApplication:
    """Return an application that answers Prometheus by *scraped* and people, with browser or curl, by *shown*."""
    for_people, for_prometheus = (cast("WSGIApplication", make_wsgi_app(each)) for each in (shown, scraped))

    def page(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        # Whatever scrapes names the version of the format that it reads.
        scrapes = "version=" in environ.get("HTTP_ACCEPT", "")
        return (for_prometheus if scrapes else for_people)(environ, start_response)

    return page

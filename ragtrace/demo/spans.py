"""Where the demo reads its results from: the root spans as they leave the SDK, like any backend would get them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from ragtrace.alerts import Notifier
from ragtrace.core import semconv
from ragtrace.core.types import Signals
from ragtrace.demo.outcome import Destination

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class _Counted(SpanExporter):
    """Hands spans to a backend's exporter and counts those it took."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self.sent = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        self.sent += len(spans) * (result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class RootSpans(SpanExporter):
    """Keeps the attributes of every scored root span by trace id, and passes all spans on to a backend if there is one.

    The backend has a queue of its own: a slow or dead one must not keep the results from the demo.
    """

    def __init__(self, backend: SpanExporter | None, endpoint: str | None = None) -> None:
        self._endpoint = endpoint
        self._backend = _Counted(backend) if backend else None
        self._queue = BatchSpanProcessor(self._backend) if self._backend else None
        self._lock = Lock()
        self._offered = 0
        self._roots: dict[int, Mapping[str, object]] = {}

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Part of the SDK's interface."""
        for span in spans:
            context, attributes = span.get_span_context(), span.attributes or {}
            if context and span.parent is None and semconv.EVAL_STATUS in attributes:
                with self._lock:
                    self._roots[context.trace_id] = attributes
            if self._queue:
                self._offered += 1
                self._queue.on_end(span)
        return SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Part of the SDK's interface."""
        return self._queue.force_flush(timeout_millis) if self._queue else True

    def shutdown(self) -> None:
        """Part of the SDK's interface."""
        if self._queue:
            self._queue.shutdown()  # type: ignore[no-untyped-call]  # in SDK 1.45

    def attributes(self, trace_id: int) -> Mapping[str, object]:
        """Of the root span of that trace; empty if none came."""
        with self._lock:
            return self._roots.get(trace_id, {})

    def destination(self) -> Destination:
        """Where the spans went, after `shutdown`."""
        if not self._backend:
            return Destination(None)
        endpoint = self._endpoint or next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
        return Destination(endpoint, self._backend.sent, self._offered - self._backend.sent)


@dataclass(frozen=True, slots=True)
class Servers:
    """Where telemetry goes that does not go where the environment says."""

    signals: Callable[[], Signals]
    """Made when they are needed: a page of metrics is served from then on."""
    endpoint: str | None = None
    """Where the spans go."""
    notify: tuple[Notifier, ...] = ()
    """Whom the alert tells."""


def signals(servers: Servers | None = None) -> tuple[Signals, RootSpans]:
    """What to hand to `ragtrace.configure`, with our reader before it.

    Without *servers*, OTLP for every signal that has an endpoint in the environment.
    """
    from ragtrace_exporters.otlp import otlp

    configured = otlp(os.environ) if servers is None else servers.signals()
    roots = RootSpans(configured.spans, servers.endpoint if servers else None)
    return replace(configured, spans=roots), roots

"""Recording the same call with light spans, also in a user's provider, and with the SDK's, and what can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

from opentelemetry import baggage, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.types import Signals
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD, WAIT_S

Way: TypeAlias = Literal["light", "borrowed", "sdk"]
"""Light spans in our own provider, the same in a user's, and the SDK's spans, as some processor sees them start."""
WAYS: Final[tuple[Way, ...]] = ("light", "borrowed", "sdk")
Shape: TypeAlias = dict[str, Any]
LINKED: Final = SpanContext(0xC, 0xD, True, TraceFlags(1), TraceState([("linked", "1")]))


class Watching(SpanProcessor):
    """Wants to see spans start."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Part of the SDK's interface."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Part of the SDK's interface: older ones take what the base class returns for a failure."""
        return True


def record(way: Way, application: Callable[[], object]) -> list[ReadableSpan]:
    """The spans of what *application* does, made in that way, in the order of their start."""
    exporter = InMemorySpanExporter()
    if way == "light":
        signals = Signals(spans=exporter, immediate=True)
        ragtrace.configure(service="s", exporter=signals, screen=FakeJudge(GOOD))
    else:
        provider = TracerProvider(resource=Resource.create({"service.name": "s"}), shutdown_on_exit=False)
        provider.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(exporter)))
        if way == "sdk":
            provider.add_span_processor(Watching())
        ragtrace.configure(
            service="s", telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=FakeJudge(GOOD)
        )
    application()
    assert ragtrace.flush(WAIT_S)
    ragtrace.shutdown(WAIT_S)
    return sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)


def identity(context: SpanContext | None) -> Shape | None:
    """All of a span context but its ids."""
    if context is None:
        return None
    return {
        "flags": int(context.trace_flags),
        "state": list(context.trace_state.items()),
        "remote": context.is_remote,
        "valid": context.is_valid,
    }


def events_of(span: ReadableSpan) -> list[tuple[str, dict[str, Any], int]]:
    return [(event.name, dict(event.attributes or {}), event.dropped_attributes) for event in span.events]


def links_of(
    span: ReadableSpan, places: Mapping[int, int]
) -> list[tuple[Shape | None, int | None, dict[str, Any], int]]:
    return [
        (identity(link.context), places.get(link.context.span_id), dict(link.attributes or {}), link.dropped_attributes)
        for link in span.links
    ]


def attributes_of(span: ReadableSpan) -> list[tuple[str, Any]]:
    """In their order; a time, and an id that follows from the span's, only by their presence."""
    return [(key, _steady(key, value)) for key, value in (span.attributes or {}).items()]


def _steady(key: str, value: object) -> object:
    if key == semconv.RESPONSE_TIME_TO_FIRST_CHUNK:
        return "a time"
    return "an id" if key == semconv.EVAL_SCORE_ID or key.endswith(".identifier") else value


def in_order(span: ReadableSpan) -> bool:
    """Whether its events lie between its start and its end."""
    times = [span.start_time or 0, *(event.timestamp for event in span.events), span.end_time or 0]
    return times == sorted(times)


def shapes(spans: Sequence[ReadableSpan]) -> list[Shape]:
    """Everything of the spans but ids and times: parents by their place in the list, traces by their first span's."""
    places = {span.get_span_context().span_id: place for place, span in enumerate(spans)}
    traces = [span.get_span_context().trace_id for span in spans]
    return [
        {
            "name": span.name,
            "kind": span.kind,
            "identity": identity(span.get_span_context()),
            "parent": identity(span.parent),
            "parent place": span.parent and places.get(span.parent.span_id),
            "trace": traces.index(span.get_span_context().trace_id),
            "attributes": attributes_of(span),
            "events": events_of(span),
            "links": links_of(span, places),
            "status": (span.status.status_code, span.status.description),
            "resource": dict(span.resource.attributes),
            "scope": span.instrumentation_scope,
            "dropped": (span.dropped_attributes, span.dropped_events, span.dropped_links),
            "in order": in_order(span),
        }
        for span in spans
    ]


def both(application: Callable[[], object]) -> list[Shape]:
    """What *application* leaves behind, which must be the same in all ways."""
    light, borrowed, sdk = (shapes(record(way, application)) for way in WAYS)
    assert light == sdk
    assert borrowed == sdk
    return light


@contextmanager
def inside(context: Context) -> Iterator[None]:
    """Run a block with *context* current."""
    token = attach(context)
    try:
        yield
    finally:
        detach(token)


def remote(*, flags: int, state: str = "") -> Context:
    """A context as it comes with a request from another process."""
    entries = TraceState([("vendor", state)]) if state else None
    parent = SpanContext(0xA, 0xB, True, TraceFlags(flags), entries)
    return baggage.set_baggage("tenant", "t1", set_span_in_context(NonRecordingSpan(parent)))


Annotate: TypeAlias = Callable[[Span], object]


def annotated(annotate: Annotate, model: str = "m-1") -> Callable[[], object]:
    """An application whose generation annotates its own span."""

    @ragtrace.generate(provider="p")
    def answer(question: str, model: str) -> str:
        annotate(trace.get_current_span())
        return "Paris."

    return lambda: answer("Where?", model)

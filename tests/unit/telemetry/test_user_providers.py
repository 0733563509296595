"""Light spans in a user's provider: only where the SDK's own would look the same to everybody who can see them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import (
    ConcurrentMultiSpanProcessor,
    ReadableSpan,
    SpanLimits,
    SpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span

import ragtrace
from ragtrace.telemetry.spans.fast import FastSpan
from ragtrace.telemetry.spans.span_providers import sampler_traits, sees_ends_only, user_provider
from tests.support.spans import LINKED, WAYS, Watching, annotated, record
from tests.support.watched import ask


class Ended(SpanProcessor):
    """A user's own: keeps what has ended."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.names.append(span.name)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


def provider(*processors: SpanProcessor, **settings: Any) -> TracerProvider:
    made = TracerProvider(shutdown_on_exit=False, **settings)
    for processor in processors:
        made.add_span_processor(processor)
    return made


def spans_inside(users: TracerProvider) -> list[bool]:
    """For each of two calls, whether its span is a light one."""
    seen: list[Span] = []
    answer = annotated(seen.append)
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=users), screen=None)
    answer()
    answer()
    return [isinstance(span, FastSpan) for span in seen]


# --- what is known of the SDK ----------------------------------------------------------------------------------------


def test_limits_and_processors_of_the_sdk_are_found() -> None:
    """Fails if a new SDK keeps them elsewhere: then spans in users' providers would cost three times as much."""
    limits = SpanLimits(max_span_attributes=7)
    users = provider(Ended(), span_limits=limits)
    seen = user_provider(users.get_tracer("x"))
    assert seen is not None
    assert seen.limits is limits
    assert seen.sees_ends_only
    assert (seen.resource, seen.sampler, seen.id_generator) == (users.resource, users.sampler, users.id_generator)


def test_processors_that_export_look_at_ends_only() -> None:
    """The SDK's, ours around them, and a user's that only takes what has ended."""
    exporter = InMemorySpanExporter()
    batch = BatchSpanProcessor(exporter)
    processors = [SimpleSpanProcessor(exporter), batch, ragtrace.HoldProcessor(batch), Ended(), SpanProcessor()]
    assert all(map(sees_ends_only, processors))
    batch.shutdown()  # type: ignore[no-untyped-call,unused-ignore]


def _patched() -> SpanProcessor:
    processor: Any = Ended()
    processor.on_start = print
    return processor  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "make", [Watching, lambda: ragtrace.HoldProcessor(Watching()), mock.MagicMock, object, _patched]
)
def test_anything_else_may_look_at_starts(make: Callable[[], object]) -> None:
    """A processor that does something at the start, alone or wrapped; and whatever cannot be told."""
    assert not sees_ends_only(make())


class Hostile(SpanProcessor):
    """Raises when it is looked at."""

    @property
    def sees_ends_only(self) -> bool:
        raise RuntimeError("not now")

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


def test_a_processor_that_cannot_be_looked_at_gets_the_sdks_spans() -> None:
    """The call is traced all the same."""
    assert spans_inside(provider(Hostile())) == [False, False]


# --- who makes the spans ---------------------------------------------------------------------------------------------


def test_spans_in_a_users_provider_are_light() -> None:
    """With any number of exporting processors, and with none."""
    assert spans_inside(provider(Ended(), SimpleSpanProcessor(InMemorySpanExporter()))) == [True, True]
    assert spans_inside(provider()) == [True, True]


def test_a_processor_that_wants_to_see_starts_gets_the_sdks_spans() -> None:
    """From the first span on."""
    assert spans_inside(provider(Ended(), Watching())) == [False, False]


def test_a_processor_that_is_added_later_counts_from_then_on() -> None:
    """Some are added by instrumentations, long after the start."""
    users, seen = provider(Ended()), list[Span]()
    answer = annotated(seen.append)
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=users), screen=None)
    answer()
    users.add_span_processor(Watching())
    answer()
    assert [isinstance(span, FastSpan) for span in seen] == [True, False]


def test_processors_that_run_side_by_side_get_the_sdks_spans() -> None:
    """What is not the SDK's usual arrangement is left alone."""
    side_by_side = ConcurrentMultiSpanProcessor(num_threads=1)
    assert spans_inside(provider(active_span_processor=side_by_side)) == [False, False]
    side_by_side.shutdown()


def test_spans_that_the_sdk_counts_are_the_sdks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own metrics of spans would miss light ones."""
    monkeypatch.setenv("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "true")
    assert spans_inside(provider(Ended())) == [False, False]


def test_a_provider_of_somebody_elses_making_is_left_alone() -> None:
    """Nothing is known of it."""
    assert user_provider(trace.NoOpTracer()) is None
    assert user_provider(object()) is None


def test_every_processor_sees_every_span() -> None:
    """In the order in which they ended."""
    first, second = Ended(), Ended()
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider(first, second)), screen=None)
    ask("why?")
    assert ragtrace.flush()
    assert first.names == second.names == ["retrieval places", "chat tiny", "invoke_workflow guide"]


# --- samplers --------------------------------------------------------------------------------------------------------


class ByName(TraceIdRatioBased):
    """Inherits the words of another sampler, and does something else."""

    def should_sample(self, parent_context: Context | None, trace_id: int, name: str, *rest: Any, **more: Any) -> Any:
        sampler = ALWAYS_ON if name.startswith("chat") else TraceIdRatioBased(0.0)
        return sampler.should_sample(parent_context, trace_id, name, *rest, **more)


@pytest.mark.parametrize("sampler", [ByName(0.5), ParentBased(ByName(0.5))])
def test_a_sampler_is_not_taken_at_inherited_words(sampler: Any) -> None:
    """It looks at names, whatever the description says that it has inherited."""
    assert not any(sampler_traits(sampler))


def test_a_sampler_that_looks_at_names_is_shown_them() -> None:
    """Only the generation is recorded, under its whole name."""
    ended = Ended()
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(tracer_provider=provider(ended, sampler=ByName(0.5))), screen=None
    )
    ask("why?")
    assert ragtrace.flush()
    assert ended.names == ["chat tiny"]


# --- reading a span --------------------------------------------------------------------------------------------------


def _read(span: Any) -> dict[str, Any]:
    text = json.loads(span.to_json())
    text["events"][0].pop("timestamp")
    text["links"][0].pop("context")
    of_its_own = dict.fromkeys(["context", "parent_id", "start_time", "resource"])
    return {
        "json": {**text, **of_its_own},
        "kind": span.kind,
        "status": (span.status.status_code, span.status.description),
        "events": [event.name for event in span.events],
        "links": [link.context.span_id for link in span.links],
        "dropped": (span.dropped_attributes, span.dropped_events, span.dropped_links),
        "scope": span.instrumentation_scope.name,
        "service": span.resource.attributes["service.name"],
        "same": span.context is span.get_span_context(),
        "over": span.end_time is not None,
        "begun": span.start_time > 0,
        "readable": isinstance(span, ReadableSpan),
    }


def test_a_span_that_runs_can_be_read_like_the_sdks() -> None:
    """Programs and processors read more from the current span than the API promises."""
    found: list[dict[str, Any]] = []

    def annotate(span: Span) -> None:
        span.add_event("e")
        span.add_link(LINKED)
        span.set_status(trace.StatusCode.ERROR, "bad")
        found.append(_read(span))

    for way in WAYS:
        record(way, annotated(annotate))
    assert found[0] == found[1] == found[2]


def test_a_span_that_has_ended_can_still_be_read() -> None:
    """Name, times and what it was told first: texts are not kept for as long as somebody keeps the span."""
    kept: list[Any] = []
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider(Ended())), screen=None)
    annotated(kept.append)()
    assert ragtrace.flush()
    [span] = kept
    assert span.end_time >= span.start_time
    assert span.name == "chat m-1"
    assert span.attributes["gen_ai.operation.name"] == "chat"
    assert "gen_ai.output.messages" not in span.attributes

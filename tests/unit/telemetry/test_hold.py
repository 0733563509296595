"""`HoldProcessor`: keeps the spans that wait for scores, for a bounded time and in bounded number, and no others."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

import ragtrace
from ragtrace.telemetry.spans.hold import hold_processors
from ragtrace.testing import FakeClock
from tests.support.watched import GOOD, WAIT_S, WaitingJudge, ask

STATUS = "ragtrace.eval.status"


class Held:
    """A provider whose exporting processor is wrapped, as the documentation shows."""

    def __init__(
        self, *, capacity: int = 100, sampler: Sampler | None = None, limits: SpanLimits | None = None
    ) -> None:
        self.clock = FakeClock(100.0)
        self.exporter = InMemorySpanExporter()
        self.hold = ragtrace.HoldProcessor(
            SimpleSpanProcessor(self.exporter), seconds=10.0, capacity=capacity, clock=self.clock
        )
        self.provider = TracerProvider(
            sampler=sampler,
            resource=Resource({"service.name": "s"}),
            span_limits=limits,
            shutdown_on_exit=False,
        )
        self.provider.add_span_processor(self.hold)
        self.tracer = self.provider.get_tracer("test", "1.2", "http://schema", {"scope": "attribute"})

    def end(self, name: str, *, expected: bool) -> int:
        """End a span of that name; its id."""
        span = self.tracer.start_span(name)
        span_id = span.get_span_context().span_id
        if expected:
            self.hold.hold_on_end(span_id)
        span.end()
        return span_id

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def status(self, name: str) -> object:
        return (self.spans[name].attributes or {}).get(STATUS)


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.provider.shutdown()


def test_what_is_not_expected_passes_at_once_and_unchanged(held: Held) -> None:
    """The very object, not even a copy."""
    seen: list[ReadableSpan] = []

    class Second(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            seen.append(span)

    held.provider.add_span_processor(Second())
    held.end("other", expected=False)
    assert held.exporter.get_finished_spans() == tuple(seen)
    assert held.exporter.get_finished_spans()[0] is seen[0]
    assert held.hold.held_count == 0


def test_an_expected_span_waits_for_its_scores(held: Held) -> None:
    """And then goes out with them."""
    span_id = held.end("root", expected=True)
    assert (held.spans, held.hold.held_count) == ({}, 1)
    assert held.hold.check_held(span_id)
    assert held.hold.release(span_id, {STATUS: "ok", "ragtrace.eval.x.score": 0.5})
    assert dict(held.spans["root"].attributes or {}) == {STATUS: "ok", "ragtrace.eval.x.score": 0.5}
    assert held.hold.held_count == 0


def test_a_span_is_released_once(held: Held) -> None:
    """A second release, or one of a span that was never held, says so and exports nothing."""
    span_id = held.end("root", expected=True)
    assert held.hold.release(span_id, {})
    assert not held.hold.release(span_id, {})
    assert not held.hold.release(12345, {})
    assert len(held.exporter.get_finished_spans()) == 1


def test_the_released_copy_differs_only_in_the_scores() -> None:
    """128 attributes, dropped counts, events, links, status, parent, state: nothing is evicted and nothing lost."""
    held = Held(limits=SpanLimits(max_span_attributes=128, max_events=3, max_links=2))
    twin = InMemorySpanExporter()
    held.provider.add_span_processor(SimpleSpanProcessor(twin))
    state = trace.TraceState([("vendor", "value")])
    parent = trace.NonRecordingSpan(SpanContext(7, 8, True, TraceFlags(1), state))
    linked = SpanContext(9, 10, True, TraceFlags(1))
    span = held.tracer.start_span(
        "root",
        context=trace.set_span_in_context(parent),
        kind=SpanKind.SERVER,
        attributes={f"key {number}": ("a", "b") if number % 2 else number / 3 for number in range(130)},
        links=[Link(linked, {"of": number}) for number in range(4)],
        start_time=1_000,
    )
    for number in range(5):
        span.add_event(f"event {number}", {"n": number}, timestamp=number)
    span.set_status(Status(StatusCode.ERROR, "said so"))
    held.hold.hold_on_end(span.get_span_context().span_id)
    span.end(end_time=2_000)
    scores: dict[str, str | float] = {STATUS: "ok", "ragtrace.eval.x.score": 0.5}
    assert held.hold.release(span.get_span_context().span_id, scores)

    original, copy = twin.get_finished_spans()[0], held.spans["root"]
    assert (original.dropped_attributes, original.dropped_events, original.dropped_links) == (2, 2, 2)
    assert dict(copy.attributes or {}) == {**(original.attributes or {}), **scores}
    assert len(copy.attributes or {}) == 130
    assert copy.instrumentation_scope == original.instrumentation_scope
    expected, got = encode_spans([original]), encode_spans([copy])
    attributes = got.resource_spans[0].scope_spans[0].spans[0].attributes
    assert [attribute.key for attribute in attributes[128:]] == list(scores)
    del attributes[128:]
    assert got == expected
    held.provider.shutdown()


def test_the_oldest_gives_way_when_there_are_too_many() -> None:
    """It goes out as dropped, with what was noted; the newest is held."""
    held = Held(capacity=2)
    first = held.end("1", expected=True)
    held.hold.set_interim_scores(first, {STATUS: "ok", "ragtrace.eval.x.score": 0.5})
    held.end("2", expected=True)
    held.end("3", expected=True)
    assert dict(held.spans["1"].attributes or {}) == {STATUS: "dropped", "ragtrace.eval.x.score": 0.5}
    assert (set(held.spans), held.hold.held_count) == ({"1"}, 2)
    held.provider.shutdown()


def test_what_waits_too_long_goes_out_as_late_with_what_was_noted(held: Held) -> None:
    """Exactly when its time is over, and not before."""
    noted = held.end("noted", expected=True)
    held.hold.set_interim_scores(noted, {STATUS: "ok", "ragtrace.eval.consistency.score": 0.7})
    held.clock.advance(4.0)
    held.end("later", expected=True)
    held.clock.advance(5.9)
    assert held.hold.release_expired() == 0
    held.clock.advance(0.1)
    assert held.hold.release_expired() == 1
    assert dict(held.spans["noted"].attributes or {}) == {STATUS: "late", "ragtrace.eval.consistency.score": 0.7}
    held.clock.advance(4.0)
    assert held.hold.release_expired() == 1
    assert held.status("later") == "late"
    assert not held.hold.release(noted, {STATUS: "ok"})


def test_a_note_on_a_span_that_is_gone_is_forgotten(held: Held) -> None:
    """It must neither leak nor turn up on another span."""
    span_id = held.end("root", expected=True)
    held.hold.release(span_id, {})
    held.hold.set_interim_scores(span_id, {STATUS: "ok"})
    assert held.hold._kept.get().interim_scores == {}


def test_a_span_that_never_ends_here_is_not_expected_for_ever(held: Held) -> None:
    """Another provider's, or one that its sampler dropped."""
    held.hold.hold_on_end(99)
    assert not held.hold.check_held(99)
    assert held.hold._kept.get().expected == set()


def test_force_flush_gives_scoring_time_then_lets_everything_go(held: Held) -> None:
    """What could not be scored in that time is late, never stuck: its scores may still come."""
    scored, unscored = held.end("scored", expected=True), held.end("unscored", expected=True)
    given: list[float] = []

    def finish(seconds: float) -> bool:
        given.append(seconds)
        held.hold.release(scored, {STATUS: "ok"})
        return False

    held.hold.before_flush = finish
    assert not held.provider.force_flush(2_000)
    assert [round(seconds, 1) for seconds in given] == [2.0]
    assert (held.status("scored"), held.status("unscored")) == ("ok", "late")
    assert unscored
    held.hold.before_flush = None
    assert held.provider.force_flush(2_000)


def test_a_flush_after_the_runtime_has_ended_promises_no_scores(held: Held) -> None:
    """Such as the last one of a shutdown, for a call that was still being scored: nobody sends them later."""
    held.end("root", expected=True)
    assert held.provider.force_flush(2_000)
    assert held.status("root") == "timeout"


def test_shutdown_lets_everything_go_first(held: Held) -> None:
    """And nothing is expected of it afterwards."""
    held.end("root", expected=True)
    assert held.hold in hold_processors()
    held.provider.shutdown()
    assert held.status("root") == "timeout"  # no scores follow
    assert held.hold not in hold_processors()
    held.provider.shutdown()


class RecordOnly(Sampler):
    """Records without sampling."""

    def should_sample(self, *args: object, **kwargs: object) -> SamplingResult:
        return SamplingResult(Decision.RECORD_ONLY)

    def get_description(self) -> str:
        return "RecordOnly"


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, RecordOnly()], ids=["off", "record only"])
def test_an_unsampled_span_is_never_held(sampler: Sampler) -> None:
    """It would be exported by nobody, and hold a place."""
    held = Held(sampler=sampler)
    held.end("root", expected=True)
    assert held.hold.held_count == 0
    held.provider.shutdown()


def test_one_processor_that_fails_does_not_stop_the_release_of_the_others() -> None:
    """What comes after the one that the exporter choked on still goes out."""

    class Choking(SpanProcessor):
        def __init__(self) -> None:
            self.passed: list[str] = []

        def on_end(self, span: ReadableSpan) -> None:
            if span.name == "1":
                raise ValueError("choked")
            self.passed.append(span.name)

    inner = Choking()
    hold = ragtrace.HoldProcessor(inner)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(hold)
    for name in ("1", "2", "3"):
        span = provider.get_tracer("t").start_span(name)
        hold.hold_on_end(span.get_span_context().span_id)
        span.end()
    assert provider.force_flush()
    assert inner.passed == ["2", "3"]
    provider.shutdown()


def test_the_wrapped_processor_sees_spans_start(held: Held) -> None:
    """With the context they start in."""
    seen: list[tuple[str, object]] = []

    class Inner(SpanProcessor):
        def on_start(self, span: Span, parent_context: otel_context.Context | None = None) -> None:
            seen.append((span.name, otel_context.get_value("mine", parent_context)))

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(ragtrace.HoldProcessor(Inner()))
    provider.get_tracer("t").start_span("x", context=otel_context.set_value("mine", 1)).end()
    assert seen == [("x", 1)]
    provider.shutdown()


def test_a_processor_that_is_dropped_is_forgotten() -> None:
    """No test, and no reload, leaves a processor behind that every call must ask."""
    gc.collect()
    before = len(hold_processors())
    hold = ragtrace.HoldProcessor(SimpleSpanProcessor(InMemorySpanExporter()))
    assert len(hold_processors()) == before + 1
    del hold
    gc.collect()
    assert len(hold_processors()) == before


def test_processors_may_come_and_go_while_others_are_looked_up() -> None:
    """`holds` is asked for every call, by any thread."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def look() -> None:
        try:
            while not stop.is_set():
                hold_processors()
        except BaseException as error:
            errors.append(error)

    looker = threading.Thread(target=look)
    looker.start()
    for _ in range(300):
        kept = [ragtrace.HoldProcessor(SimpleSpanProcessor(InMemorySpanExporter())) for _ in range(3)]
        kept[0].shutdown()
    stop.set()
    looker.join()
    assert errors == []


# --- in a user's own provider ----------------------------------------------------------------------------------------


def users_provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(ragtrace.HoldProcessor(BatchSpanProcessor(exporter)))
    return provider


def test_a_users_own_provider_gets_the_scores_on_the_root() -> None:
    """With one line, and spans of other instrumentations are untouched."""
    exporter = InMemorySpanExporter()
    provider = users_provider(exporter)
    ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), screen=ragtrace.EmbeddedJudge())
    with provider.get_tracer("web").start_as_current_span("GET /ask"):
        ask("where?")
    assert ragtrace.flush()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"GET /ask", "invoke_workflow guide", "retrieval places", "chat tiny"}
    root = spans["invoke_workflow guide"]
    assert root.parent is not None
    assert root.parent.span_id == (spans["GET /ask"].get_span_context() or trace.INVALID_SPAN_CONTEXT).span_id
    assert (root.attributes or {})[STATUS] == "ok"
    assert "ragtrace.eval.consistency.score" in (root.attributes or {})
    provider.shutdown()


def test_a_flush_of_the_users_provider_waits_for_the_scores() -> None:
    """A serverless handler that flushes its own provider loses none, also after ragtrace was configured again."""
    exporter = InMemorySpanExporter()
    provider = users_provider(exporter)
    for _ in range(2):
        ragtrace.configure(telemetry=ragtrace.TelemetryOptions(tracer_provider=provider))
        ask("where?")
        assert provider.force_flush(int(WAIT_S * 1000))
    roots = [span.attributes or {} for span in exporter.get_finished_spans() if STATUS in (span.attributes or {})]
    assert [root[STATUS] for root in roots] == ["ok", "ok"]
    provider.shutdown()


def test_a_late_judge_misses_the_span_but_not_the_carrier() -> None:
    """The span goes out in time with the screen's scores, the judge's follow on a span linked to it."""
    clock, judge = FakeClock(), WaitingJudge(GOOD)
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    hold = ragtrace.HoldProcessor(SimpleSpanProcessor(exporter), seconds=10.0, clock=clock)
    provider.add_span_processor(hold)
    ragtrace.configure(
        telemetry=ragtrace.TelemetryOptions(tracer_provider=provider), judge=judge, sampling=ragtrace.Sampling(rate=1.0)
    )
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    clock.advance(10.0)
    hold.release_expired()
    root = next(span for span in exporter.get_finished_spans() if STATUS in (span.attributes or {}))
    assert (root.attributes or {})[STATUS] == "late"
    assert "ragtrace.eval.consistency.score" in (root.attributes or {})
    judge.open()
    assert ragtrace.flush()
    carrier = exporter.get_finished_spans()[-1]
    assert carrier.name == "evaluate guide"
    assert carrier.parent is None
    assert [link.context for link in carrier.links] == [root.get_span_context()]
    assert (carrier.attributes or {})["ragtrace.eval.evaluator"] == "waiting@1"
    provider.shutdown()

"""Light spans are the SDK's spans in everything but their cost: the same calls are recorded both ways and compared."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import get_current
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    StatusCode,
)

import ragtrace
from ragtrace.telemetry.spans import fast
from ragtrace.telemetry.spans.fast import FastSpan
from tests.support.application import QUESTION
from tests.support.otlp import HttpReceiver
from tests.support.spans import LINKED, WAYS, Shape, Way, annotated, both, identity, inside, record, remote
from tests.support.watched import WAIT_S, ask, watch


@pytest.fixture(autouse=True)
def _one_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has one id, but here are two providers."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=1,team=search")


# --- the same spans --------------------------------------------------------------------------------------------------


def test_the_ways_differ() -> None:
    """Otherwise this file would compare the SDK's spans with themselves."""
    seen: list[Span] = []
    for way in WAYS:
        record(way, annotated(seen.append))
    assert [isinstance(span, FastSpan) for span in seen] == [True, True, False]
    assert all(isinstance(span, Span) for span in seen)


def test_a_call_is_recorded_alike() -> None:
    """Three spans: names, kinds, attributes in their order, parents, trace, resource and scope."""
    spans = both(lambda: ask("why?"))
    assert [span["name"] for span in spans] == ["invoke_workflow guide", "retrieval places", "chat tiny"]
    assert [span["parent place"] for span in spans] == [None, 0, 0]
    assert {span["resource"]["team"] for span in spans} == {"search"}


def test_the_order_of_export_is_alike() -> None:
    """Children before their parent, the held root last."""
    exporters: list[list[str]] = []
    for way in WAYS:
        spans = record(way, lambda: ask("why?"))
        exporters.append([span.name for span in sorted(spans, key=lambda span: span.end_time or 0)])
    assert exporters[0] == exporters[1] == exporters[2]


def test_a_failing_call_is_recorded_alike() -> None:
    """Status, error type, and the exception with its stack trace."""

    @ragtrace.trace
    def fails(question: str) -> str:
        raise LookupError(question)

    def application() -> None:
        with pytest.raises(LookupError):
            fails("why?")

    [span] = both(application)
    assert span["status"] == (StatusCode.ERROR, "why?")
    assert [name for name, _, _ in span["events"]] == ["exception"]


def test_a_stream_is_recorded_alike() -> None:
    """The span begins with the first step, and is current only inside the generator's own code."""

    @ragtrace.generate
    def stream(question: str) -> Iterator[str]:
        yield "Par"
        trace.get_current_span().add_event("half")
        yield "is."

    def application() -> None:
        for _ in stream("Where?"):
            assert not trace.get_current_span().get_span_context().is_valid

    [span] = both(application)
    assert [name for name, _, _ in span["events"]] == ["half"]


# --- annotations by the user -----------------------------------------------------------------------------------------


def test_attributes_of_the_user_arrive() -> None:
    """One at a time and several at once, of every type, in the order in which they were set."""

    def annotate(span: Span) -> None:
        span.set_attribute("a", 1)
        span.set_attributes({"b": [1.5, 2.5], "c": ("x", "y"), "d": True})
        span.set_attribute("a", "again")

    [span] = both(annotated(annotate))
    assert {"a": "again", "b": (1.5, 2.5), "c": ("x", "y"), "d": True}.items() <= dict(span["attributes"]).items()


def test_threads_that_change_a_new_span_at_once_change_the_same() -> None:
    """Each is the first to touch the span, as it believes; nothing stays behind when all have."""
    captured, threads, usual = watch(), 6, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(threads) as pool:
            for _ in range(300):
                ready = threading.Barrier(threads)

                def annotate(number: int, span: Span, ready: threading.Barrier = ready) -> None:
                    ready.wait()
                    span.set_attribute(f"thread.{number}", number)

                with ragtrace.call("Where?"):
                    list(pool.map(annotate, range(threads), repeat(trace.get_current_span())))
    finally:
        sys.setswitchinterval(usual)
    assert ragtrace.flush(10)
    found = [span.attributes or {} for span in captured.roots()]
    assert len(found) == 300
    assert all({f"thread.{number}": number for number in range(threads)}.items() <= each.items() for each in found)
    assert not fast._keeping


def test_an_attribute_is_what_it_was_when_it_was_set() -> None:
    """A list that changes afterwards does not change the span."""
    values = ["x"]

    def annotate(span: Span) -> None:
        values[:] = ["x"]
        span.set_attribute("a", values)
        span.add_event("e", {"b": values})
        values.append("late")

    [span] = both(annotated(annotate))
    assert dict(span["attributes"])["a"] == ("x",)
    assert span["events"] == [("e", {"b": ("x",)}, 0)]


def test_the_user_may_replace_what_ragtrace_said_at_the_start() -> None:
    """A later word of the user counts, as on any span."""
    [span] = both(annotated(lambda span: span.set_attribute("gen_ai.provider.name", "mine")))
    assert dict(span["attributes"])["gen_ai.provider.name"] == "mine"


def test_a_name_that_the_user_gave_stays() -> None:
    """Ragtrace names its span at the start, not at the end."""
    [span] = both(annotated(lambda span: span.update_name("mine")))
    assert span["name"] == "mine"


def test_a_span_that_is_touched_early_still_knows_its_model() -> None:
    """Arguments are read in the background, unless somebody looks at the span before."""
    names: list[str] = []
    [span] = both(annotated(lambda span: names.append(getattr(span, "name", "")), model="m-2"))
    assert names == ["chat m-2"] * 3
    assert dict(span["attributes"])["gen_ai.request.model"] == "m-2"


def test_what_the_span_knows_can_be_read_while_it_runs() -> None:
    """Some instrumentations read the attributes of the current span: they see what an SDK span would show them."""
    seen: list[tuple[dict[str, Any], SpanKind, bool]] = []

    def annotate(span: Span) -> None:
        span.set_attribute("a", 1)
        current: Any = span
        seen.append((dict(current.attributes), current.kind, span.is_recording()))

    both(annotated(annotate))
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][0]["gen_ai.operation.name"] == "chat"


def test_attributes_that_cannot_be_are_dropped_alike(caplog: pytest.LogCaptureFixture) -> None:
    """An empty key, a key that is no string, a value that is no attribute."""

    def annotate(span: Span) -> None:
        annotate: Any = span.set_attribute
        annotate("", 1)
        annotate(5, 1)
        annotate("object", threading)

    with caplog.at_level(logging.CRITICAL):
        both(annotated(annotate))


def test_events_of_the_user_arrive() -> None:
    """With attributes and without, at their own time and at the present."""
    [span] = both(annotated(lambda span: [span.add_event("a"), span.add_event("b", {"c": ("d",)})]))
    assert span["events"] == [("a", {}, 0), ("b", {"c": ("d",)}, 0)]


@pytest.mark.parametrize("timestamp", [0, 7])
def test_an_event_keeps_the_time_it_was_given(timestamp: int) -> None:
    """Zero is a time as well."""
    for way in WAYS:
        [span] = record(way, annotated(lambda span: span.add_event("a", timestamp=timestamp)))
        assert [event.timestamp for event in span.events] == [timestamp]


def test_links_of_the_user_arrive() -> None:
    """A link to nowhere is left out, unless it says something."""

    def annotate(span: Span) -> None:
        span.add_link(LINKED, {"of": ["a"]})
        span.add_link(trace.INVALID_SPAN_CONTEXT)
        span.add_link(trace.INVALID_SPAN_CONTEXT, {"why": "kept"})

    [span] = both(annotated(annotate))
    nowhere = identity(trace.INVALID_SPAN_CONTEXT)
    assert span["links"] == [(identity(LINKED), None, {"of": ("a",)}, 0), (nowhere, None, {"why": "kept"}, 0)]


def test_exceptions_that_the_user_records_arrive() -> None:
    """Type with its module, message, stack trace; more attributes replace what they name."""

    def annotate(span: Span) -> None:
        try:
            json.loads("{")
        except ValueError as error:
            span.record_exception(error)
        span.record_exception(ValueError("x"), {"exception.message": "mine", "more": 1}, escaped=True)

    [span] = both(annotated(annotate))
    recorded = [(attributes["exception.type"], attributes["exception.message"]) for _, attributes, _ in span["events"]]
    assert recorded[0][0] == "json.decoder.JSONDecodeError"
    assert recorded[1] == ("ValueError", "mine")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([(StatusCode.ERROR, "bad")], (StatusCode.ERROR, "bad")),
        ([(StatusCode.OK, None)], (StatusCode.OK, None)),
        ([(StatusCode.OK, None), (StatusCode.ERROR, "late")], (StatusCode.OK, None)),
        ([(StatusCode.ERROR, "bad"), (StatusCode.UNSET, None)], (StatusCode.ERROR, "bad")),
        ([(trace.Status(StatusCode.ERROR, "bad"), None)], (StatusCode.ERROR, "bad")),
        ([(trace.Status(StatusCode.UNSET), None)], (StatusCode.UNSET, None)),
    ],
)
def test_a_status_of_the_user_arrives(settings: list[Any], expected: tuple[StatusCode, str | None]) -> None:
    """OK is final, and nothing goes back to unset."""
    [span] = both(annotated(lambda span: [span.set_status(*arguments) for arguments in settings]))
    assert span["status"] == expected


def test_a_span_that_the_user_ends_is_ended() -> None:
    """It goes out as it is then, and its scores follow on a carrier; what comes later is refused and never raises."""

    def annotate(span: Span) -> None:
        span.set_attribute("a", 1)
        span.end()
        assert not span.is_recording()
        span.set_attribute("late", 1)

    span, carrier = both(annotated(annotate))
    assert span["name"] == "chat m-1"
    assert dict(span["attributes"]).keys() & {"a", "late"} == {"a"}
    assert carrier["name"].startswith("evaluate")


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_too_late_is_said(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    """An ended span refuses attributes: nothing is lost without a word."""
    kept: list[Span] = []
    record(way, annotated(kept.append))
    with caplog.at_level(logging.WARNING):
        kept[0].set_attribute("late", 1)
    assert "ended span" in caplog.text


def test_threads_may_annotate_one_span_at_the_same_time() -> None:
    """Also when none of them has touched it before: nothing gets lost."""
    barrier = threading.Barrier(8)

    def annotate(span: Span) -> None:
        def one(number: int) -> None:
            barrier.wait(WAIT_S)
            span.set_attribute(f"key {number}", number)
            span.add_event("e")

        threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)

    for _ in range(10):
        [span] = record("light", annotated(annotate))
        assert {f"key {number}" for number in range(8)} <= set(span.attributes or {})
        assert len(span.events) == 8


# --- other tracers ---------------------------------------------------------------------------------------------------


def test_spans_of_other_tracers_nest_below_ours() -> None:
    """With the right parent and trace, the flags and the trace state that came with the request."""

    def application(found: list[ReadableSpan]) -> None:
        exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("another")

        @ragtrace.trace
        def around(question: str) -> str:
            with tracer.start_as_current_span("client", links=[Link(LINKED)]):
                return ask(question)

        with inside(remote(flags=1, state="s")):
            around("why?")
        found.extend(exporter.get_finished_spans())

    for way in WAYS:
        others: list[ReadableSpan] = []
        spans = {span.name: span for span in record(way, lambda others=others: application(others))}
        [client] = others
        outer, inner = spans[next(name for name in spans if name.endswith("around"))], spans["invoke_workflow guide"]
        assert client.parent is not None
        assert client.parent.span_id == outer.get_span_context().span_id
        assert inner.parent == client.get_span_context()
        assert {span.get_span_context().trace_id for span in (*spans.values(), client)} == {0xA}
        assert identity(client.get_span_context()) == identity(outer.get_span_context())


def test_baggage_passes_through_untouched() -> None:
    """What travels in the context is there inside the function, and the context outside is the same afterwards."""
    seen: list[Mapping[str, object]] = []

    @ragtrace.trace
    def application(question: str) -> str:
        seen.append(baggage.get_all())
        return "yes"

    for way in WAYS:
        with inside(remote(flags=1)):
            before = get_current()
            record(way, lambda: application("why?"))
            assert get_current() is before
    assert seen == [{"tenant": "t1"}] * 3


# --- a processor that somebody adds ----------------------------------------------------------------------------------

PROGRAM: Final = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor
import ragtrace
from tests.support.application import QUESTION, ask

class Watching(SpanProcessor):
    def on_start(self, span, parent_context=None):
        span.set_attribute("seen", "at the start")

@ragtrace.trace(name="outer")
def outer(question):
    sys.stdout.write(type(trace.get_current_span()).__module__)
    return ask(question)

ragtrace.configure(service="s", telemetry=ragtrace.TelemetryOptions(set_global=True))
if sys.argv[1] == "sdk":
    trace.get_tracer_provider().add_span_processor(Watching())
outer(QUESTION)
ragtrace.shutdown()
"""


def _program(way: Way, receiver: HttpReceiver) -> tuple[str, list[Shape]]:
    """Which module made the spans, and the spans as they arrived, without ids and times."""
    receiver.clear()
    environ = {**receiver.environ, "OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=1", "PATH": "/usr/bin:/bin"}
    made_by = subprocess.run(
        [sys.executable, "-c", PROGRAM, way],
        env=environ,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    ).stdout
    spans = sorted(receiver.spans, key=lambda span: span.start_ns)
    names = {span.span_id: span.name for span in spans}
    found: list[Shape] = []
    for span in spans:
        shape = {field: value for field, value in vars(span).items() if not field.endswith(("_ns", "_id"))}
        shape["attributes"] = {key: value for key, value in span.attributes.items() if key != "seen"}
        found.append(
            {**shape, "parent": names.get(span.parent_span_id), "one trace": span.trace_id == spans[0].trace_id}
        )
    if way == "sdk":
        assert {span.attributes.get("seen") for span in spans} == {"at the start"}
    return made_by, found


def test_a_processor_that_is_added_sees_sdk_spans(http_receiver: HttpReceiver) -> None:
    """It might want to see spans start, and change them: from then on the SDK makes them, equal to the light ones."""
    light_by, light = _program("light", http_receiver)
    sdk_by, sdk = _program("sdk", http_receiver)
    assert (light_by, sdk_by) == ("ragtrace.telemetry.spans.fast", "opentelemetry.sdk.trace")
    assert len(light) == 4
    assert QUESTION in str(light)
    assert light == sdk

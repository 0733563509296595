"""A finished call is gone when it has been dealt with: nothing of it waits for the collector of cycles."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import ragtrace
from ragtrace.core.types import Signals
from ragtrace.telemetry.spans.fast import FastSpan
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD, WAIT_S, WaitingJudge, ask, watch

CALLS = 50


class Nowhere(SpanExporter):
    """Keeps no span."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


@ragtrace.generate
def stream(question: str) -> Iterator[str]:
    yield "Paris "
    yield "is big."


@ragtrace.generate
def annotated(question: str) -> str:
    trace.get_current_span().set_attribute("tenant", "t1")
    return "Paris is big."


@ragtrace.trace(name="rude")
def ends_its_span(question: str) -> str:
    trace.get_current_span().end()
    return "Paris is big."


APPLICATIONS: dict[str, Callable[[], object]] = {
    "a call": lambda: ask("where?"),
    "a stream": lambda: list(stream("where?")),
    "a span that the user touched": lambda: annotated("where?"),
    "a span that the user ended": lambda: ends_its_span("where?"),
}


def left_after(act: Callable[[], object]) -> int:
    """Objects that only the collector of cycles finds, after *act* and all that follows from it."""
    gc.collect()
    gc.disable()
    try:
        act()
        return gc.collect()
    finally:
        gc.enable()


@pytest.mark.parametrize("screen", [FakeJudge(GOOD), None], ids=["scored", "unscored"])
@pytest.mark.parametrize("application", APPLICATIONS.values(), ids=APPLICATIONS.keys())
def test_a_finished_call_leaves_no_cycle(application: Callable[[], object], screen: FakeJudge | None) -> None:
    """Its texts are freed at once, not whenever the oldest generation is collected."""
    ragtrace.configure(exporter=Signals(spans=Nowhere()), screen=screen)

    def traffic() -> None:
        for _ in range(CALLS):
            application()
        assert ragtrace.flush(WAIT_S)

    traffic()
    assert left_after(traffic) < CALLS


def test_a_call_for_which_there_was_no_room_leaves_no_cycle() -> None:
    """Under overload memory is needed most."""
    judge = WaitingJudge(blocking=True)
    watch(screen=judge, limits=ragtrace.Limits(capacity=20))
    for _ in range(400):
        ask("where?")
    assert judge.begun.wait(WAIT_S)
    assert left_after(lambda: [ask("where?") for _ in range(CALLS)]) < CALLS
    judge.open()


def test_an_ended_span_still_says_what_it_was_told() -> None:
    """Who kept it may read its name and its first attributes, as of the SDK's spans."""
    spans: list[Any] = []

    @ragtrace.trace(name="kept")
    def keep(question: str) -> str:
        spans.append(trace.get_current_span())
        return "Paris is big."

    watch(screen=FakeJudge(GOOD))
    keep("where?")
    assert ragtrace.flush(WAIT_S)
    assert isinstance(spans[0], FastSpan)
    assert spans[0].name == "invoke_workflow kept"
    assert spans[0].attributes["gen_ai.workflow.name"] == "kept"

"""The matrix: every kind of function, however its caller treats it, behaves as undecorated and leaves one span."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode, get_current_span

import ragtrace
from ragtrace.testing import Captured
from tests.functions import KINDS, PIECES, BoomError, KindOfFunction, Reader

Play = Callable[[Reader], None]


def normal(reader: Reader) -> None:
    reader.drain()


def send(reader: Reader) -> None:
    reader.next()
    reader.send("hello")
    reader.drain()


def send_too_early(reader: Reader) -> None:
    reader.send("hello")
    reader.drain()


def throw_caught(reader: Reader) -> None:
    reader.next()
    reader.throw(LookupError("x"))
    reader.drain()


def throw_uncaught(reader: Reader) -> None:
    reader.next()
    reader.throw(BoomError("thrown"))
    reader.drain()


def throw_exit(reader: Reader) -> None:
    reader.next()
    reader.throw(GeneratorExit())
    reader.drain()


def early_close(reader: Reader) -> None:
    reader.next()
    reader.close()
    reader.close()
    reader.drain()


def dropped(reader: Reader) -> None:
    reader.next()
    reader.drop()


@pytest.fixture
def captured() -> Iterator[Captured]:
    captured = Captured()
    ragtrace.configure(exporter=captured.signals, screen=None)
    yield captured
    ragtrace.shutdown()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def each(kinds: list[KindOfFunction]) -> Any:
    return pytest.mark.parametrize("kind", kinds, ids=[kind.name for kind in kinds])


STREAMS = [kind for kind in KINDS if kind.stream]
COROUTINES = [kind for kind in KINDS if kind.asynchronous]


def one_span(captured: Captured) -> ReadableSpan:
    assert ragtrace.flush()
    assert len(captured.spans) == 1, [span.name for span in captured.spans]
    span = captured.spans[0]
    assert span.end_time is not None
    assert span.start_time is not None
    assert span.end_time >= span.start_time
    return span


def answer_on(span: ReadableSpan) -> str:
    return str((span.attributes or {})["gen_ai.output.messages"])


@each(KINDS)
@pytest.mark.parametrize(
    ("play", "streamed", "outcome"),
    [
        (normal, "one two three", "ok"),
        (send, None, "ok"),
        (send_too_early, "one two three", "ok"),
        (throw_caught, None, "ok"),
        (throw_uncaught, "one ", "tests.functions.BoomError"),
        (throw_exit, "one ", "abandoned"),
        (early_close, "one ", "abandoned"),
        (dropped, "one ", "abandoned"),
    ],
)
def test_a_caller_sees_no_difference(
    kind: KindOfFunction,
    play: Play,
    streamed: str | None,
    outcome: str,
    captured: Captured,
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Values, exceptions and return values are those of the plain function, and exactly one span ends, rightly."""
    undecorated, decorated = kind.twins()
    expected, seen = (Reader(kind, function, "q", loop) for function in (undecorated, decorated))
    play(expected)
    play(seen)
    assert seen.log == expected.log
    span = one_span(captured)
    attributes = span.attributes or {}
    if not kind.stream:
        assert span.status.status_code is StatusCode.UNSET
        return
    if kind.iterator and play in (throw_uncaught, throw_exit):  # it has no method for that
        streamed, outcome = "one two three", "ok"
    assert span.status.status_code is (StatusCode.ERROR if "BoomError" in outcome else StatusCode.UNSET)
    assert attributes.get("error.type") == (outcome if "BoomError" in outcome else None)
    assert attributes["ragtrace.abandoned"] is (outcome == "abandoned")
    if streamed is not None:
        assert streamed in answer_on(span)


@each(KINDS)
def test_an_exception_of_the_function_is_raised_untouched_and_recorded(
    kind: KindOfFunction, captured: Captured, loop: asyncio.AbstractEventLoop
) -> None:
    """The user's exception comes out as it is, and the span is an error of that type."""
    expected, seen = (Reader(kind, function, "boom", loop) for function in kind.twins())
    expected.drain()
    seen.drain()
    assert seen.log == expected.log
    assert any(entry[1:3] == ("raised", BoomError) for entry in seen.log)
    span = one_span(captured)
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "tests.functions.BoomError"
    assert [event.name for event in span.events] == ["exception"]


@each(KINDS)
def test_a_keyboard_interrupt_goes_through_and_ends_the_span(
    kind: KindOfFunction, captured: Captured, loop: asyncio.AbstractEventLoop
) -> None:
    """Ctrl-C is neither swallowed nor leaves a span open."""
    expected, seen = (Reader(kind, function, "interrupt", loop) for function in kind.twins())
    expected.drain()
    seen.drain()
    assert seen.log == expected.log
    assert any(entry[1:3] == ("raised", KeyboardInterrupt) for entry in seen.log)
    assert (one_span(captured).attributes or {})["error.type"] == "KeyboardInterrupt"


@each(KINDS)
def test_inspection_sees_no_difference(kind: KindOfFunction) -> None:
    """Signature, name, documentation and every `inspect.is...` are those of the plain function."""
    undecorated, decorated = kind.twins()
    assert inspect.signature(decorated) == inspect.signature(undecorated)
    for question in (
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
        inspect.isfunction,
        inspect.ismethod,
        inspect.isroutine,
        asyncio.iscoroutinefunction if not hasattr(inspect, "markcoroutinefunction") else inspect.iscoroutinefunction,
    ):
        assert question(decorated) == question(undecorated), question
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        assert getattr(decorated, name, None) == getattr(undecorated, name, None)


@each(KINDS)
def test_a_result_can_be_consumed_by_another_thread(
    kind: KindOfFunction, captured: Captured, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """Each step may happen on a thread of its own; the context is neither lost nor leaked, and nothing is logged."""
    expected, seen = (Reader(kind, function, "q", loop) for function in kind.twins())
    for reader in (expected, seen):
        for _ in range(len(PIECES) + 1):
            in_thread(reader.next)
    assert seen.log == expected.log
    assert not get_current_span().get_span_context().is_valid
    one_span(captured)
    telling = {"asyncio", "opentelemetry.context", "ragtrace"}  # an exporter of a test before may log as well
    assert [record.getMessage() for record in caplog.records if record.name in telling] == []


@each(COROUTINES)
def test_a_coroutine_can_be_resumed_by_another_thread(kind: KindOfFunction, captured: Captured) -> None:
    """A coroutine stepped by hand, each step on another thread, ends one span."""
    decorated = kind.twins()[1]
    made = decorated("q")
    if not inspect.isawaitable(made):
        made = made.__anext__()
    finished: list[object] = []

    def step() -> None:
        try:
            made.send(None)
        except StopIteration as stop:
            finished.append(stop.value)

    for _ in range(10):
        if not finished:
            in_thread(step)
    assert finished
    if kind.stream:
        del made
        finished.clear()
        gc.collect()
    one_span(captured)


@each([kind for kind in COROUTINES if kind.name != "coroutine returning a generator"])  # nothing to cancel in that
def test_cancelling_ends_the_span(kind: KindOfFunction, captured: Captured) -> None:
    """A cancelled task raises CancelledError to its caller and leaves one span that says so."""
    undecorated, decorated = kind.twins()

    async def consume(function: Callable[..., Any]) -> None:
        result = function("hang")
        if kind.stream and inspect.iscoroutine(result):
            result = await result
        if kind.stream:
            async for _ in result:
                pass
        else:
            await result

    async def cancel(function: Callable[..., Any]) -> type:
        task = asyncio.create_task(consume(function))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        return type((await asyncio.gather(task, return_exceptions=True))[0])

    assert asyncio.run(cancel(undecorated)) is asyncio.run(cancel(decorated)) is asyncio.CancelledError
    span = one_span(captured)
    assert span.status.status_code is StatusCode.ERROR
    assert str((span.attributes or {})["error.type"]).endswith("CancelledError")
    if kind.stream:
        assert (span.attributes or {})["ragtrace.abandoned"] is True


@each([kind for kind in STREAMS if not kind.lazy])
def test_a_returned_stream_that_nobody_starts_still_ends_its_span(
    kind: KindOfFunction, captured: Captured, loop: asyncio.AbstractEventLoop
) -> None:
    """The function has run, so there is a span, and it ends when the unread stream is collected."""
    reader = Reader(kind, kind.twins()[1], "q", loop)
    reader.drop()
    gc.collect()
    assert (one_span(captured).attributes or {})["ragtrace.abandoned"] is True


@each([kind for kind in STREAMS if kind.lazy])
def test_a_generator_that_nobody_starts_has_no_span(
    kind: KindOfFunction, captured: Captured, loop: asyncio.AbstractEventLoop
) -> None:
    """None of the user's code has run: there is nothing to report."""
    Reader(kind, kind.twins()[1], "q", loop).drop()
    assert ragtrace.flush()
    assert captured.spans == ()


@each(STREAMS)
def test_the_span_is_not_current_between_two_pieces(
    kind: KindOfFunction, captured: Captured, loop: asyncio.AbstractEventLoop
) -> None:
    """What the reader does between two pieces is no child of the stream."""
    reader = Reader(kind, kind.twins()[1], "q", loop)
    reader.next()
    assert not get_current_span().get_span_context().is_valid
    reader.close()
    one_span(captured)


def test_a_coroutine_whose_inner_one_was_closed_first_can_be_closed(captured: Captured) -> None:
    """As the collector of cycles does, in any order, with the tasks of a loop that was closed by hand."""

    async def wait() -> None:
        await asyncio.sleep(0)

    inner = wait()

    @ragtrace.trace
    def ask(question: str) -> Awaitable[None]:
        return inner

    outer: Any = ask("where?")
    outer.send(None)
    inner.close()
    outer.close()
    assert one_span(captured).name == "invoke_workflow ask"


def in_thread(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()

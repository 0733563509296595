"""What a decorated function returns stays what it was, for whoever uses it, while ragtrace sees what passes through."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import pytest
from opentelemetry import baggage
from opentelemetry.context import attach
from opentelemetry.trace import StatusCode

import ragtrace
from ragtrace.system.faults import faults
from ragtrace.testing import Captured
from tests.functions import ITERATORS, UNTOUCHED, Lines
from tests.support.passed import WORDS, seen, span_of
from tests.support.watched import WAIT_S


@pytest.fixture
def captured() -> Iterator[Captured]:
    faults.clear()
    captured = Captured()
    ragtrace.configure(exporter=captured.signals, screen=None)
    yield captured
    ragtrace.shutdown()


# --- iterators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ITERATORS.values(), ids=ITERATORS.keys())
def test_an_iterator_is_passed_on_and_observed(captured: Captured, make: Callable[[Sequence[str]], Any]) -> None:
    """It passes for its type, and its pieces are the answer."""

    @ragtrace.generate
    def words(question: str) -> Any:
        return make(WORDS)

    found = words("How high is it?")
    assert isinstance(found, type(make(WORDS)))
    assert iter(found) is found
    assert list(found) == list(WORDS)
    assert seen(captured) == ("".join(WORDS), False, StatusCode.UNSET)


def test_an_iterator_that_is_dropped_was_abandoned(captured: Captured) -> None:
    """Its span does not stay open for ever."""

    @ragtrace.generate
    def words(question: str) -> Any:
        return map(str, WORDS)

    found = words("How high is it?")
    next(found)
    del found
    gc.collect()
    assert seen(captured) == ("The ", True, StatusCode.UNSET)


def test_the_methods_of_an_iterator_are_its_own(captured: Captured) -> None:
    """With their results and effects; closing ends the call."""
    made = Lines(WORDS)

    @ragtrace.generate
    def words(question: str) -> Lines:
        return made

    found = words("How high is it?")
    next(found)
    assert found.close() == "closed"
    assert made.closed
    assert seen(captured) == ("The ", True, StatusCode.UNSET)


def test_the_plain_close_of_an_asynchronous_iterator_stays_plain(captured: Captured) -> None:
    """Not every `close` of an asynchronous iterator is a coroutine."""

    class Pushed:
        closed = False

        def __aiter__(self) -> Pushed:
            return self

        async def __anext__(self) -> str:
            return "word "

        def close(self) -> str:
            self.closed = True
            return "closed"

    made = Pushed()

    @ragtrace.generate
    def words(question: str) -> Pushed:
        return made

    async def main() -> str:
        found = words("How high is it?")
        await found.__anext__()
        return found.close()

    assert (asyncio.run(main()), made.closed) == ("closed", True)
    assert seen(captured) == ("word ", True, StatusCode.UNSET)


def test_an_asynchronous_iterator_can_be_closed_by_the_standard_tool(captured: Captured) -> None:
    """`contextlib.aclosing` awaits its `aclose`."""

    class Pushed:
        closed = False

        def __aiter__(self) -> Pushed:
            return self

        async def __anext__(self) -> str:
            return "word "

        async def aclose(self) -> None:
            self.closed = True

    made = Pushed()

    @ragtrace.generate
    def words(question: str) -> Pushed:
        return made

    async def main() -> None:
        async with aclosing(words("How high is it?")) as found:
            await found.__anext__()

    asyncio.run(main())
    assert made.closed
    assert seen(captured) == ("word ", True, StatusCode.UNSET)


class Either:
    """Both a plain and an asynchronous iterator, as OpenInference wraps OpenAI's streams."""

    def __init__(self) -> None:
        self.words = iter(WORDS)

    def __iter__(self) -> Either:
        return self

    def __next__(self) -> str:
        return next(self.words)

    def __aiter__(self) -> Either:
        return self

    async def __anext__(self) -> str:
        for word in self.words:
            return word
        raise StopAsyncIteration


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_iterator_of_both_kinds_is_observed_as_it_is_read(captured: Captured, asynchronous: bool) -> None:
    """Read to its end either way, the call is over."""

    @ragtrace.generate
    def words(question: str) -> Any:
        return Either()

    async def read() -> list[str]:
        return [word async for word in words("How high is it?")]

    found = asyncio.run(read()) if asynchronous else list(words("How high is it?"))
    assert found == list(WORDS)
    assert seen(captured) == ("".join(WORDS), False, StatusCode.UNSET)


def test_an_iterator_that_fails_ends_as_an_error(captured: Captured) -> None:
    """With the iterator's own exception."""

    def fail(word: str) -> str:
        raise LookupError(word)

    @ragtrace.generate
    def words(question: str) -> Any:
        return map(fail, WORDS)

    with pytest.raises(LookupError, match="The"):
        list(words("How high is it?"))
    assert (span_of(captured).attributes or {})["error.type"] == "LookupError"


@pytest.mark.parametrize("make", UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_what_is_no_stream_of_text_comes_back_untouched(captured: Captured, make: Callable[[], Any]) -> None:
    """The very object, usable as before; the call is over."""
    made = make()

    @ragtrace.generate
    def give(question: str) -> Any:
        return made

    assert give("How high is it?") is made
    assert seen(captured)[2] is StatusCode.UNSET
    for opened in (made, getattr(made, "connection", made)):
        if hasattr(opened, "close"):
            opened.close()


# --- futures ---------------------------------------------------------------------------------------------------------


def test_a_future_of_a_pool_comes_back_and_ends_the_call_when_it_is_done(captured: Captured) -> None:
    """The very future."""
    release = threading.Event()
    made: list[Future[str]] = []

    def work() -> str:
        release.wait(WAIT_S)
        return "done"

    with ThreadPoolExecutor(1) as pool:

        @ragtrace.generate
        def start(question: str) -> Future[str]:
            made.append(pool.submit(work))
            return made[0]

        future = start("How high is it?")
        assert future is made[0]
        assert ragtrace.flush()
        assert captured.spans == ()
        release.set()
        assert future.result(WAIT_S) == "done"
    assert seen(captured) == ("done", None, StatusCode.UNSET)


@pytest.mark.parametrize(("end", "kind"), [("error", "LookupError"), ("cancel", "CancelledError")])
def test_a_future_that_fails_or_is_cancelled_ends_the_call_so(captured: Captured, end: str, kind: str) -> None:
    """With its type."""
    future: Future[str] = Future()

    @ragtrace.generate
    def start(question: str) -> Future[str]:
        return future

    assert start("How high is it?") is future
    if end == "error":
        future.set_exception(LookupError("x"))
    else:
        future.cancel()
        future.set_running_or_notify_cancel()
    assert str((span_of(captured).attributes or {})["error.type"]).endswith(kind)


def test_a_task_comes_back_and_ends_the_call_when_it_is_done(captured: Captured) -> None:
    """The very task, awaited by whoever wants to."""

    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    async def main() -> str:
        made: list[asyncio.Task[str]] = []

        @ragtrace.generate
        def start(question: str) -> asyncio.Task[str]:
            made.append(asyncio.create_task(work()))
            return made[0]

        task = start("How high is it?")
        assert task is made[0]
        return await task

    assert asyncio.run(main()) == "done"
    assert seen(captured) == ("done", None, StatusCode.UNSET)


def test_an_exception_of_a_task_that_nobody_retrieves_is_still_warned_of(captured: Captured) -> None:
    """Our looking at the task must not silence asyncio."""
    complaints: list[str] = []

    async def fail() -> str:
        raise LookupError("x")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))

        @ragtrace.generate
        def start(question: str) -> asyncio.Task[str]:
            return asyncio.create_task(fail())

        task = start("How high is it?")
        await asyncio.wait({task})
        del task
        gc.collect()

    asyncio.run(main())
    assert complaints == ["Task exception was never retrieved"]
    assert (span_of(captured).attributes or {})["error.type"] == "LookupError"


def test_an_asyncio_future_comes_back(captured: Captured) -> None:
    """Also a bare one."""

    async def main() -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        @ragtrace.generate
        def start(question: str) -> asyncio.Future[str]:
            return future

        assert start("How high is it?") is future
        future.set_result("done")
        return await future

    assert asyncio.run(main()) == "done"
    assert seen(captured) == ("done", None, StatusCode.UNSET)


def test_an_awaitable_that_is_no_coroutine_comes_back_untouched(captured: Captured) -> None:
    """It can still be awaited."""

    class Later:
        def __await__(self) -> Generator[Any, None, str]:
            yield from asyncio.sleep(0).__await__()
            return "done"

    made = Later()

    @ragtrace.generate
    def start(question: str) -> Later:
        return made

    async def main() -> str:
        later = start("How high is it?")
        assert later is made
        return await later

    assert asyncio.run(main()) == "done"
    assert span_of(captured).status.status_code is StatusCode.UNSET


def test_what_a_coroutine_attaches_stays_for_the_stream_that_it_returns(captured: Captured) -> None:
    """Its own code goes on in the stream, and the caller sees nothing of it."""

    async def pieces() -> AsyncIterator[str]:
        yield str(baggage.get_baggage("tenant"))

    @ragtrace.generate
    async def answer(question: str) -> AsyncIterator[str]:
        attach(baggage.set_baggage("tenant", "t1"))
        return pieces()

    async def application() -> list[str]:
        found = [piece async for piece in await answer("where?")]
        assert baggage.get_baggage("tenant") is None
        return found

    assert asyncio.run(application()) == ["t1"]
    assert ragtrace.flush(WAIT_S)
    assert len(captured.spans) == 1

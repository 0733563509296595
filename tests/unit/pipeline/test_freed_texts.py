"""The texts of a call are freed when it has been dealt with: none waits for the collector of reference cycles."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import closing, suppress
from importlib.metadata import version
from itertools import count
from typing import Any, Final, cast

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import ragtrace
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall, Result, Signals
from ragtrace.judges import Judge
from ragtrace.testing import FakeJudge, OpenAIServer, Reply
from ragtrace.types import GuardBlocked
from tests.support.watched import CLAIMS, GOOD, WAIT_S, WaitingJudge, limited

CALLS: Final = 20
MARK: Final = "a text of the call"
BAD: Final = Judgement(claims=CLAIMS[1:], answer_label="answered")
"""Faithfulness 0."""
_numbers: Final = count()

Act = Callable[[], object]


class Nowhere(SpanExporter):
    """Keeps no span."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


class BoomError(Exception):
    """Raised by the application."""


class BlockingJudge:
    """Plain function of a judge, which runs on a thread, and raises a new error for each call."""

    id, version = "blocking", "1"
    type: EvaluatorType = "llm_judge"

    def __init__(self, error: Callable[[str], BaseException]) -> None:
        self._error = error

    def offers(self, metric: Metric) -> bool:
        return metric.name == "faithfulness"

    def judge(self, call: RagCall) -> Judgement:
        raise self._error("refused")


class RaisingJudge(BlockingJudge):
    """The same as a coroutine function."""

    async def judge(self, call: RagCall) -> Judgement:  # type: ignore[override]
        await asyncio.sleep(0)
        raise self._error("refused")


class RaisingMetric:
    """Metric that raises a new error for each call."""

    name, version, higher_is_better = "raising", "1", True
    needs: frozenset[str] = frozenset()
    range = (0.0, 1.0)

    def __call__(self, call: RagCall, judgement: Judgement) -> Result:
        raise ValueError("no score")


def text() -> str:
    return f"{MARK} {next(_numbers)}."


@ragtrace.retrieve
def search(question: str) -> list[str]:
    return [text(), text()]


@ragtrace.trace
def ask(question: str) -> str:
    search(question)
    return text()


@ragtrace.trace
def stream(question: str) -> Iterator[str]:
    search(question)
    yield text()
    yield text()


@ragtrace.trace
def broken_stream(question: str) -> Iterator[str]:
    search(question)
    yield text()
    raise BoomError(text())


@ragtrace.trace
async def stream_async(question: str) -> AsyncIterator[str]:
    search(question)
    yield text()
    await asyncio.sleep(0)
    yield text()


@ragtrace.trace
async def broken_stream_async(question: str) -> AsyncIterator[str]:
    search(question)
    yield text()
    await asyncio.sleep(0)
    raise BoomError(text())


def read(make: Callable[[str], Iterator[str]]) -> None:
    with suppress(BoomError, GuardBlocked):
        list(make(text()))


def leave(make: Callable[[str], Any]) -> None:
    with closing(make(text())) as pieces, suppress(GuardBlocked):
        next(pieces)


async def read_async(make: Callable[[str], AsyncIterator[str]]) -> None:
    with suppress(BoomError, GuardBlocked):
        async for _ in make(text()):
            pass


async def leave_async(make: Callable[[str], Any]) -> None:
    pieces = make(text())
    with suppress(GuardBlocked):
        await anext(pieces)
    await pieces.aclose()


async def drop_async(make: Callable[[str], Any]) -> None:
    await anext(make(text()))
    await asyncio.sleep(0)  # the event loop closes it


async def throw_async(make: Callable[[str], Any]) -> None:
    pieces = make(text())
    await anext(pieces)
    with suppress(BoomError):
        await pieces.athrow(BoomError(text()))


async def cancel_async(make: Callable[[str], Any]) -> None:
    begun = asyncio.Event()

    async def reader() -> None:
        async for _ in make(text()):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(reader())
    await begun.wait()
    task.cancel()
    await asyncio.wait({task})


APPLICATIONS: Final[dict[str, Act]] = {
    "a call": lambda: ask(text()),
    "a stream that is read": lambda: read(stream),
    "a stream that is left": lambda: leave(stream),
    "a stream that fails": lambda: read(broken_stream),
}
ASYNC_APPLICATIONS: Final[dict[str, Callable[[], Coroutine[Any, Any, None]]]] = {
    "an asynchronous stream that is read": lambda: read_async(stream_async),
    "an asynchronous stream that is left": lambda: leave_async(stream_async),
    "an asynchronous stream that is dropped": lambda: drop_async(stream_async),
    "an asynchronous stream that is cancelled": lambda: cancel_async(stream_async),
    "an asynchronous stream that fails": lambda: read_async(broken_stream_async),
    "an asynchronous stream that an error is thrown into": lambda: throw_async(stream_async),
}
FAILURES: Final[dict[str, Callable[[], Judge]]] = {
    "a judge that fails as foreseen": lambda: RaisingJudge(JudgeError),
    "a judge that raises": lambda: RaisingJudge(ValueError),
    "a judge that exits": lambda: RaisingJudge(SystemExit),
    "a blocking judge that fails as foreseen": lambda: BlockingJudge(JudgeError),
    "a blocking judge that raises": lambda: BlockingJudge(ValueError),
    "a blocking judge that exits": lambda: BlockingJudge(SystemExit),
    "a judge that is late": lambda: limited(WaitingJudge(), timeout=0.05),
}
REPLIES: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "refused": (Reply.failing(400, code="content_filter"), {}),
    "refused in steps": (Reply.failing(400, code="content_filter"), {"mode": "careful"}),
    "refused by the sentence": (Reply.failing(400, code="content_filter"), {"mode": "sentences"}),
    "cut off": (Reply('{"a', finish="length"), {}),
    "unparsable": ("no object", {}),
}


@pytest.fixture(autouse=True)
def _no_guards_of_earlier_tests() -> None:
    """A guarded function of an earlier test may wait for the collector: then `configure` would check its metric."""
    gc.collect()


def texts_in(holder: object) -> list[str]:
    """The texts of calls to which an object refers, by itself or through tuples of texts, which are not collected."""
    found: list[str] = []
    referents: list[object] = gc.get_referents(holder)
    for each in referents:
        if isinstance(each, str) and MARK in each:
            found.append(each)
        elif isinstance(each, bytes) and MARK.encode() in each:
            found.append(each.decode(errors="replace"))
        elif isinstance(each, (tuple, dict)) and not gc.is_tracked(each):
            found += texts_in(cast("object", each))
    return found


def texts_in_cycles(act: Act) -> list[str]:
    """The texts that only the collector of cycles frees, after calls of *act* that have been scored."""
    act()  # makes what is made once, such as threads and connections
    assert ragtrace.flush(WAIT_S)
    gc.collect()
    gc.disable()
    try:
        for _ in range(CALLS):
            act()
        assert ragtrace.flush(WAIT_S)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return [found for holder in gc.garbage for found in texts_in(holder)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.collect()


def watched(**settings: Any) -> None:
    ragtrace.configure(exporter=Signals(spans=Nowhere()), **settings)


@pytest.mark.parametrize("application", APPLICATIONS.values(), ids=APPLICATIONS.keys())
def test_a_call_frees_its_texts(application: Act) -> None:
    watched(screen=FakeJudge(GOOD))
    assert texts_in_cycles(application) == []


@pytest.mark.parametrize("application", ASYNC_APPLICATIONS.values(), ids=ASYNC_APPLICATIONS.keys())
def test_an_asynchronous_stream_frees_its_texts(application: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """However it ends."""
    watched(screen=FakeJudge(GOOD))
    loop = asyncio.new_event_loop()
    try:
        assert texts_in_cycles(lambda: loop.run_until_complete(application())) == []
    finally:
        loop.close()


@pytest.mark.parametrize("make_judge", FAILURES.values(), ids=FAILURES.keys())
def test_a_judge_that_fails_frees_the_texts(make_judge: Callable[[], Judge]) -> None:
    """The frames in the traceback of its error have the call."""
    watched(screen=make_judge())
    assert texts_in_cycles(lambda: ask(text())) == []
    assert ragtrace.stats().failed


def test_a_metric_that_raises_frees_the_texts() -> None:
    watched(screen=FakeJudge(GOOD), metrics=[RaisingMetric()])
    assert texts_in_cycles(lambda: ask(text())) == []
    assert ragtrace.stats().failed == {"metric_error": CALLS + 1}


@pytest.mark.skipif(
    int(version("openai").partition(".")[0]) < 3, reason="httpcore, of this openai, keeps requests in cycles of its own"
)
@pytest.mark.parametrize(("reply", "options"), REPLIES.values(), ids=REPLIES.keys())
def test_an_llm_that_fails_frees_the_texts(reply: Reply | str, options: dict[str, Any]) -> None:
    with OpenAIServer(reply) as server:
        judge = ragtrace.OpenAIJudge("local", base_url=server.url, **options)
        watched(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0))
        assert texts_in_cycles(lambda: ask(text())) == []
        assert ragtrace.stats().failed


JUDGES: Final[dict[str, Callable[[], Judge]]] = {
    "passed": lambda: FakeJudge(GOOD),
    "blocked": lambda: FakeJudge(BAD),
    "not judged": lambda: RaisingJudge(JudgeError),
}
GUARDS: Final[dict[str, dict[str, Any]]] = {
    "shadow": {"action": "shadow"},
    "annotate": {"action": "annotate"},
    "raise": {"action": "raise"},
    "retry": {"action": "retry", "idempotent": True},
}


@pytest.mark.parametrize("make_judge", JUDGES.values(), ids=JUDGES.keys())
@pytest.mark.parametrize("options", GUARDS.values(), ids=GUARDS.keys())
def test_a_guarded_call_frees_its_texts(options: dict[str, Any], make_judge: Callable[[], Judge]) -> None:
    @ragtrace.trace(guard=ragtrace.Guard("faithfulness", below=0.5, budget_ms=WAIT_S * 1000, **options))
    def guarded(question: str) -> str:
        return ask.__wrapped__(question)  # type: ignore[attr-defined, no-any-return]

    def act() -> None:
        with suppress(GuardBlocked):
            guarded(text())

    watched(screen=make_judge())
    assert texts_in_cycles(act) == []


@pytest.mark.parametrize("use", [read, leave])
@pytest.mark.parametrize("mode", ["all", "sentence", "after"])
@pytest.mark.parametrize("make_judge", JUDGES.values(), ids=JUDGES.keys())
def test_a_guarded_stream_frees_its_texts(
    make_judge: Callable[[], Judge], mode: Any, use: Callable[[Callable[[str], Any]], None]
) -> None:
    @ragtrace.trace(
        guard=ragtrace.Guard("faithfulness", below=0.5, action="annotate", budget_ms=WAIT_S * 1000, stream=mode)
    )
    def guarded(question: str) -> Iterator[str]:
        search(question)
        yield text() + " "
        yield text()

    watched(screen=make_judge())
    assert texts_in_cycles(lambda: use(guarded)) == []


def test_a_guard_whose_judge_is_late_frees_the_texts() -> None:
    @ragtrace.trace(guard=ragtrace.Guard("faithfulness", below=0.5, action="annotate", budget_ms=20))
    async def guarded(question: str) -> str:
        return ask.__wrapped__(question)  # type: ignore[attr-defined, no-any-return]

    watched(screen=limited(WaitingJudge(), timeout=0.05))
    loop = asyncio.new_event_loop()
    try:
        assert texts_in_cycles(lambda: loop.run_until_complete(guarded(text()))) == []
    finally:
        loop.close()

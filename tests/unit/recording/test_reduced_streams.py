"""Streams whose text the application's own function makes of the list of their pieces: `reduce=`."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import ragtrace
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import RagCall
from ragtrace.recording import recorder
from ragtrace.system import collection
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge
from tests.support import guards
from tests.support.guards import ReadingJudge, guard, tally
from tests.support.watched import GOOD, search, watch

PIECES: list[object] = [{"at": 1, "put": "is old."}, {"at": 0, "put": "Rome "}]
"""Pieces that no reader can know: edits of a text, in any order."""
WHOLE = "Rome is old."


def put_together(pieces: list[dict[str, Any]]) -> str:
    assert type(pieces) is list
    return "".join(piece["put"] for piece in sorted(pieces, key=lambda piece: piece["at"]))


class Application:
    """Calls of functions that stream `PIECES`, and the judge that saw them."""

    def __init__(self) -> None:
        faults.clear()
        self.judge = FakeJudge(GOOD)
        self.captured: Captured = watch(screen=self.judge)

    def call(self) -> RagCall:
        assert ragtrace.flush()
        (call,) = self.judge.calls
        return call

    def reason(self) -> object:
        assert ragtrace.flush()
        assert self.judge.calls == []
        return (self.captured.root().attributes or {})["ragtrace.eval.answered.reason"]


@pytest.fixture
def application() -> Iterator[Application]:
    yield Application()
    ragtrace.shutdown()


decorators = pytest.mark.parametrize("decorate", [ragtrace.trace, ragtrace.generate])


def streaming(decorate: Callable[..., Any], pieces: list[object] = PIECES, **options: Any) -> Callable[[str], Any]:
    @decorate(reduce=put_together, **options)
    def stream(question: str) -> Iterator[object]:
        search(question)
        yield from pieces

    return stream


@decorators
def test_the_text_is_what_the_function_makes_of_all_pieces(decorate: Any, application: Application) -> None:
    """The reader gets the pieces as they are."""
    assert list(streaming(decorate)("How old?")) == PIECES
    assert application.call().answer == WHOLE
    assert ragtrace.stats().faults == {}


@decorators
def test_an_asynchronous_stream_is_reduced_likewise(decorate: Any, application: Application) -> None:
    """And so is one that a coroutine function returns."""

    async def stream() -> AsyncIterator[object]:
        for piece in PIECES:
            yield piece

    @decorate(reduce=put_together)
    async def ask(question: str) -> Any:
        return stream()

    async def read() -> list[object]:
        return [piece async for piece in await ask("How old?")]

    assert asyncio.run(read()) == PIECES
    assert application.call().answer == WHOLE


def test_a_stream_that_is_left_has_what_was_read(application: Application) -> None:
    """As every stream."""
    stream = streaming(ragtrace.generate)("How old?")
    assert next(stream) == PIECES[0]
    stream.close()
    assert application.call().answer == "is old."
    assert application.call().abandoned


def test_a_stream_that_the_collector_closes_is_reduced(application: Application) -> None:
    """Later: a function of the application does not run in the middle of any other code."""
    collecting: list[bool] = []

    def reduce(pieces: list[Any]) -> str:
        collecting.append(collection.is_on_this_thread())
        return put_together(pieces)

    @ragtrace.generate(reduce=reduce)
    def ask(question: str) -> Iterator[object]:
        yield from PIECES

    class Holder:
        stream: Any
        itself: Any

    holder = Holder()
    holder.stream, holder.itself = ask("How old?"), holder
    next(holder.stream)
    del holder
    gc.collect()
    assert application.call().answer == "is old."
    assert collecting == [False]


def test_a_result_that_is_no_stream_is_not_reduced(application: Application) -> None:
    """Neither is a stream without a piece: its answer is empty."""

    @ragtrace.generate(reduce=put_together, answer=lambda found: found["said"])
    def ask(question: str) -> object:
        return {"said": WHOLE}

    ask("How old?")
    list(streaming(ragtrace.generate, [])("How old?"))
    assert ragtrace.flush()
    assert sorted(call.answer or "" for call in application.judge.calls) == ["", WHOLE]


def test_the_function_is_asked_in_the_place_of_that_for_one_piece(application: Application) -> None:
    """It gets the pieces themselves."""
    list(streaming(ragtrace.generate, answer=lambda piece: piece["put"])("How old?"))
    assert application.call().answer == WHOLE


def test_it_may_give_whatever_holds_an_answer(application: Application) -> None:
    """A completion that an SDK has built of its chunks, say; model and tokens are those of the pieces, too."""

    def build(pieces: list[object]) -> object:
        return {"choices": [{"message": {"role": "assistant", "content": WHOLE}, "finish_reason": "stop"}]}

    @ragtrace.generate(reduce=build)
    def ask(question: str) -> Iterator[object]:
        yield {"choices": [{"index": 0, "delta": {"content": "old"}}], "model": "tiny"}
        yield {"choices": [], "model": "tiny", "usage": {"prompt_tokens": 3, "completion_tokens": 5}}

    list(ask("How old?"))
    call = application.call()
    assert (call.answer, call.model, call.usage.input_tokens, call.usage.output_tokens) == (WHOLE, "tiny", 3, 5)


@decorators
@pytest.mark.parametrize("reduce", [lambda pieces: pieces[9], lambda _: None, lambda _: 3, json.dumps, lambda p: p])
def test_what_is_no_text_is_no_answer(
    decorate: Any, reduce: Any, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    """The reader notices nothing, one line says what was wrong, and a part is not recorded in its place."""

    @decorate(reduce=reduce)
    def stream(question: str) -> Iterator[object]:
        yield from [b"\xff\xfe", object()] if reduce is json.dumps else [["Rome "], ["is old."]]

    assert len(list(stream("How old?"))) == 2
    assert application.reason() == "answer_not_captured"
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert "reduce= of " in said[0].message
    assert "ask" in said[0].message or "stream" in said[0].message


def test_too_many_pieces_are_no_part_of_an_answer(application: Application, caplog: pytest.LogCaptureFixture) -> None:
    """What is kept is limited, and a part is not taken for the whole."""
    most = recorder._MOST_PIECES

    @ragtrace.generate(reduce="".join)
    def stream(question: str, pieces: int) -> Iterator[str]:
        yield from ("a" for _ in range(pieces))

    for _ in stream("How old?", most + 1):
        pass
    assert application.reason() == "answer_not_captured"
    assert f"more than {most} pieces" in caplog.text
    for _ in stream("How old?", most):
        pass
    assert set(application.call().answer or "") == {"a"}


@pytest.mark.parametrize("reduce", ["text", 3, asyncio.sleep])
def test_what_cannot_reduce_is_refused_at_decoration(reduce: Any) -> None:
    """An asynchronous function, too: nobody would await it."""
    with pytest.raises(SettingsError, match="reduce= must be a function that takes the list"):
        ragtrace.generate(reduce=reduce)(lambda question: question)


# --- blocks -----------------------------------------------------------------------------------------------------------


def test_a_block_reduces_a_list_of_pieces(application: Application) -> None:
    """At once, with the context of the block."""
    with ragtrace.call("How old?") as call:
        call.answered(PIECES, reduce=put_together)
    assert application.call().answer == WHOLE


@pytest.mark.parametrize("pieces", [PIECES, iter(PIECES)])
def test_a_block_goes_on_when_its_pieces_cannot_be_reduced(pieces: Any, application: Application) -> None:
    """An iterator is left to its reader."""
    with ragtrace.call("How old?") as call:
        call.answered(pieces, reduce=lambda found: found[9])
    assert application.reason() == "answer_not_captured"
    assert ragtrace.stats().faults == {"reduce= of ragtrace.call": 1}
    assert list(pieces) == PIECES


def test_a_block_outside_a_configured_application_reduces_nothing() -> None:
    """The function may be expensive."""
    ragtrace.shutdown()
    with ragtrace.call("How old?") as call:
        call.answered(PIECES, reduce=lambda _: pytest.fail("called"))


# --- guards -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["after", "all"])
def test_a_guard_judges_the_whole_text(mode: Any) -> None:
    """It has come when the stream has ended."""
    judge = ReadingJudge(GOOD)
    guards.watch(judge)
    guarded = guard("annotate", stream=mode)
    assert list(streaming(ragtrace.trace, name="guarded", guard=guarded)("How old?")) == PIECES
    assert ragtrace.flush()
    assert judge.asked == [WHOLE]
    assert tally().verdicts == {"pass": 1}


def test_a_guard_of_sentences_needs_the_text_of_a_piece() -> None:
    """Without it nothing could leave before the end; this is said at decoration."""
    with pytest.raises(SettingsError, match="give answer=, which the guard asks for it, or stream='all'"):
        streaming(ragtrace.trace, guard=guard("raise", stream="sentence"))
    streaming(ragtrace.trace, guard=guard("shadow", stream="sentence"))


def test_a_guard_of_sentences_asks_for_the_text_of_a_piece() -> None:
    """The whole answer is judged as it was reduced."""
    judge = ReadingJudge(GOOD)
    guards.watch(judge)
    pieces = [{"at": 0, "put": "Rome is old. "}, {"at": 1, "put": "It is big."}]
    guarded = guard("annotate", stream="sentence")
    ask = streaming(ragtrace.trace, pieces, answer=lambda piece: piece["put"], guard=guarded)
    assert list(ask("How old?")) == pieces
    assert ragtrace.flush()
    assert judge.asked == ["Rome is old.", "It is big.", "Rome is old. It is big."]

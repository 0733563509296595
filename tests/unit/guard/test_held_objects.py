"""Held streams give their text by their pieces alone, or their answers are counted as not held."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import ragtrace
from ragtrace.testing import FakeJudge
from ragtrace.types import GuardBlocked
from tests.support.guards import ReadingJudge, guard, outcome, tally, watch
from tests.support.watched import GOOD, search

PIECES = ("Paris is big. ", "Rome is old. ", "Bonn is small.")
WHOLE = "".join(PIECES)


class Reply:
    """Response of a server, behind a stream."""

    def __init__(self, words: Iterator[str]) -> None:
        self._words, self.status_code, self.headers = words, 200, {"x-request-id": "7"}
        self.text, self.is_open = WHOLE, True

    def read(self) -> bytes:
        return "".join(self._words).encode()

    def close(self) -> str:
        return "closed"


class Messages:
    """Stream of a client's helper, with all ways to its text that one can think of."""

    request_id = "7"
    attempts = 1

    def __init__(self) -> None:
        self._words, self._given = iter(PIECES), [*PIECES]
        self.response, self.text_stream = Reply(self._words), (word for word in self._words)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._words)

    def __enter__(self) -> Iterator[str]:
        return self.text_stream

    def __exit__(self, *error: object) -> None: ...

    def __getitem__(self, number: int) -> str:
        return self._given[number]

    def __contains__(self, word: object) -> bool:
        return word in "".join(self._words)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._given)

    def __add__(self, other: str) -> str:
        return "".join(self._words) + other

    def __bytes__(self) -> bytes:
        return WHOLE.encode()

    def __str__(self) -> str:
        return WHOLE

    def __copy__(self) -> Iterator[str]:
        return iter(self._given)

    def __deepcopy__(self, memo: object) -> Iterator[str]:
        return iter(self._given)

    def __reduce__(self) -> Any:
        return list, (self._given,)

    @property
    def snapshot(self) -> str:
        return WHOLE

    def get_final_text(self) -> str:
        return "".join(self._words)

    def until_done(self) -> None:
        self.get_final_text()

    async def get_text_later(self) -> str:
        return WHOLE

    def close(self) -> None: ...


class AsyncMessages(Messages):
    """The same, to be read by `async for`."""

    __iter__ = __next__ = None  # type: ignore[assignment]

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        piece = next(self._words, None)
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def __aenter__(self) -> Iterator[str]:
        return self.text_stream

    async def __aexit__(self, *error: object) -> None: ...


async def entered(stream: Any) -> str:
    """Read what `async with` gives."""
    async with stream as found:
        return "".join(found)


def given_to_block(stream: Any) -> str:
    """Read what `with` gives."""
    with stream as found:
        return "".join(found)


WAYS: dict[str, Callable[[Any], object]] = {
    "a method": lambda stream: stream.get_final_text(),
    "a coroutine": lambda stream: asyncio.run(stream.get_text_later()),
    "to read ahead": lambda stream: stream.until_done() or stream.snapshot,
    "an iterator": lambda stream: "".join(stream.text_stream),
    "a private iterator": lambda stream: "".join(stream._words),
    "a text": lambda stream: stream.snapshot,
    "a list": lambda stream: stream._given,
    "the response's method": lambda stream: stream.response.read(),
    "the response's text": lambda stream: stream.response.text,
    "the object of a method": lambda stream: stream.get_final_text.__self__.snapshot,
    "the function of a method": lambda stream: stream.get_final_text.__func__(Messages()),
    "an item": lambda stream: stream[1],
    "a test": lambda stream: "Rome" in stream,
    "reversed": lambda stream: list(reversed(stream)),
    "a sum": lambda stream: stream + "",
    "bytes": bytes,
    "str": str,
    "format": lambda stream: f"{stream}",
    "vars": lambda stream: vars(stream)["_given"],
    "copy": lambda stream: list(copy.copy(stream)),
    "deepcopy": lambda stream: list(copy.deepcopy(stream)),
    "pickle": lambda stream: pickle.loads(pickle.dumps(stream)),
}
each_way = pytest.mark.parametrize(
    ("kind", "way"),
    [(kind, way) for kind in (Messages, AsyncMessages) for way in WAYS.values()]
    + [(Messages, given_to_block), (AsyncMessages, lambda stream: asyncio.run(entered(stream)))],
    ids=[f"{kind}-{way}" for kind in ("sync", "async") for way in WAYS] + ["sync-with", "async-with"],
)


def chat(kind: type[Any] = Messages, action: str = "raise", **options: Any) -> Any:
    """Return a stream of *kind* that a guard holds, of a judge that finds all good."""
    options.setdefault("stream", "sentence")

    @ragtrace.trace(name="guarded", guard=guard(action, **options))
    def ask(question: str) -> Any:
        search(question)
        return kind()

    return ask("Where is Paris?")


@each_way
@pytest.mark.parametrize("action", ["raise", "replace"])
def test_a_closed_guard_gives_no_text_by_another_way(
    kind: type[Any], way: Callable[[Any], object], action: str
) -> None:
    """Nor a piece afterwards; the answer is counted, and its call is recorded."""
    captured = watch(ReadingJudge(GOOD))
    stream = chat(kind, action, on_error="closed")
    with pytest.raises(GuardBlocked, match="unscored: not_held"):
        way(stream)
    assert kind is AsyncMessages or list(stream) == []
    del stream
    gc.collect()
    assert ragtrace.flush()
    assert (tally().verdicts, tally().actions) == ({"unscored": 1}, {"raised": 1})
    assert outcome(captured.root().attributes) == ("unscored", "raised", "not_held")


@each_way
def test_what_an_open_guard_gives_by_another_way_is_counted(kind: type[Any], way: Callable[[Any], object]) -> None:
    """It gives what the stream gives without a guard."""
    captured = watch(ReadingJudge(GOOD))
    stream = chat(kind)
    assert way(stream) == way(kind())
    del stream
    gc.collect()
    assert ragtrace.flush()
    assert (tally().verdicts, tally().actions) == ({"unscored": 1}, {"released": 1})
    assert outcome(captured.root().attributes) == ("unscored", "released", "not_held")


def test_another_way_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With its name."""
    watch(ReadingJudge(GOOD))
    for _ in range(2):
        chat(budget_ms=7_777).response.read()
    [told] = [each for each in caplog.messages if "may have been read by" in each]
    assert "may have been read by Messages.response.read():" in told


def test_what_has_no_words_is_given() -> None:
    """Numbers, headers and ids; and what is only looked up is not read."""
    watch(ReadingJudge(GOOD))
    stream = chat(on_error="closed")
    assert (stream.attempts, stream.request_id, stream.response.status_code) == (1, "7", 200)
    assert (stream.response.headers["x-request-id"], stream.response.is_open) == ("7", True)
    assert isinstance(stream.response, Reply)
    assert inspect.iscoroutinefunction(stream.get_text_later)
    assert list(inspect.signature(stream.get_final_text).parameters) == []
    assert (hasattr(stream, "until_done"), hasattr(stream, "unknown")) == (True, False)
    assert stream.response.close() == "closed"
    assert list(stream) == list(PIECES)
    assert tally().verdicts == {"pass": 1}


@pytest.mark.parametrize("stream", ["sentence", "all"])
def test_after_the_last_piece_all_of_it_is_given(stream: str) -> None:
    """As the whole answer has passed."""
    watch(ReadingJudge(GOOD))
    found = chat(on_error="closed", stream=stream)
    assert list(found) == list(PIECES)
    assert (found.snapshot, found.response.text, found[1], str(found)) == (WHOLE, WHOLE, PIECES[1], WHOLE)
    assert (tally().verdicts, tally().actions) == ({"pass": 1}, {"none": 1})


@pytest.mark.parametrize("stream", ["sentence", "all"])
@pytest.mark.parametrize("action", ["raise", "replace"])
def test_what_was_blocked_is_not_given_either(action: str, stream: str) -> None:
    """It is counted once."""
    watch(ReadingJudge(GOOD, bad="Rome"))
    found = chat(action=action, on_error="closed", stream=stream)
    if action == "raise":
        with pytest.raises(GuardBlocked, match="fail"):
            list(found)
    else:
        assert list(found)[-1] == "no answer"
    with pytest.raises(GuardBlocked, match="not_held"):
        found.get_final_text()
    with pytest.raises(GuardBlocked):
        str(found)
    assert tally().verdicts == {"fail": 1}


@pytest.mark.parametrize("stream", ["after", "sentence", "all"])
def test_a_verdict_on_the_pieces_that_were_left_is_none(stream: str) -> None:
    """Where another way has taken the others."""
    watch(ReadingJudge(GOOD))
    found = chat(action="annotate", stream=stream)
    assert next(found.text_stream) == PIECES[0]
    assert list(found) == list(PIECES[1:])
    assert (tally().verdicts, tally().actions) == ({"unscored": 1}, {"released": 1})


def test_a_sentence_that_fails_fails_the_answer_all_the_same() -> None:
    """A part that is bad is enough."""
    watch(ReadingJudge(GOOD, bad="Rome"))
    found = chat(stream="sentence")
    assert found.snapshot == WHOLE
    with pytest.raises(GuardBlocked, match="fail"):
        list(found)
    assert tally().verdicts == {"fail": 1}


@pytest.mark.parametrize("kind", [Messages, AsyncMessages])
def test_a_returned_stream_that_nobody_reads_is_recorded(kind: type[Any]) -> None:
    """As the function has run; its reader has left it."""
    captured = watch(FakeJudge(GOOD))
    chat(kind)
    gc.collect()
    assert ragtrace.flush()
    assert outcome(captured.root().attributes) == ("unscored", "none", "abandoned")
    assert tally().calls == 1

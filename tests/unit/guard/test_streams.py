"""Guarded streams: when their pieces leave, what their reader sees, and how often they are judged."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import openai
import pytest

import ragtrace
from ragtrace.capture.answer_stream import MAX_STREAM_CHARS
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement, RagCall
from ragtrace.testing import Captured, FakeJudge
from ragtrace.types import GuardBlocked, GuardNotice
from tests.functions import ITERATORS, KINDS, EitherIterating, KindOfFunction, Lines, Reader
from tests.support.completions import completions_server
from tests.support.guards import BAD, HangingJudge, ReadingJudge, guard, outcome, tally, watch
from tests.support.passed import WORDS
from tests.support.watched import GOOD, WAIT_S, search

PIECES = ["Paris is ", "big. ", "It is on ", "Mars. Rome", " is old", "."]
GOOD_PIECES = ["Paris is ", "big. ", "Rome", " is old", "."]
SENTENCES = ["Paris is big.", "It is on Mars.", "Rome is old."]
STREAMS = [kind for kind in KINDS if kind.stream]


def read(
    kind: str, guarded: ragtrace.Guard, pieces: list[str] = PIECES, events: list[Any] | None = None
) -> Iterator[str]:
    """Read a guarded stream of *kind* piece by piece; *events* notes what its source does."""
    noted = [] if events is None else events

    def stream(question: str) -> Generator[str, None, str]:
        search(question)
        try:
            for piece in pieces:
                noted.append(piece)
                yield piece
        finally:
            noted.append("closed")
        return "returned"

    async def astream(question: str) -> AsyncGenerator[str, None]:
        search(question)
        try:
            for piece in pieces:
                noted.append(piece)
                yield piece
        finally:
            noted.append("closed")

    decorate = ragtrace.trace(name="guarded", guard=guarded)
    if kind == "sync":
        yield from decorate(stream)("Where is Paris?")
        return
    loop = asyncio.new_event_loop()
    reader = decorate(astream)("Where is Paris?")
    try:
        while True:
            piece = loop.run_until_complete(anext(reader, None))
            if piece is None:
                return
            yield piece
    finally:
        loop.run_until_complete(reader.aclose())
        loop.close()


each_kind = pytest.mark.parametrize("kind", ["sync", "async"])


@each_kind
def test_pieces_leave_with_their_sentence(kind: str) -> None:
    """A sentence is judged by itself, once it has ended; its pieces are the objects that the function yielded."""
    judge, events = ReadingJudge(GOOD), []
    watch(judge)
    pieces, seen = GOOD_PIECES, []
    for piece in read(kind, guard("raise", stream="sentence"), pieces, events):
        seen.append(piece)
        events.append(f"left {piece}")
    assert [id(piece) for piece in seen] == [id(piece) for piece in pieces]
    assert events == [
        *("Paris is ", "big. ", "Rome", "left Paris is ", "left big. "),
        *(" is old", ".", "closed", "left Rome", "left  is old", "left ."),
    ]
    assert judge.asked == ["Paris is big.", "Rome is old."]
    assert (tally().verdicts, tally().actions) == ({"pass": 1}, {"none": 1})


@each_kind
@pytest.mark.parametrize("action", ["replace", "raise"])
def test_nothing_of_a_sentence_that_fails_leaves(kind: str, action: str) -> None:
    """The stream ends there: with the fallback, or with the exception, and its source is closed."""
    judge, events, seen = ReadingJudge(GOOD), [], []
    captured = watch(judge)
    try:
        for piece in read(kind, guard(action, stream="sentence"), events=events):
            seen.append(piece)  # noqa: PERF402 - what came before the exception counts
    except GuardBlocked as blocked:
        seen.append(f"blocked at {blocked.notice.score}")
    assert seen == ["Paris is ", "big. ", "no answer" if action == "replace" else "blocked at 0.5"]
    assert events[-1] == "closed"
    assert judge.asked == SENTENCES[:2]
    assert ragtrace.flush()
    assert outcome(captured.root().attributes)[:2] == ("fail", {"replace": "replaced", "raise": "raised"}[action])
    assert tally().calls == 1


@each_kind
def test_a_sentence_that_fails_leaves_when_it_is_only_annotated(kind: str) -> None:
    """The rest leaves unjudged: the answer has failed."""
    told: list[GuardNotice] = []
    judge = ReadingJudge(GOOD)
    watch(judge)
    assert list(read(kind, guard("annotate", stream="sentence", on_fail=told.append))) == PIECES
    assert (judge.asked, [notice.verdict for notice in told]) == (SENTENCES[:2], ["fail"])
    assert (tally().verdicts, tally().actions) == ({"fail": 1}, {"annotated": 1})


@each_kind
def test_the_whole_answer_is_judged_after_its_sentences(kind: str) -> None:
    """Its score is the call's; the cost of judging the sentences is counted, and their scores are not sent."""
    judge = ReadingJudge(GOOD)
    captured = watch(judge)
    list(read(kind, guard("annotate", stream="sentence"), GOOD_PIECES))
    assert ragtrace.flush()
    assert judge.asked == ["Paris is big.", "Rome is old.", "Paris is big. Rome is old."]
    metrics = captured.metrics()
    assert sum(point.count for point in metrics["ragtrace.eval.duration"].data_points) == 3
    scores = metrics["ragtrace.eval.score"].data_points
    assert {point.count for point in scores} == {1}
    assert ragtrace.stats().evaluators["fake"].scored == 1


@each_kind
def test_sentences_are_judged_with_the_tags_of_their_call(kind: str) -> None:
    """As the whole answer is."""
    judge = ReadingJudge(GOOD)
    watch(judge)
    with ragtrace.tags(tenant="acme"):
        list(read(kind, guard("annotate", stream="sentence"), GOOD_PIECES))
    assert ragtrace.flush()
    assert [call.tags for call in judge.calls] == [{"tenant": "acme"}] * 3


@each_kind
@pytest.mark.parametrize("action", ["annotate", "replace", "raise"])
def test_the_whole_answer_is_held(kind: str, action: str) -> None:
    """Nothing leaves before the verdict; the call is judged once."""
    for pieces, good in ((PIECES[:2], True), (PIECES, False)):
        judge, events, seen = ReadingJudge(GOOD), [], []
        captured = watch(judge)
        try:
            for piece in read(kind, guard(action, stream="all"), pieces, events):
                events.append("left")
                seen.append(piece)
        except GuardBlocked:
            seen.append("blocked")
        assert "left" not in events[: events.index("closed")]
        expected = {"annotate": PIECES, "replace": ["no answer"], "raise": ["blocked"]}
        assert seen == (pieces if good else expected[action])
        assert ragtrace.flush()
        assert judge.asked == ["".join(pieces)]
        assert outcome(captured.root().attributes)[0] == ("pass" if good else "fail")


@each_kind
def test_a_correction_can_follow_an_answer_that_has_left(kind: str) -> None:
    """Pieces leave as they come, and the end of the stream waits for the verdict."""
    judge, events = ReadingJudge(GOOD), []
    watch(judge)
    told: list[GuardNotice] = []
    for piece in read(kind, guard("annotate", stream="after", on_fail=told.append), events=events):
        assert events[-1] == piece
        assert not told
    assert [notice.verdict for notice in told] == ["fail"]
    assert judge.asked == ["".join(PIECES)]
    assert (tally().verdicts, tally().actions) == ({"fail": 1}, {"annotated": 1})


@each_kind
@pytest.mark.parametrize("stream", ["after", "sentence", "all"])
def test_all_sentences_together_are_held_no_longer_than_the_budget(kind: str, stream: str) -> None:
    """The judge hangs: all pieces leave, and the answer is scored when the judge comes round."""
    judge = HangingJudge(GOOD)
    captured = watch(judge)
    assert list(read(kind, guard("annotate", stream=stream, budget_ms=50))) == PIECES
    assert (tally().verdicts, tally().actions) == ({"timeout": 1}, {"released": 1})
    added = captured.metrics()["ragtrace.guard.added"].data_points
    assert sum(point.sum for point in added) < 5
    judge.answer()
    assert ragtrace.flush()
    # Sentences that came too late get their answers at the same time, in any order.
    assert "".join(PIECES) in [call.answer for call in judge.calls]
    assert ragtrace.stats().evaluators["fake"].scored == 1


@each_kind
def test_the_sentences_that_could_not_be_checked_are_counted(kind: str) -> None:
    """On the span and on the event; the whole answer has the first reason."""

    class Picky(ReadingJudge):
        async def judge(self, call: RagCall) -> Judgement:
            if "Mars" in (call.answer or ""):
                raise JudgeError("refused", retryable=False)
            return GOOD

    captured = watch(Picky(GOOD))
    assert list(read(kind, guard("raise", stream="sentence"))) == PIECES
    assert ragtrace.flush()
    events = [each.log_record for each in captured.events if each.log_record.event_name == "ragtrace.guard.result"]
    for attributes in (captured.root().attributes, events[0].attributes):
        assert outcome(attributes) == ("error", "released", "refused")
        assert [(attributes or {})[f"ragtrace.guard.{name}"] for name in ("sentences", "sentences_unchecked")] == [3, 1]


def test_a_budget_that_sentences_have_spent_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is for all sentences together, which users may not expect; a judge that never answers is another matter."""

    class Tiring(HangingJudge):
        async def judge(self, call: RagCall) -> Judgement:
            return GOOD if call.answer == SENTENCES[0] else await super().judge(call)

    judge = Tiring(GOOD)
    watch(judge)
    tiring = guard("raise", stream="sentence", budget_ms=2_000)
    for _ in range(2):
        assert list(read("sync", tiring)) == PIECES
    judge.answer()
    assert ragtrace.flush()
    told = [record.getMessage() for record in caplog.records if "has spent its budget" in record.getMessage()]
    assert len(told) == 1
    assert "on the first 1 of the 3 sentences" in told[0]
    assert tally().verdicts == {"timeout": 2}


@each_kind
@pytest.mark.parametrize("stream", ["sentence", "all"])
def test_a_closed_guard_holds_a_stream_that_is_not_checked(kind: str, stream: str) -> None:
    """Nothing leaves but the fallback."""
    judge = HangingJudge(GOOD)
    watch(judge)
    assert list(read(kind, guard("replace", stream=stream, budget_ms=20, on_error="closed"))) == ["no answer"]
    assert (tally().verdicts, tally().actions) == ({"timeout": 1}, {"replaced": 1})
    judge.let_go()


def test_pieces_of_other_kinds_pass_in_their_places() -> None:
    """What carries no text leaves with the text around it."""
    judge = ReadingJudge(GOOD)
    watch(judge)
    pieces: list[Any] = [
        {"usage": 1},
        "Paris is big. ",
        {"content": "Rome"},
        {"usage": 2},
        {"content": " is old."},
        None,
    ]

    @ragtrace.trace(guard=guard("raise", stream="sentence"))
    def ask(question: str) -> Iterator[Any]:
        search(question)
        yield from pieces

    seen = list(ask("Where is Paris?"))
    assert [id(piece) for piece in seen] == [id(piece) for piece in pieces]
    assert judge.asked == ["Paris is big.", "Rome is old."]


def test_the_text_of_a_piece_is_where_answer_says() -> None:
    """As it is recorded."""
    judge = ReadingJudge(GOOD)
    watch(judge)

    @ragtrace.trace(guard=guard("raise", stream="sentence"), answer=lambda piece: piece["said"])
    def ask(question: str) -> Iterator[Any]:
        search(question)
        yield {"said": "Paris is big."}

    assert list(ask("Where is Paris?")) == [{"said": "Paris is big."}]
    assert judge.asked == ["Paris is big."]


class Foreign:
    """Piece of a class that nobody knows, with a text."""

    def __init__(self, payload: str) -> None:
        self.payload = payload


def refuse(piece: object) -> object:
    """Select the text of a piece, and fail at it."""
    raise KeyError(piece)


UNREAD: dict[str, tuple[Callable[[str], object], dict[str, Any]]] = {
    "unknown class": (Foreign, {}),
    "answer= raises": (str, {"answer": refuse}),
    "answer= finds nothing": (Foreign, {"answer": lambda _: None}),
    "framed events": (lambda text: f"data: {text}\n\n".encode(), {}),
    "pieces without text": (lambda text: {"usage": len(text)}, {}),
    "pairs of texts": (lambda text: ("a", text), {}),
    "lists of texts": (lambda text: [text, text], {}),
}


@each_kind
@pytest.mark.parametrize("unread", UNREAD)
def test_a_closed_guard_lets_no_piece_leave_whose_text_is_not_found(kind: str, unread: str) -> None:
    """That no text was found does not say that there was nothing to check."""
    watch(ReadingJudge(GOOD))
    as_piece, options = UNREAD[unread]
    pieces = [as_piece(text) for text in ("Paris is big. ", "Rome is old. ", "Bonn is small.")]
    decorate = ragtrace.trace(name="guarded", guard=guard("raise", stream="sentence", on_error="closed"), **options)

    def ask(question: str) -> Iterator[object]:
        search(question)
        yield from pieces

    async def aask(question: str) -> AsyncGenerator[object, None]:
        for piece in ask(question):
            yield piece

    seen: list[object] = []

    async def drain() -> None:
        async for piece in decorate(aask)("Where is Paris?"):
            seen.append(piece)  # noqa: PERF401 - what came before the exception counts

    with pytest.raises(GuardBlocked):
        asyncio.run(drain()) if kind == "async" else seen.extend(decorate(ask)("Where is Paris?"))
    assert seen == []
    assert (tally().verdicts, tally().actions) == ({"unscored": 1}, {"raised": 1})


@pytest.mark.parametrize("unknown", [Foreign, lambda text: {"payload": text}, lambda text: ("a", text), bytearray])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_closed_guard_holds_a_piece_that_is_not_understood_among_others(
    unknown: Callable[[Any], object], place: int
) -> None:
    """And those around it: the answer is not known any more. What had passed before has left."""
    watch(ReadingJudge(GOOD))
    pieces: list[object] = ["Paris is big. ", "Rome is old. "]
    pieces.insert(place, unknown(b"On Mars." if unknown is bytearray else "On Mars."))

    @ragtrace.trace(name="guarded", guard=guard("raise", stream="sentence", on_error="closed"))
    def ask(question: str) -> Iterator[object]:
        search(question)
        yield from pieces

    seen: list[object] = []
    with pytest.raises(GuardBlocked, match="unscored"):
        seen.extend(ask("Where is Paris?"))
    assert seen == (["Paris is big. "] if place == 2 else [])
    assert tally().verdicts == {"unscored": 1}


@each_kind
@pytest.mark.parametrize("stream", ["sentence", "all"])
def test_a_closed_guard_raises_where_nothing_can_replace_a_piece(kind: str, stream: str) -> None:
    """No piece leaves that has not passed, whatever its class."""
    watch(ReadingJudge(GOOD))
    pieces: Any = [{"content": "It is on Mars. "}, {"content": "Rome is old."}]
    reader, seen = read(kind, guard("replace", stream=stream, on_error="closed"), pieces), []
    with pytest.raises(GuardBlocked, match="fail"):
        seen.extend(reader)
    assert seen == []
    assert (tally().verdicts, tally().actions) == ({"fail": 1}, {"raised": 1})


@pytest.mark.parametrize("on_error", ["open", "closed"])
def test_pieces_before_the_first_text_leave_with_it(on_error: str) -> None:
    """Behind a closed guard, and at once behind an open one."""
    events: list[Any] = []
    watch(ReadingJudge(GOOD))
    role: dict[str, Any] = {"role": "assistant", "content": ""}

    @ragtrace.trace(name="guarded", guard=guard("raise", stream="sentence", on_error=on_error))
    def ask(question: str) -> Iterator[object]:
        search(question)
        yield role
        events.append("text")
        yield {"content": "Paris is big."}

    for piece in ask("Where is Paris?"):
        events.append(piece)  # noqa: PERF402 - the function adds to it, too
    assert events.index("text") == (0 if on_error == "closed" else 1)
    assert tally().verdicts == {"pass": 1}


def test_what_comes_after_the_most_that_is_kept_of_a_stream_is_checked() -> None:
    """The guard sees all of it, sentence by sentence."""
    watch(ReadingJudge(GOOD))

    @ragtrace.trace(name="guarded", guard=guard("raise", stream="sentence", on_error="closed"))
    def ask(question: str) -> Iterator[object]:
        search(question)
        yield {"content": "Paris is big. "}
        yield {"content": "Rome is old. "}
        yield {"content": " " * MAX_STREAM_CHARS}
        yield {"content": "Bonn is on Mars."}

    with pytest.raises(GuardBlocked) as blocked:
        list(ask("Where is Paris?"))
    assert blocked.value.notice.verdict == "fail"


class AsyncLines:
    """An asynchronous iterator without a method to close it."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = iter(pieces)

    def __aiter__(self) -> AsyncLines:
        return self

    async def __anext__(self) -> str:
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration


@each_kind
@pytest.mark.parametrize("action", ["raise", "replace"])
def test_a_blocked_stream_ends_its_call_though_it_cannot_be_closed(kind: str, action: str) -> None:
    """Nobody reads it any more: a shutdown waits for its call no longer than for any other."""
    captured = watch(ReadingJudge(GOOD))

    @ragtrace.trace(name="guarded", guard=guard(action, stream="sentence"))
    def ask(question: str) -> Iterator[str] | AsyncLines:
        search(question)
        return map(str, PIECES) if kind == "sync" else AsyncLines(PIECES)

    async def drain(stream: Any) -> None:
        async for _ in stream:
            pass

    stream: Any = ask("Where is Paris?")  # which is kept, as an application does that logs what it has raised
    with contextlib.suppress(GuardBlocked):
        list(stream) if kind == "sync" else asyncio.run(drain(stream))
    assert ragtrace.shutdown(WAIT_S)
    assert [span.name for span in captured.roots()] == ["invoke_workflow guarded"]


def plays() -> dict[str, Callable[[Reader], None]]:
    """What a reader may do with a stream."""

    def normal(reader: Reader) -> None:
        reader.drain()

    def send(reader: Reader) -> None:
        reader.next()
        reader.send("hello")
        reader.drain()

    def throw_caught(reader: Reader) -> None:
        reader.next()
        reader.throw(LookupError("x"))
        reader.drain()

    def throw_uncaught(reader: Reader) -> None:
        reader.next()
        reader.throw(KeyError("thrown"))
        reader.drain()

    def early_close(reader: Reader) -> None:
        reader.next()
        reader.close()
        reader.close()
        reader.drain()

    def dropped(reader: Reader) -> None:
        reader.next()
        reader.drop()

    return {each.__name__: each for each in (normal, send, throw_caught, throw_uncaught, early_close, dropped)}


@pytest.mark.parametrize("kind", STREAMS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("play", plays().values(), ids=lambda play: play.__name__)
@pytest.mark.parametrize("query", ["q", "boom", "interrupt"])
def test_a_stream_that_is_checked_afterwards_is_like_any_other(
    kind: KindOfFunction, play: Callable[[Reader], None], query: str
) -> None:
    """Sending, throwing, closing and exceptions are those of the undecorated function, and the call is handed over."""
    captured = watch(FakeJudge(GOOD))
    loop = asyncio.new_event_loop()
    decorate = ragtrace.trace(name="guarded", guard=guard("annotate", stream="after", metric="answered"))
    expected = Reader(kind, kind.build(lambda function: function), query, loop)
    seen = Reader(kind, kind.build(decorate), query, loop)
    play(expected)
    play(seen)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    assert seen.log == expected.log
    del seen
    assert ragtrace.flush()
    assert len(captured.roots()) == 1
    if query == "q" and play.__name__ == "normal":
        assert tally().verdicts == {"pass": 1}


@pytest.mark.parametrize("stream", ["sentence", "all"])
@pytest.mark.parametrize("kind", STREAMS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("query", ["q", "boom"])
@pytest.mark.parametrize("play", ["normal", "early_close", "dropped"])
def test_a_held_stream_gives_what_the_function_gives(kind: KindOfFunction, stream: str, query: str, play: str) -> None:
    """The same pieces in the same order, then the same exception or return value."""
    captured = watch(FakeJudge(GOOD))
    loop = asyncio.new_event_loop()
    decorate = ragtrace.trace(name="guarded", guard=guard("raise", stream=stream, metric="answered"))
    expected = Reader(kind, kind.build(lambda function: function), query, loop)
    seen = Reader(kind, kind.build(decorate), query, loop)
    plays()[play](expected)
    plays()[play](seen)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    assert seen.log == expected.log
    del seen
    assert ragtrace.flush()
    assert len(captured.roots()) == 1
    if query == "q":  # a reader that asks for one piece gets it once all have passed
        assert tally().verdicts == {"pass": 1}


@pytest.mark.parametrize("stream", ["after", "sentence", "all"])
@pytest.mark.parametrize("make", ITERATORS.values(), ids=ITERATORS.keys())
def test_an_iterator_is_held_and_stays_one(make: Callable[[Sequence[str]], Any], stream: str) -> None:
    """It passes for its type, and gives the same objects in the same order."""
    watch(FakeJudge(GOOD))
    decorate = ragtrace.trace(name="guarded", guard=guard("annotate", stream=stream, metric="answered"))
    found = decorate(lambda question: make(GOOD_PIECES))("Where is Paris?")
    assert isinstance(found, type(make(GOOD_PIECES)))
    assert iter(found) is found
    assert list(map(id, found)) == list(map(id, make(GOOD_PIECES)))
    assert tally().verdicts == {"pass": 1}


@pytest.mark.parametrize("stream", ["after", "sentence", "all"])
def test_a_held_stream_that_was_closed_gives_nothing_any_more(stream: str) -> None:
    """Also one of a class whose `close` ends nothing, as they would leave unchecked; what is not held goes on."""
    watch(FakeJudge(GOOD))
    decorate = ragtrace.trace(name="guarded", guard=guard("annotate", stream=stream, metric="answered"))
    found = decorate(lambda question: Lines(GOOD_PIECES))("Where is Paris?")
    assert next(found) == GOOD_PIECES[0]
    assert found.close() == "closed"
    assert list(found) == (GOOD_PIECES[1:] if stream == "after" else [])


@pytest.mark.parametrize("action", ["annotate", "replace"])
@pytest.mark.parametrize("stream", ["sentence", "all"])
def test_a_stream_that_is_closed_while_it_is_checked_gives_nothing_any_more(stream: str, action: str) -> None:
    """As a server does on a thread of its own when the client has gone; the answer is counted once."""
    judge = HangingJudge(BAD)
    watch(judge)
    decorate = ragtrace.trace(name="guarded", guard=guard(action, stream=stream, on_error="closed"))

    @decorate
    def ask(question: str) -> Any:
        search(question)
        return Lines(GOOD_PIECES)

    found, got = ask("Where is Paris?"), []
    reading = threading.Thread(target=lambda: got.extend(found))
    reading.start()
    assert judge.asked.wait(WAIT_S)
    assert found.close() == "closed"
    judge.answer()
    reading.join(WAIT_S)
    assert got == []
    assert ragtrace.flush()
    assert tally().calls == 1


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("stream", ["after", "sentence", "all"])
def test_a_stream_for_both_kinds_of_loops_is_held_in_either(asynchronous: bool, stream: str) -> None:
    """Some instrumentations make such streams of those of the OpenAI client."""
    watch(FakeJudge(GOOD))
    decorate = ragtrace.trace(name="guarded", guard=guard("annotate", stream=stream, metric="answered"))
    ask = decorate(lambda question: EitherIterating(question))

    async def read_all() -> list[str]:
        return [piece async for piece in ask("q")]

    assert (asyncio.run(read_all()) if asynchronous else list(ask("q"))) == ["one ", "two ", "three"]
    assert tally().verdicts == {"pass": 1}


@pytest.mark.parametrize("stream", ["after", "sentence", "all"])
@pytest.mark.parametrize("query", ["hang", "q"])
@pytest.mark.parametrize(
    "kind",
    [kind for kind in STREAMS if kind.asynchronous and kind.name != "coroutine returning a generator"],
    ids=lambda kind: kind.name,
)
def test_cancelling_a_reader_is_as_without_a_guard(kind: KindOfFunction, stream: str, query: str) -> None:
    """While the function works, and while the answer is checked; what has left by then is the same or less."""
    judge = HangingJudge()
    captured = watch(judge)

    async def cancel(function: Any, query: str) -> tuple[list[str], bool]:
        got: list[str] = []

        async def drain() -> None:
            result = function(query)
            async for piece in await result if inspect.isawaitable(result) else result:
                got.append(piece)  # noqa: PERF401 - what came before the cancellation counts

        task = asyncio.ensure_future(drain())
        if query == "q":
            await asyncio.to_thread(judge.asked.wait, WAIT_S)
        for _ in range(10):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        return got, task.cancelled()

    decorate = ragtrace.trace(name="guarded", guard=guard("annotate", stream=stream, metric="answered"))
    got, cancelled = asyncio.run(cancel(kind.build(decorate), query))
    assert cancelled
    assert got == {"after": ["one "] if query == "hang" else ["one ", "two ", "three"]}.get(stream, [])
    judge.let_go()
    assert ragtrace.flush()
    assert len(captured.roots()) == 1
    assert tally().verdicts == {"unscored": 1}


@each_kind
@pytest.mark.parametrize("stream", ["after", "sentence", "all"])
def test_a_stream_that_its_reader_leaves_is_counted(kind: str, stream: str) -> None:
    """Also where a check has passed; it is scored as any stream that was left."""
    captured = watch(ReadingJudge(GOOD))
    reader = read(kind, guard("raise" if stream != "after" else "annotate", stream=stream), GOOD_PIECES)
    next(reader)
    reader.close()  # type: ignore[attr-defined]
    assert ragtrace.flush()
    assert tally().calls == 1
    assert (captured.root().attributes or {})["ragtrace.eval.status"] == "ok"


class Ending(Exception):  # noqa: N818 - it ends a stream
    """Exception of a function that streams."""


ENDS = ["read", "left", "closed", "cancelled", "failed"]


async def read_to(end: str, ask: Callable[[str], AsyncGenerator[str, None]], stuck: asyncio.Event) -> None:
    """Read a stream, and end it as *end* says."""
    reader = ask(end)

    async def drain() -> None:
        async for _ in reader:
            if end in ("left", "closed"):
                break

    task = asyncio.ensure_future(drain())
    if end == "cancelled":
        await stuck.wait()
        task.cancel()
    await asyncio.wait({task})
    if end == "failed":
        assert isinstance(task.exception(), Ending)
    if end == "closed":
        await reader.aclose()


@pytest.mark.parametrize("stream", ["after", "sentence", "all"])
@pytest.mark.parametrize("end", ENDS)
def test_every_way_to_end_a_stream_counts_once(end: str, stream: str, tmp_path: Path) -> None:
    """Counts, metric, span, event and history have one answer each, with the same verdict and action."""
    store = tmp_path / "history.db"
    captured = watch(ReadingJudge(GOOD), store=store)

    async def run() -> None:
        stuck = asyncio.Event()

        @ragtrace.trace(name="guarded", guard=guard("annotate", stream=stream))
        async def ask(end: str) -> AsyncGenerator[str, None]:
            search(end)
            yield "Paris is big. "
            yield "Rome is old. "
            if end == "cancelled":
                stuck.set()
                await asyncio.Event().wait()
            if end == "failed":
                raise Ending
            yield "Bonn is small."

        await read_to(end, ask, stuck)

    asyncio.run(run())
    check_that_all_outlets_agree(captured, store)


@pytest.mark.parametrize("stream", ["after", "sentence", "all"])
@pytest.mark.parametrize("end", ["read", "left", "closed", "interrupted", "failed"])
def test_every_way_to_end_a_plain_stream_counts_once(end: str, stream: str, tmp_path: Path) -> None:
    """Ctrl-C in the function included."""
    store = tmp_path / "history.db"
    captured = watch(ReadingJudge(GOOD), store=store)

    @ragtrace.trace(name="guarded", guard=guard("annotate", stream=stream))
    def ask(end: str) -> Iterator[str]:
        search(end)
        yield "Paris is big. "
        yield "Rome is old. "
        if end in ("interrupted", "failed"):
            raise KeyboardInterrupt if end == "interrupted" else Ending
        yield "Bonn is small."

    reader: Any = ask(end)
    try:
        for _ in reader:
            if end in ("left", "closed"):
                break
        reader.close() if end == "closed" else None
    except (KeyboardInterrupt, Ending):
        pass
    del reader
    gc.collect()
    check_that_all_outlets_agree(captured, store)


def check_that_all_outlets_agree(captured: Captured, store: Path) -> None:
    """Check that one answer is counted, and that each outlet has the same verdict and action for it."""
    assert ragtrace.flush(WAIT_S)
    counted = tally()
    assert counted.calls == 1
    (verdict,), (action,) = counted.verdicts, counted.actions
    point = captured.metrics()["ragtrace.guard.results"].data_points[0]
    events = [each.log_record for each in captured.events if each.log_record.event_name == "ragtrace.guard.result"]
    found = [outcome(captured.root().attributes)[:2], outcome(point.attributes)[:2], outcome(events[0].attributes)[:2]]
    assert found == [(verdict, action)] * 3
    assert (len(captured.roots()), len(events), point.value) == (1, 1, 1)
    ragtrace.shutdown(WAIT_S)
    with sqlite3.connect(store) as connection:
        assert connection.execute("SELECT verdict, action FROM guard_verdicts").fetchall() == [(verdict, action)]


def test_a_cancelled_reader_ends_the_call() -> None:
    """While a sentence is checked."""
    judge = HangingJudge(GOOD)
    captured = watch(judge)
    closed = []

    @ragtrace.trace(name="guarded", guard=guard("raise", stream="sentence"))
    async def ask(question: str) -> AsyncGenerator[str, None]:
        search(question)
        try:
            for piece in PIECES:
                yield piece
        finally:
            closed.append(True)

    async def leave() -> None:
        async def drain() -> None:
            async for _ in ask("Where is Paris?"):
                pass

        task = asyncio.ensure_future(drain())
        await asyncio.to_thread(judge.asked.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    judge.answer()
    assert ragtrace.flush()
    assert closed == [True]
    assert outcome(captured.root().attributes)[0] == "unscored"
    assert tally().calls == 1


ASKED: Any = {"model": "tiny", "messages": [{"role": "user", "content": "How high is it?"}], "stream": True}


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with completions_server() as address:
        yield address


@pytest.mark.parametrize("stream", ["after", "sentence", "all"])
def test_a_stream_of_openai_is_held_and_stays_one(stream: str, base_url: str) -> None:
    """Its attributes and its block work as without a guard."""
    judge = ReadingJudge(GOOD)
    watch(judge)
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:

        @ragtrace.trace(name="guarded", guard=guard("annotate", stream=stream))
        def ask(question: str) -> Any:
            search(question)
            return client.chat.completions.create(**ASKED)

        answer = ask("How high is it?")
        assert isinstance(answer, openai.Stream)
        assert callable(answer.close)  # looked up and not called, as frameworks do
        with answer as entered:
            assert "".join(chunk.choices[0].delta.content or "" for chunk in entered) == "".join(WORDS)
        with ask("How high is it?") as left:
            next(left)
    assert ragtrace.flush()
    assert judge.asked.count("The tower is 330 metres high.") == 1
    # A reader that asks for one piece gets it once the only sentence has passed, or at once.
    assert tally().verdicts == ({"pass": 1, "unscored": 1} if stream == "after" else {"pass": 2})


def test_an_asynchronous_stream_of_openai_is_held(base_url: str) -> None:
    """For a coroutine function that returns one."""
    judge = ReadingJudge(GOOD)
    watch(judge)

    @ragtrace.trace(name="guarded", guard=guard("raise", stream="sentence"))
    async def ask(client: openai.AsyncOpenAI, question: str) -> Any:
        search(question)
        return await client.chat.completions.create(**ASKED)

    async def drain() -> str:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
            answer = await ask(client, "How high is it?")
            assert callable(answer.close)
            async with answer:
                return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])

    assert asyncio.run(drain()) == "".join(WORDS)
    assert tally().verdicts == {"pass": 1}

"""Calls of decorated functions made at random: anything as argument, result, piece of a stream or exception.

What the application must see comes from how the call was made: the same objects, in the same order, and the same end.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections import OrderedDict, UserDict, UserList, deque, namedtuple
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import PurePath
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final
from unittest.mock import MagicMock
from uuid import UUID

from pydantic import BaseModel, ConfigDict

import ragtrace

NAMES: Final = (
    "text", "content", "page_content", "document", "documents", "results", "metadata", "id", "score", "answer",
    "message", "messages", "choices", "delta", "role", "type", "data", "query", "question", "error", "status",
    "isError", "hits", "usage", "model", "tool_calls", "headers", "status_code", "response_gen", "finish_reason",
    "snapshot", "output", "other",
)  # fmt: skip
WORDS: Final = (
    "tool",
    "assistant",
    "user",
    "text",
    "error",
    "done",
    "delta",
    "330",
    "The tower is tall.",
    "<think>",
    "",
)
TEXTS: Final = (
    "", " ", "why?", "The Eiffel Tower is 330 metres tall.", "d-1", "a.pdf", "[REDACTED]", "<think>so</think>It is.",
    '{"answer": "It is tall."}', "[1, 2", 'data: {"text": "a"}\n\n', '0:"a"\n', "\ud800 lone", "nul \0",
    "\u202e\x1b[2J", "\N{ROMAN NUMERAL ONE}" * 9, "埃菲尔铁塔高三百三十米", "x" * 30_000, "{" * 2_000,
    "</think>", "…",
)  # fmt: skip


class Abort(BaseException):
    """An end that no `except Exception` sees, as that of trio's or gevent's cancellation."""


class MuteError(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Raising:
    """An object that refuses everything but being passed on."""

    def _no(self, *_: object, **__: object) -> Any:
        raise RuntimeError("do not touch")

    __getattr__ = __len__ = __iter__ = __getitem__ = __str__ = __repr__ = __bool__ = __eq__ = __call__ = _no
    __float__ = __int__ = __index__ = __contains__ = __copy__ = __deepcopy__ = __reduce_ex__ = _no  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]
    text = content = answer = query = documents = property(_no)


class RaisingList(list[object]):
    """A list whose own methods raise."""

    __len__ = __iter__ = __getitem__ = __bool__ = __eq__ = Raising._no  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class RaisingDict(dict[str, object]):
    """A dict whose own methods raise."""

    __len__ = __iter__ = __getitem__ = get = keys = items = values = __eq__ = Raising._no  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class RaisingText(str):
    """A text whose own methods raise."""

    __len__ = __iter__ = __getitem__ = __str__ = strip = split = encode = __eq__ = Raising._no  # type: ignore[assignment]
    __hash__ = str.__hash__


class RaisingMeta(type):
    """A class that cannot be compared, hashed or asked."""

    __eq__ = __instancecheck__ = __subclasscheck__ = __repr__ = Raising._no  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class OfRaisingMeta(metaclass=RaisingMeta):
    """An instance of it."""


class Open(BaseModel):
    """A model with fields that it does not declare."""

    model_config = ConfigDict(extra="allow")


@dataclass
class Record:
    """A record of an application."""

    text: object = ""
    score: object = 0.5
    extra: list[object] = field(default_factory=list[object])


class Slots:
    """A record without a dictionary, and with an empty slot."""

    __slots__ = ("answer", "content", "text")

    def __init__(self, text: object) -> None:
        self.text = text


class Kind(Enum):
    """A value of an enumeration."""

    A = "a"


Row = namedtuple("Row", "id text score")
_SCALARS: Final[tuple[object, ...]] = (
    None, True, 0, -1, 10**400, 0.5, float("nan"), float("inf"), 1j, b"bytes", b"\xff", bytearray(b"a"), Kind.A,
    int, Decimal("1.5"), Decimal("sNaN"), date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=timezone.utc), timedelta(1),
    UUID(int=1), ..., NotImplemented, PurePath("a"), len, ValueError("said"), MuteError(), range(3),
    slice(1), frozenset({1}), {1, 2},
)  # fmt: skip


def value(rng: Random, depth: int = 0) -> Any:
    """Any object: plain, hostile, of a known shape or of none, with others inside."""
    kind = rng.randrange(34 if depth < 4 else 8)
    if kind < 4:
        return rng.choice(TEXTS)
    if kind < 7:
        return rng.choice(_SCALARS)
    inner = partial(value, rng, depth + 1)
    if kind < 12:
        return [inner() for _ in range(rng.choice((0, 1, 2, 3, 40 if depth < 2 else 1)))]
    if kind < 16:
        return record(rng, depth)
    match kind:
        case 16:
            return tuple(inner() for _ in range(rng.randrange(4)))
        case 17:
            return SimpleNamespace(**record(rng, depth))
        case 18:
            return Open(**record(rng, depth))
        case 19:
            return Record(inner(), inner(), [inner()])
        case 20:
            return Slots(inner())
        case 21:
            return Row(inner(), inner(), inner())
        case 22:
            return [(f"d{at}", rng.choice(TEXTS), rng.random()) for at in range(3)]
        case 23:
            return rng.choice((UserDict, MappingProxyType, OrderedDict, RaisingDict))(record(rng, depth))
        case 24:
            return rng.choice((UserList, deque, RaisingList))([inner(), inner()])
        case 25:
            return RaisingText(rng.choice(TEXTS))
        case 26:
            return rng.choice((Raising, OfRaisingMeta, MagicMock, object))()
        case 27:
            return {inner_key: inner() for inner_key in (1, "text", (1,), None, Kind.A)}
        case 28:
            held: list[object] = [inner()]
            held.append({"text": held, "documents": held})
            return held
        case 29:
            return {"choices": [{"message": {"role": "assistant", "content": inner(), "tool_calls": [inner()]}}]}
        case 30:
            return [{"role": rng.choice(WORDS), "content": inner()} for _ in range(3)]
        case 31:
            return {
                "content": [{"type": rng.choice(("text", "image")), "text": inner()}],
                "isError": rng.choice((True, False)),
            }
        case 32:
            return rng.choice((io.StringIO("a"), io.BytesIO(b"a"), threading.Lock(), asyncio.sleep, type("T", (), {})))
        case _:
            return (inner(), record(rng, depth))


def record(rng: Random, depth: int = 0) -> dict[str, object]:
    """A dict with well-known names of fields, and anything in them."""
    names = rng.sample(NAMES, rng.randrange(6))
    return {name: rng.choice(WORDS) if rng.random() < 0.3 else value(rng, depth + 1) for name in names}


def error(rng: Random) -> BaseException:
    """Any exception."""
    kinds = (
        ValueError,
        KeyError,
        MuteError,
        Abort,
        KeyboardInterrupt,
        asyncio.CancelledError,
        StopIteration,
        SystemExit,
    )
    return rng.choice(kinds)(rng.choice(TEXTS))


@dataclass
class Script:
    """What a function does when it is called."""

    pieces: list[object]
    result: object
    error: BaseException | None
    given: tuple[object, ...]
    named: dict[str, object]
    kind: str
    leaves_after: int
    """Number of pieces after which the reader leaves; or throws, where `thrown` is an error."""
    thrown: BaseException | None


KINDS: Final = ("plain", "coroutine", "generator", "async generator", "returned generator", "iterator", "method")
DECORATORS: Final = (ragtrace.trace, ragtrace.retrieve, ragtrace.generate, ragtrace.tool)


def script(rng: Random) -> Script:
    """A call at random."""
    form = rng.randrange(4)
    pieces = [value(rng, 2) for _ in range(rng.choice((0, 1, 2, 5, 30)))]
    if form == 0:
        pieces = [rng.choice(TEXTS[:14]) for _ in pieces]
    elif form == 1:  # pieces of one class, as those of an SDK are
        pieces = [{"type": rng.choice(WORDS), rng.choice(NAMES): rng.choice(TEXTS[:14])} for _ in pieces]
    return Script(
        pieces,
        value(rng),
        error(rng) if rng.random() < 0.2 else None,
        tuple(value(rng, 1) for _ in range(rng.randrange(4))),
        {
            name: value(rng, 1)
            for name in rng.sample(("question", "docs", "model", "k", "session_id", "other"), rng.randrange(4))
        },
        rng.choice(KINDS),
        rng.choice((0, 1, 3, 99)),
        error(rng) if rng.random() < 0.1 else None,
    )


class Pieces:
    """An iterator of an SDK's kind, with pieces that end as the script says."""

    def __init__(self, made: Script) -> None:
        self._inner = _generate(made)

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        return next(self._inner)


def _generate(made: Script) -> Iterator[object]:
    yield from made.pieces
    if made.error is not None:
        raise made.error
    return made.result


def function_of(made: Script) -> Callable[..., Any]:
    """The function of a script, undecorated."""

    def plain(*args: object, **kwargs: object) -> object:
        if made.error is not None:
            raise made.error
        return made.result

    def generator(question: object = None, *args: object, **kwargs: object) -> Iterator[object]:
        return (yield from _generate(made))

    async def coroutine(*args: object, query: object = None, **kwargs: object) -> object:
        return plain()

    async def async_generator(*args: object, **kwargs: object) -> AsyncIterator[object]:
        for piece in made.pieces:
            yield piece
        if made.error is not None:
            raise made.error

    def returns(question: object = "q", *args: object, **kwargs: object) -> object:
        return _generate(made)

    def iterates(*args: object, **kwargs: object) -> object:
        return Pieces(made)

    return dict(zip(KINDS, (plain, coroutine, generator, async_generator, returns, iterates, plain), strict=True))[
        made.kind
    ]


def decorated(made: Script, rng: Random) -> Callable[..., Any]:
    """The function of a script, decorated in one of the ways there are, with functions that may fail as arguments."""

    def select(given: object) -> object:
        if rng.random() < 0.3:
            raise RuntimeError("selector")
        return value(rng, 2) if rng.random() < 0.3 else given

    kind = rng.randrange(len(DECORATORS))
    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options["query"] = select
    if rng.random() < 0.3:
        options[("answer", "documents", "answer", "result")[kind]] = select
    if kind in (0, 2) and rng.random() < 0.2:
        options["reduce"] = select
    function: Any = function_of(made)
    wrap: Any = DECORATORS[kind](**options) if options else DECORATORS[kind]
    if made.kind == "method":
        return type("Service", (), {"run": wrap(lambda self, *args, **kwargs: function(*args, **kwargs))})().run  # type: ignore[no-any-return]
    return wrap(function)  # type: ignore[no-any-return]


def outcome(function: Callable[..., Any], made: Script) -> list[object]:
    """What the application sees of a call: each object by its identity, and how the call ends."""
    seen: list[object] = []
    try:
        found = function(*made.given, **made.named)
        if made.kind in ("plain", "method"):
            return [id(found)]
        if made.kind == "coroutine":
            return [id(_ended(found.send, None))]
        stream = found if made.kind != "async generator" else _Sync(found)
        for at in range(100):
            if at == made.leaves_after:
                if made.thrown is None or not hasattr(stream, "throw"):
                    getattr(stream, "close", lambda: None)()
                    return [*seen, "left"]
                seen.append(id(stream.throw(made.thrown)))
            seen.append(id(next(stream)))
    except StopIteration as stop:
        return [*seen, "ended", id(stop.value) if made.kind != "iterator" else None]
    except BaseException as raised:
        is_ours = raised is made.error or raised is made.thrown
        return [*seen, type(raised), id(raised) if is_ours else type(raised.__cause__)]
    return seen


def _ended(send: Callable[[object], object], sent: object) -> object:
    try:
        send(sent)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits for something")


class _Sync:
    """An async generator that waits for nothing, read without an event loop."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __next__(self) -> object:
        try:
            return _ended(self._inner.__anext__().send, None)
        except StopAsyncIteration:
            raise StopIteration from None

    def throw(self, thrown: BaseException) -> object:
        try:
            return _ended(self._inner.athrow(thrown).send, None)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        _ended(self._inner.aclose().send, None)

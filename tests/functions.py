"""Every kind of function a user may decorate, and a decorated and a plain twin of each to compare."""

from __future__ import annotations

import asyncio
import inspect
import io
import itertools
import sqlite3
import tempfile
import threading
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import ragtrace

Make: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
PIECES = ["one ", "two ", "three"]


class BoomError(Exception):
    """What the user's functions raise."""


def plain(query: str) -> str:
    if query == "boom":
        raise BoomError(query)
    if query == "interrupt":
        raise KeyboardInterrupt
    return "".join(PIECES)


async def coroutine(query: str) -> str:
    await asyncio.sleep(0)
    if query == "hang":
        await asyncio.Event().wait()
    return plain(query)


def generator(query: str) -> Generator[Any, Any, str]:
    heard = []
    for piece in PIECES:
        if query == "boom" and piece == PIECES[1]:
            raise BoomError(query)
        if query == "interrupt" and piece == PIECES[1]:
            raise KeyboardInterrupt
        try:
            heard.append((yield piece))
        except LookupError as error:
            heard.append((yield f"caught {error}"))
    return f"heard {[word for word in heard if word]}"


async def fail_or_hang(query: str, piece: str) -> None:
    await asyncio.sleep(0)
    if query == "boom" and piece == PIECES[1]:
        raise BoomError(query)
    if query == "interrupt" and piece == PIECES[1]:
        raise KeyboardInterrupt
    if query == "hang" and piece == PIECES[1]:
        await asyncio.Event().wait()


async def async_generator(query: str) -> AsyncGenerator[Any, Any]:
    for piece in PIECES:
        await fail_or_hang(query, piece)
        try:
            heard = yield piece
        except LookupError as error:
            heard = yield f"caught {error}"
        if heard:
            yield f"heard {heard}"


async def coroutine_of_generator(query: str) -> Generator[Any, Any, str]:
    await asyncio.sleep(0)
    return generator(query)


async def coroutine_of_async_generator(query: str) -> AsyncGenerator[Any, Any]:
    await asyncio.sleep(0)
    return async_generator(query)


@types.coroutine
def generator_based_coroutine(query: str) -> Generator[Any, Any, str]:
    return (yield from coroutine(query).__await__())


def function_of_future(query: str) -> Future[str]:
    future: Future[str] = Future()
    try:
        future.set_result(plain(query))
    except BaseException as error:
        future.set_exception(error)
    return future


class Iterating:
    """A stream of the application's own class, or of a client library's."""

    def __init__(self, query: str) -> None:
        self.pieces = generator(query)

    def __iter__(self) -> Iterating:
        return self

    def __next__(self) -> Any:
        return next(self.pieces)

    def close(self) -> None:
        self.pieces.close()


class AsyncIterating:
    def __init__(self, query: str) -> None:
        self.apieces = async_generator(query)

    def __aiter__(self) -> AsyncIterating:
        return self

    async def __anext__(self) -> Any:
        return await anext(self.apieces)

    async def aclose(self) -> None:
        await self.apieces.aclose()


class EitherIterating(Iterating, AsyncIterating):
    """A stream for both `for` and `async for`, as some instrumentations make of those of OpenAI."""

    def __init__(self, query: str) -> None:
        Iterating.__init__(self, query)
        AsyncIterating.__init__(self, query)


async def coroutine_of_iterator(query: str) -> AsyncIterating:
    await asyncio.sleep(0)
    return AsyncIterating(query)


class Callables:
    """An instance is called like a function."""

    def __call__(self, query: str) -> str:
        return plain(query)


class AsyncCallables:
    async def __call__(self, query: str) -> str:
        return await coroutine(query)


class GeneratorCallables:
    def __call__(self, query: str) -> Generator[Any, Any, str]:
        return (yield from generator(query))


class AsyncGeneratorCallables:
    async def __call__(self, query: str) -> AsyncGenerator[Any, Any]:
        for piece in PIECES:
            await fail_or_hang(query, piece)
            try:
                yield piece
            except LookupError as error:
                yield f"caught {error}"


def _as_method(decorate: Make) -> Callable[..., Any]:
    class Owner:
        @decorate
        def method(self, query: str) -> str:
            """A method."""
            assert isinstance(self, Owner)
            return plain(query)

    return Owner().method


def _as_async_method(decorate: Make) -> Callable[..., Any]:
    class Owner:
        @decorate
        async def method(self, query: str) -> str:
            assert isinstance(self, Owner)
            return await coroutine(query)

    return Owner().method


def _as_generator_method(decorate: Make) -> Callable[..., Any]:
    class Owner:
        @decorate
        def method(self, query: str) -> Generator[Any, Any, str]:
            assert isinstance(self, Owner)
            return (yield from generator(query))

    return Owner().method


def _as_async_generator_method(decorate: Make) -> Callable[..., Any]:
    class Owner:
        @decorate
        async def method(self, query: str) -> AsyncGenerator[Any, Any]:
            assert isinstance(self, Owner)
            for piece in PIECES:
                await fail_or_hang(query, piece)
                try:
                    yield piece
                except LookupError as error:
                    yield f"caught {error}"

    return Owner().method


def _as_async_classmethod(decorate: Make) -> Callable[..., Any]:
    class Owner:
        @classmethod
        @decorate
        async def method(cls, query: str) -> str:
            assert cls is Owner
            return await coroutine(query)

    return Owner.method


def _as_generator_staticmethod(decorate: Make) -> Callable[..., Any]:
    class Owner:
        @decorate
        @staticmethod
        def method(query: str) -> Generator[Any, Any, str]:
            return (yield from generator(query))

    return Owner.method


def _as_classmethod(decorate: Make) -> Callable[..., Any]:
    class Owner:
        @classmethod
        @decorate
        def method(cls, query: str) -> str:
            assert cls is Owner
            return plain(query)

    return Owner.method


def _as_outer_classmethod(decorate: Make) -> Callable[..., Any]:
    class Owner:
        @decorate
        @classmethod
        def method(cls, query: str) -> str:
            assert cls is Owner
            return plain(query)

    return Owner.method


def _as_staticmethod(decorate: Make) -> Callable[..., Any]:
    class Owner:
        @staticmethod
        @decorate
        def method(query: str) -> str:
            return plain(query)

    return Owner.method


def _as_outer_staticmethod(decorate: Make) -> Callable[..., Any]:
    class Owner:
        @decorate
        @staticmethod
        def method(query: str) -> str:
            return plain(query)

    return Owner().method


def _undecorated(function: Any) -> Any:
    return function


@dataclass(frozen=True)
class KindOfFunction:
    """One row of the matrix."""

    name: str
    build: Callable[[Make], Callable[..., Any]]
    asynchronous: bool = False
    stream: bool = False
    lazy: bool = False
    """Whether nothing of the function runs before its stream is read."""
    iterator: bool = False
    """Whether the stream is no generator, and takes neither `send` nor `throw`."""
    held: bool = True
    """Whether a guard can hold the answer back."""

    def twins(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The function as it is, and decorated."""
        return self.build(_undecorated), self.build(ragtrace.generate)


KINDS = [
    KindOfFunction("function", lambda d: d(plain)),
    KindOfFunction("coroutine", lambda d: d(coroutine), asynchronous=True),
    KindOfFunction("generator", lambda d: d(generator), stream=True, lazy=True),
    KindOfFunction("async generator", lambda d: d(async_generator), asynchronous=True, stream=True, lazy=True),
    KindOfFunction("method", _as_method),
    KindOfFunction("async method", _as_async_method, asynchronous=True),
    KindOfFunction("generator method", _as_generator_method, stream=True, lazy=True),
    KindOfFunction("async generator method", _as_async_generator_method, asynchronous=True, stream=True, lazy=True),
    KindOfFunction("classmethod", _as_classmethod),
    KindOfFunction("classmethod, decorated outside", _as_outer_classmethod),
    KindOfFunction("async classmethod", _as_async_classmethod, asynchronous=True),
    KindOfFunction("staticmethod", _as_staticmethod),
    KindOfFunction("staticmethod, decorated outside", _as_outer_staticmethod),
    KindOfFunction("generator staticmethod, decorated outside", _as_generator_staticmethod, stream=True, lazy=True),
    KindOfFunction("partial", lambda d: d(partial(plain))),
    KindOfFunction("partial of a coroutine", lambda d: d(partial(coroutine)), asynchronous=True),
    KindOfFunction("partial of a generator", lambda d: d(partial(generator)), stream=True, lazy=True),
    KindOfFunction(
        "partial of an async generator",
        lambda d: d(partial(async_generator)),
        asynchronous=True,
        stream=True,
        lazy=True,
    ),
    KindOfFunction("callable object", lambda d: d(Callables())),
    KindOfFunction("async callable object", lambda d: d(AsyncCallables()), asynchronous=True),
    KindOfFunction("generator callable object", lambda d: d(GeneratorCallables()), stream=True, lazy=True),
    KindOfFunction(
        "async generator callable object",
        lambda d: d(AsyncGeneratorCallables()),
        asynchronous=True,
        stream=True,
        lazy=True,
    ),
    KindOfFunction("function returning a coroutine", lambda d: d(lambda query: coroutine(query)), asynchronous=True),
    KindOfFunction("generator-based coroutine", lambda d: d(generator_based_coroutine), asynchronous=True),
    KindOfFunction("function returning a future", lambda d: d(function_of_future), held=False),
    KindOfFunction("function returning a generator", lambda d: d(lambda query: generator(query)), stream=True),
    KindOfFunction(
        "function returning an async generator",
        lambda d: d(lambda query: async_generator(query)),
        asynchronous=True,
        stream=True,
    ),
    KindOfFunction("coroutine returning a generator", lambda d: d(coroutine_of_generator), True, True),
    KindOfFunction("coroutine returning an async generator", lambda d: d(coroutine_of_async_generator), True, True),
    KindOfFunction(
        "function returning an iterator", lambda d: d(lambda query: Iterating(query)), stream=True, iterator=True
    ),
    KindOfFunction(
        "function returning an async iterator",
        lambda d: d(lambda query: AsyncIterating(query)),
        asynchronous=True,
        stream=True,
        iterator=True,
    ),
    KindOfFunction(
        "coroutine returning an async iterator", lambda d: d(coroutine_of_iterator), True, True, iterator=True
    ),
    KindOfFunction(
        "function returning an iterator of both kinds",
        lambda d: d(lambda query: EitherIterating(query)),
        stream=True,
        iterator=True,
    ),
]


class Lines:
    """A user's own iterator, with a method and a close."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.closed = iter(words), False

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        return next(self.words)

    def close(self) -> str:
        self.closed = True
        return "closed"


ITERATORS: Final[Mapping[str, Callable[[Sequence[str]], Any]]] = {
    "map": lambda words: map(str, words),
    "filter": lambda words: filter(None, words),
    "iter(list)": iter,
    "itertools.chain": lambda words: itertools.chain(words[:2], words[2:]),
    "a class": lambda words: Lines(words),
}
"""Iterators over words that a function may return."""

UNTOUCHED: Final[Mapping[str, Callable[[], Any]]] = {
    "an open file": tempfile.TemporaryFile,
    "a text file in memory": lambda: io.StringIO("text"),
    "a file in memory": lambda: io.BytesIO(b"text"),
    "a cursor": lambda: sqlite3.connect(":memory:").cursor(),
    "a range": lambda: range(3),
    "bytes": lambda: b"text",
    "a class": lambda: dict,
    "a function": lambda: len,
    "an exception": lambda: ValueError("x"),
    "a lock": threading.Lock,
}
"""Objects that a function may return and that are no streams of text."""


class Reader:
    """Drives a call of any kind step by step from synchronous code, and writes down all that can be seen of it."""

    def __init__(self, kind: KindOfFunction, function: Callable[..., Any], query: str, loop: asyncio.AbstractEventLoop):
        self._loop, self.log = loop, []
        self.result: Any = self._seen("call", lambda: function(query))
        if isinstance(self.result, Future):
            self.result = self._seen("result", self.result.result)
        if inspect.isawaitable(self.result):
            self.result = self._seen("await", lambda: loop.run_until_complete(_awaited(self.result)))
        if kind.stream:
            self.log.append(("kind", inspect.isgenerator(self.result), inspect.isasyncgen(self.result)))

    log: list[tuple[Any, ...]]

    def next(self) -> None:
        self._step("next", lambda s: next(s), lambda s: s.__anext__())

    def send(self, value: object) -> None:
        self._step("send", lambda s: s.send(value), lambda s: s.asend(value))

    def throw(self, error: BaseException) -> None:
        self._step("throw", lambda s: s.throw(error), lambda s: s.athrow(error))

    def close(self) -> None:
        self._step("close", lambda s: s.close(), lambda s: s.aclose())

    def drain(self) -> None:
        for _ in range(10):
            self.next()
            if self.log[-1][1] == "raised":
                return

    def drop(self) -> None:
        """Forget the stream: it is collected."""
        self.result = None
        for _ in range(4):  # the loop closes asynchronous generators, in tasks of their own
            self._loop.run_until_complete(asyncio.sleep(0))

    def _step(self, name: str, act: Callable[[Any], Any], aact: Callable[[Any], Any]) -> None:
        stream = self.result
        if hasattr(stream, "__next__"):
            self._seen(name, lambda: act(stream))
        elif hasattr(stream, "__anext__"):
            self._seen(name, lambda: self._loop.run_until_complete(_awaited(aact(stream))))
        else:
            self.log.append((name, "not a stream", type(stream)))

    def _seen(self, name: str, act: Callable[[], Any]) -> Any:
        try:
            value = act()
        except BaseException as error:
            self.log.append((name, "raised", type(error), str(error), getattr(error, "value", None)))
            return None
        self.log.append((name, "gave", value if isinstance(value, (str, type(None))) else value.__class__.__name__))
        return value


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable

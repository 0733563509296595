"""Every kind of function a user may decorate, and a decorated and a plain twin of each to compare."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

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


async def async_generator(query: str) -> AsyncGenerator[Any, Any]:
    for piece in PIECES:
        await asyncio.sleep(0)
        if query == "boom" and piece == PIECES[1]:
            raise BoomError(query)
        if query == "interrupt" and piece == PIECES[1]:
            raise KeyboardInterrupt
        if query == "hang" and piece == PIECES[1]:
            await asyncio.Event().wait()
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

    def twins(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """The function as it is, and decorated."""
        return self.build(_undecorated), self.build(ragtrace.generate)


KINDS = [
    KindOfFunction("function", lambda d: d(plain)),
    KindOfFunction("coroutine", lambda d: d(coroutine), asynchronous=True),
    KindOfFunction("generator", lambda d: d(generator), stream=True),
    KindOfFunction("async generator", lambda d: d(async_generator), asynchronous=True, stream=True),
    KindOfFunction("method", _as_method),
    KindOfFunction("async method", _as_async_method, asynchronous=True),
    KindOfFunction("generator method", _as_generator_method, stream=True),
    KindOfFunction("classmethod", _as_classmethod),
    KindOfFunction("classmethod, decorated outside", _as_outer_classmethod),
    KindOfFunction("staticmethod", _as_staticmethod),
    KindOfFunction("staticmethod, decorated outside", _as_outer_staticmethod),
    KindOfFunction("coroutine returning a generator", lambda d: d(coroutine_of_generator), True, True),
    KindOfFunction("coroutine returning an async generator", lambda d: d(coroutine_of_async_generator), True, True),
    KindOfFunction("callable object", lambda d: d(Callables())),
    KindOfFunction("async callable object", lambda d: d(AsyncCallables()), asynchronous=True),
    KindOfFunction("generator callable object", lambda d: d(GeneratorCallables()), stream=True),
]


class Reader:
    """Drives a call of any kind step by step from synchronous code, and writes down all that can be seen of it."""

    def __init__(self, kind: KindOfFunction, function: Callable[..., Any], query: str, loop: asyncio.AbstractEventLoop):
        self._loop, self.log = loop, []
        self.result: Any = self._seen("call", lambda: function(query))
        if inspect.iscoroutine(self.result):
            self.result = self._seen("await", lambda: loop.run_until_complete(self.result))
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
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    def _step(self, name: str, act: Callable[[Any], Any], aact: Callable[[Any], Any]) -> None:
        stream = self.result
        if inspect.isasyncgen(stream):
            self._seen(name, lambda: self._loop.run_until_complete(_awaited(aact(stream))))
        elif inspect.isgenerator(stream):
            self._seen(name, lambda: act(stream))
        else:
            self.log.append((name, "not a stream", type(stream)))

    def _seen(self, name: str, act: Callable[[], Any]) -> Any:
        try:
            value = act()
        except BaseException as error:
            self.log.append((name, "raised", type(error), str(error), getattr(error, "value", None)))
            return None
        self.log.append((name, "gave", value if isinstance(value, (str, type(None))) else type(value).__name__))
        return value


async def _awaited(awaitable: Any) -> Any:
    return await awaitable

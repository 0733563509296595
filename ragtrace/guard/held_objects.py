"""Proxies of the streams that guarded functions return: they give the pieces that the guard lets leave.

A stream of a model's client has other ways to its text than its pieces: methods such as `get_final_text`, a
`text_stream`, the response of the server. What cannot have words of the answer, such as a number or the headers, is
passed on. Before it gives anything else, a proxy tells the guard, which may block it. What is neither is a proxy again.
"""

from __future__ import annotations

import copy
import inspect
import operator
import types
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from typing import Any, Final, cast

from ragtrace.capture.fields import holds_stream, static_attribute, unwrap_proxies
from ragtrace.guard.streams import HeldStream, hold, hold_async
from ragtrace.recording.invocation import Invocation
from ragtrace.recording.proxies import ObservedAsyncStream, ObservedEitherStream, ObservedStream, Proxy

_WITHOUT_WORDS: Final = frozenset(
    "aclose close headers http_version id model reason_phrase request request_id role status type url".split()
)
"""Names of attributes that have no words of the answer, whatever they are."""
_NUMBERS: Final = (int, float, complex, type, types.ModuleType, types.NoneType)
_TEXTS: Final = (str, bytes, bytearray, memoryview, list, tuple, dict, set, frozenset)
"""Classes of what may have words, and that no proxy can stand for."""
_READ: Final = ("__next__", "__anext__", "__aiter__", "__await__")
"""Methods of what may have words, and that would make any proxy a stream or an awaitable."""


class HeldPart(Proxy):
    """Transparent proxy of an object by which the text of a held stream may be read, such as the server's response.

    Args:
        part: the object.
        held: the stream's pieces.
        way: how the object was found, for the log.
    """

    def __init__(self, part: Any, held: HeldStream, way: str) -> None:
        Proxy.__init__(self, part)
        self._self_held, self._self_way = held, way

    def __getattr__(self, name: str) -> Any:
        return _shown(getattr(self.__wrapped__, name), self._self_held, self._self_way, name)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        self._self_held.read_otherwise(f"{self._self_way}.__dict__")
        return self.__wrapped__.__dict__

    def __enter__(self) -> Any:
        return self._self_entered(self.__wrapped__.__enter__())

    async def __aenter__(self) -> Any:
        return self._self_entered(await self.__wrapped__.__aenter__())

    def _self_entered(self, entered: Any) -> Any:
        return self if entered is self.__wrapped__ else _shown(entered, self._self_held, self._self_way, "__enter__")


class HeldMethod(HeldPart):
    """Transparent proxy of a method of a held stream, which may give its text when it is called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._self_held.read_otherwise(f"{self._self_way}()")
        return self.__wrapped__(*args, **kwargs)


def _shown(value: Any, held: HeldStream, owner: str, name: str) -> Any:
    """Return an attribute of a held stream, or a proxy in its place while it may give words that are not checked.

    Raises:
        GuardBlocked: it may have such words, and a closed guard lets none leave.
    """
    kind = cast("type[object]", type(value))
    if held.has_passed or name in _WITHOUT_WORDS or issubclass(kind, _NUMBERS):
        return value
    way = f"{owner}.{name}"
    if issubclass(kind, _TEXTS) or any(_has_own(kind, method) for method in _READ):
        held.read_otherwise(way)
        return value
    return (HeldMethod if callable(value) else HeldPart)(value, held, way)


def _has_own(kind: type[object], method: str) -> bool:
    """Return whether *kind* has a method of its own, and not that of `object`."""
    return static_attribute(kind, method) is not static_attribute(object, method)


def _reading(name: str, give: Callable[..., Any]) -> Any:
    """Return the special method *name*, by which a part gives words, or an object that is not held.

    Args:
        name: the name; to print an object whose class has no text for that gives no words.
        give: makes of the part what the method is to return.
    """

    def read(part: Any, *args: Any) -> Any:
        kind = type(unwrap_proxies(part))
        if give not in (str, format) or any(_has_own(kind, text) for text in ("__str__", "__repr__", "__format__")):
            part._self_held.read_otherwise(f"{part._self_way}.{name}")
        return give(part.__wrapped__, *args)

    return read


def _reduce(part: Any, protocol: Any) -> Any:
    return part.__reduce_ex__(protocol)


_READING: Final[Mapping[str, Callable[..., Any]]] = {
    "__add__": operator.add,
    "__bytes__": bytes,
    "__contains__": operator.contains,
    "__copy__": copy.copy,
    "__deepcopy__": copy.deepcopy,
    "__format__": format,
    "__getitem__": operator.getitem,
    "__iter__": iter,
    "__reduce_ex__": _reduce,
    "__reversed__": reversed,
    "__str__": str,
}
"""Special methods by which words are read."""
for _name, _give in _READING.items():
    setattr(HeldPart, _name, _reading(_name, _give))


class HeldIterator(HeldPart):
    """Transparent proxy of a recorded iterator, such as a stream of OpenAI, whose pieces a guard holds back.

    Args:
        stream: the recording proxy.
        held: the pieces that are held back.
    """

    def __init__(self, stream: Any, held: HeldStream) -> None:
        HeldPart.__init__(self, stream, held, _name_of(stream))
        self._self_pieces = hold(held, _pieces_of(stream))

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return next(self._self_pieces)

    def __exit__(self, *error: Any) -> Any:
        self._self_held.leave()
        try:
            return self.__wrapped__.__exit__(*error)
        finally:
            self._self_held.end()

    @property
    def close(self) -> Any:
        return _leaving(self._self_held, self.__wrapped__.close)


class HeldAsyncIterator(HeldPart):
    """Transparent proxy of a recorded asynchronous iterator whose pieces a guard holds back.

    Args:
        stream: the recording proxy.
        held: the pieces that are held back.
    """

    def __init__(self, stream: Any, held: HeldStream) -> None:
        HeldPart.__init__(self, stream, held, _name_of(stream))
        self._self_apieces = hold_async(held, _async_pieces_of(stream))

    def __aiter__(self) -> Any:
        return self

    def __anext__(self) -> Any:
        return self._self_apieces.__anext__()

    async def __aexit__(self, *error: Any) -> Any:
        self._self_held.leave()
        try:
            return await self.__wrapped__.__aexit__(*error)
        finally:
            self._self_held.end()

    @property
    def close(self) -> Any:
        return _leaving(self._self_held, self.__wrapped__.close)

    @property
    def aclose(self) -> Any:
        return _leaving(self._self_held, self.__wrapped__.aclose)


class HeldEitherIterator(HeldIterator, HeldAsyncIterator):
    """Transparent proxy of a recorded iterator for both `for` and `async for` whose pieces a guard holds back.

    Args:
        stream: the recording proxy.
        held: the pieces that are held back.
    """

    def __init__(self, stream: Any, held: HeldStream) -> None:
        HeldIterator.__init__(self, stream, held)
        self._self_apieces = hold_async(held, _async_pieces_of(stream))


def _leaving(held: HeldStream, close: Any) -> Any:
    """Wrap a stream's `close` method so that to call it, and not only to look it up, leaves the held pieces."""

    def leave(*args: Any, **kwargs: Any) -> Any:
        held.leave()
        closed = close(*args, **kwargs)
        if not inspect.isawaitable(closed):  # else the stream ends when that is awaited
            held.end()
        return closed

    return leave


def _name_of(stream: Any) -> str:
    return type(unwrap_proxies(stream)).__name__


def _pieces_of(stream: Any) -> Generator[Any, Any, Any]:
    """Yield the pieces of an iterator, which is closed with the generator."""
    pieces: Generator[Any, Any, Any] = stream  # any iterator, which may have a result as a generator does
    try:
        return (yield from pieces)
    except GeneratorExit:
        close: Any = getattr(stream, "close", None)
        try:
            if callable(close):
                close()
        finally:
            _end_recording(stream)
        raise


async def _async_pieces_of(stream: Any) -> AsyncGenerator[Any, Any]:
    """Yield the pieces of an asynchronous iterator, which is closed with the generator."""
    try:
        async for piece in stream:
            yield piece
    except GeneratorExit:
        close: Any = getattr(stream, "aclose", None) or getattr(stream, "close", None)
        try:
            closing = close() if callable(close) else None
            if inspect.isawaitable(closing):
                await closing
        finally:
            _end_recording(stream)
        raise


def _end_recording(stream: Any) -> None:
    """End the call of a recorded stream that nobody reads any more: not every iterator has a method to close it."""
    call: Invocation = stream._self_call
    call.abandoned()


_HELD: Final[Mapping[type[Any], Callable[[Any, HeldStream], Any]]] = {
    ObservedStream: HeldIterator,
    ObservedAsyncStream: HeldAsyncIterator,
    ObservedEitherStream: HeldEitherIterator,
}


def held_stream(result: Any, held: Callable[[], HeldStream]) -> Any:
    """Return the recorded stream *result* with its pieces held back, or None if it is no stream that can be held.

    Args:
        result: what the driver of the guarded function returned.
        held: makes the pieces that are held back.
    """
    kind: Any = cast("type[object]", type(result))
    if kind is types.GeneratorType:
        stream: Any = hold(held(), result)
    elif kind is types.AsyncGeneratorType:
        stream = hold_async(held(), result)
    elif kind in _HELD:
        return _HELD[kind](result, held())
    elif holds_stream(result):
        inner = held_stream(result.response_gen, held)
        if inner is not None:
            result.response_gen = inner
        return None if inner is None else result
    else:
        return None
    stream.__name__, stream.__qualname__ = result.__name__, result.__qualname__
    return stream

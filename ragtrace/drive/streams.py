"""Returned iterators that are no generators: observed by a proxy that passes for the original."""

from __future__ import annotations

import types
from typing import Any

from ragtrace.drive.awaiting import steps
from ragtrace.drive.invocation import Invocation
from ragtrace.drive.proxy import Proxy


def holds_stream(result: object) -> bool:
    """A response object with the stream inside, as LlamaIndex returns it."""
    inner = getattr(result, "__dict__", {}).get("response_gen")
    return isinstance(inner, (types.GeneratorType, types.AsyncGeneratorType))


def is_mock(kind: type) -> bool:
    """A mock claims to be whatever it is taken for: it goes back as it is."""
    return kind.__module__ == "unittest.mock"


_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: defined by a class statement


def is_stream(kind: type) -> bool:
    """An iterator that is no generator: an OpenAI stream, a `map`; but no file and no database cursor."""
    if not (hasattr(kind, "__next__") or hasattr(kind, "__anext__")):
        return False
    if any(hasattr(kind, name) for name in ("read", "execute", "fetchone")):
        return False
    return bool(kind.__flags__ & _HEAP_TYPE) or kind.__module__ in ("builtins", "itertools")


class ObservedStream(Proxy):
    """Stands in for a returned iterator: same type to `isinstance`, same methods, and the call sees each piece."""

    def __init__(self, wrapped: Any, call: Invocation) -> None:
        super().__init__(wrapped)
        self._self_call = call

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        call: Invocation = self._self_call
        call.resumed()
        try:
            with call:
                piece = next(self.__wrapped__)
        except StopIteration as stop:
            call.done(stop.value)
            raise
        except BaseException as error:
            call.failed(error)
            raise
        call.add(piece)
        return piece

    def __enter__(self) -> Any:
        entered = self.__wrapped__.__enter__()
        return self if entered is self.__wrapped__ else entered

    def __exit__(self, *error: Any) -> Any:
        try:
            return self.__wrapped__.__exit__(*error)
        finally:
            self._self_call.abandoned()

    @property
    def close(self) -> Any:
        return _closing(self._self_call, self.__wrapped__.close)


class ObservedAsyncStream(Proxy):
    """The same for an asynchronous iterator."""

    def __init__(self, wrapped: Any, call: Invocation) -> None:
        super().__init__(wrapped)
        self._self_call = call

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        call: Invocation = self._self_call
        call.resumed()
        try:
            piece = await steps(call, self.__wrapped__.__anext__())
        except StopAsyncIteration:
            call.done(None)
            raise
        except BaseException as error:
            call.failed(error)
            raise
        call.add(piece)
        return piece

    async def __aenter__(self) -> Any:
        entered = await self.__wrapped__.__aenter__()
        return self if entered is self.__wrapped__ else entered

    async def __aexit__(self, *error: Any) -> Any:
        try:
            return await self.__wrapped__.__aexit__(*error)
        finally:
            self._self_call.abandoned()

    @property
    def close(self) -> Any:
        return _closing(self._self_call, self.__wrapped__.close)

    @property
    def aclose(self) -> Any:
        return _closing(self._self_call, self.__wrapped__.aclose)


def _closing(call: Invocation, close: Any) -> Any:
    """*close*, which also ends *call*. What it returns is the user's: a plain value, or something to await."""

    def observed(*args: Any, **kwargs: Any) -> Any:
        try:
            return close(*args, **kwargs)
        finally:
            call.abandoned()

    return observed

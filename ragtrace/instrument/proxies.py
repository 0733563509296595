"""Transparent proxies: of decorated functions, and of the streams and responses that they return."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ragtrace.capture.fields import shape_of
from ragtrace.instrument.invocation import Invocation, steps

if TYPE_CHECKING:  # wrapt's own types differ between its releases

    class Proxy:
        """Transparent proxy of any object; keeps its own attributes under names that begin with `_self_`."""

        __wrapped__: Any

        def __init__(self, wrapped: Any) -> None: ...

    class FunctionProxy(Proxy):
        """Proxy of a function that binds like one; calls go to `wrapper(wrapped, instance, args, kwargs)`."""

        def __init__(self, wrapped: Any, wrapper: Any) -> None: ...

else:
    from wrapt import FunctionWrapper as FunctionProxy
    from wrapt import ObjectProxy as Proxy

__all__ = [
    "FunctionProxy", "ObservedAsyncStream", "ObservedEitherStream", "ObservedResponse", "ObservedStream", "Proxy",
    "observed_stream",
]  # fmt: skip


class ObservedStream(Proxy):
    """Proxy of a returned iterator: same type to `isinstance`, same methods, and each piece is recorded."""

    def __init__(self, wrapped: Any, call: Invocation) -> None:
        Proxy.__init__(self, wrapped)
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
    """Proxy of a returned asynchronous iterator: each piece is recorded."""

    def __init__(self, wrapped: Any, call: Invocation) -> None:
        Proxy.__init__(self, wrapped)
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


class ObservedEitherStream(ObservedStream, ObservedAsyncStream):
    """Proxy of an iterator that is both plain and asynchronous, as instrumentations make them."""


class ObservedResponse(Proxy):
    """Proxy of a response whose text is read from it later, as LlamaIndex's chat engines return it.

    Args:
        wrapped: the response: it has `response_gen`, a generator, or `async_response_gen`, which makes one.
        settle: has the call observe such a generator, and returns it.
    """

    def __init__(self, wrapped: Any, settle: Callable[[Any], Any]) -> None:
        Proxy.__init__(self, wrapped)
        self._self_settle = settle

    @property
    def response_gen(self) -> Any:
        return self._self_settle(self.__wrapped__.response_gen)

    @property
    def async_response_gen(self) -> Any:
        start: Any = self.__wrapped__.async_response_gen
        settle = self._self_settle

        def started(*args: Any, **kwargs: Any) -> Any:
            return settle(start(*args, **kwargs))

        return started if callable(start) else settle(start)


def observed_stream(source: Any, call: Invocation) -> Any:
    """Return a proxy of *source*, a plain or asynchronous iterator or both, that records its pieces in *call*."""
    kind = shape_of(cast("type[object]", type(source))).stream
    proxy = {"async": ObservedAsyncStream, "both": ObservedEitherStream}.get(kind, ObservedStream)
    return proxy(source, call)


def _closing(call: Invocation, close: Any) -> Any:
    """Return *close* wrapped so that it also ends *call*; its result, a value or an awaitable, is passed on."""

    def observed(*args: Any, **kwargs: Any) -> Any:
        try:
            return close(*args, **kwargs)
        finally:
            call.abandoned()

    return observed

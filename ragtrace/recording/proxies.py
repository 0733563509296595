"""Transparent proxies of decorated functions, and of the streams and responses that decorated functions return."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import AsyncGeneratorType, GeneratorType
from typing import TYPE_CHECKING, Any, Final, cast

from ragtrace.capture.fields import own_fields, shape_of
from ragtrace.recording.invocation import Invocation, steps
from ragtrace.system.faults import faults

if TYPE_CHECKING:  # wrapt's own types differ between its releases

    class Proxy:
        """Transparent proxy of an object, which keeps its own attributes under names that begin with `_self_`."""

        __wrapped__: Any
        __qualname__: str

        def __init__(self, wrapped: Any) -> None: ...

    class FunctionProxy(Proxy):
        """Transparent proxy of a function or method that calls `wrapper(wrapped, instance, args, kwargs)` instead."""

        def __init__(self, wrapped: Any, wrapper: Any) -> None: ...

    class BoundProxy(FunctionProxy):
        """Transparent proxy of what a `FunctionProxy`, its parent, was bound to an instance as."""

        _self_parent: Any

else:
    from wrapt import BoundFunctionWrapper as BoundProxy
    from wrapt import FunctionWrapper as FunctionProxy
    from wrapt import ObjectProxy as Proxy

__all__ = [
    "BoundProxy", "FunctionProxy", "ObservedAsyncManager", "ObservedAsyncStream", "ObservedEitherStream",
    "ObservedIterable", "ObservedManager", "ObservedResponse", "ObservedStream", "Proxy", "observed_stream",
]  # fmt: skip


class _Observed(Proxy):
    """Transparent proxy of a returned object, whose copies are copies of the object, which are not recorded."""

    def __init__(self, wrapped: Any, call: Invocation) -> None:
        Proxy.__init__(self, wrapped)
        self._self_call = call

    def __copy__(self) -> Any:
        return copy.copy(self.__wrapped__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.__wrapped__, memo)

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(0)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__wrapped__.__reduce_ex__(protocol)


class ObservedManager(_Observed):
    """Transparent proxy of a context manager that records the stream which it makes, such as OpenAI's `stream()`."""

    def __enter__(self) -> Any:
        call: Invocation = self._self_call
        try:
            with call:
                entered = self.__wrapped__.__enter__()
        except BaseException as error:
            call.failed(error)
            raise
        if entered is self.__wrapped__:
            return self
        _observe_inside(entered, call)
        return entered

    def __exit__(self, *error: Any) -> Any:
        try:
            return self.__wrapped__.__exit__(*error)
        finally:
            self._self_call.abandoned()


class ObservedStream(ObservedManager):
    """Transparent proxy of an iterator that records each chunk read from it."""

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

    @property
    def close(self) -> Any:
        return _closing(self._self_call, self.__wrapped__.close)


class ObservedAsyncManager(_Observed):
    """Transparent proxy of an asynchronous context manager that records the stream which it makes."""

    async def __aenter__(self) -> Any:
        call: Invocation = self._self_call
        try:
            entered = await steps(call, self.__wrapped__.__aenter__())
        except BaseException as error:
            call.failed(error)
            raise
        if entered is self.__wrapped__:
            return self
        _observe_inside(entered, call)
        return entered

    async def __aexit__(self, *error: Any) -> Any:
        try:
            return await self.__wrapped__.__aexit__(*error)
        finally:
            self._self_call.abandoned()


class ObservedAsyncStream(ObservedAsyncManager):
    """Transparent proxy of an asynchronous iterator that records each chunk read from it."""

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

    @property
    def close(self) -> Any:
        return _closing(self._self_call, self.__wrapped__.close)

    @property
    def aclose(self) -> Any:
        return _closing(self._self_call, self.__wrapped__.aclose)


class ObservedEitherStream(ObservedStream, ObservedAsyncStream):
    """Transparent proxy of an iterator for both `for` and `async for` that records each chunk read from it."""


class ObservedIterable(_Observed):
    """Transparent proxy of an iterable that records what its iterators read, which share one source."""

    def __iter__(self) -> Any:
        return ObservedStream(self.__wrapped__.__iter__(), self._self_call)

    @property
    def close(self) -> Any:
        return _closing(self._self_call, self.__wrapped__.close)


class ObservedResponse(_Observed):
    """Transparent proxy of a response object whose text is streamed later, such as those of LlamaIndex's chat engines.

    Args:
        wrapped: the response; it has `response_gen`, a generator, or `async_response_gen` or `stream_events`, which
            make one.
        settle: given such a generator, returns a proxy that records its pieces.
    """

    def __init__(self, wrapped: Any, settle: Callable[[Any], Any]) -> None:
        Proxy.__init__(self, wrapped)
        self._self_settle = settle

    @property
    def response_gen(self) -> Any:
        return self._self_settle(self.__wrapped__.response_gen)

    @property
    def async_response_gen(self) -> Any:
        return self._settling(self.__wrapped__.async_response_gen)

    @property
    def stream_events(self) -> Any:
        return self._settling(self.__wrapped__.stream_events)

    def _settling(self, start: Any) -> Any:
        settle = self._self_settle

        def started(*args: Any, **kwargs: Any) -> Any:
            return settle(start(*args, **kwargs))

        return started if callable(start) else settle(start)


def observed_stream(source: Any, call: Invocation) -> Any:
    """Return a proxy of the stream *source* (synchronous, asynchronous or both) that records its chunks in *call*."""
    return _PROXIES[shape_of(cast("type[object]", type(source))).stream](source, call)


_PROXIES: Final[Mapping[str, Callable[[Any, Invocation], Any]]] = {
    "plain": ObservedStream,
    "async": ObservedAsyncStream,
    "both": ObservedEitherStream,
    "iterable": ObservedIterable,
    "manager": ObservedManager,
    "async manager": ObservedAsyncManager,
}


def _observe_inside(stream: Any, call: Invocation) -> None:
    """Record the pieces of a *stream* that a manager has made, however its methods read them: from one generator."""
    try:
        inner: Any = (own_fields(stream) or {}).get("_iterator")
        kind = cast("type[object]", type(inner))
        is_async = kind is AsyncGeneratorType
        if is_async or kind is GeneratorType:
            stream._iterator = (ObservedAsyncStream if is_async else ObservedStream)(inner, call)
            return
        call.is_stream = False
        call.done(stream)  # says that no answer was found
    except Exception as error:  # of an unknown version, whose attributes raise
        faults.record("stream of a context manager", error)


def _closing(call: Invocation, close: Any) -> Any:
    """Wrap a stream's `close` method so that closing the stream also ends the recorded *call*."""

    def observed(*args: Any, **kwargs: Any) -> Any:
        try:
            return close(*args, **kwargs)
        finally:
            call.abandoned()

    return observed

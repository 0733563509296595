"""Drivers that run and record a decorated function without changing its behaviour, one for each kind of function."""

from __future__ import annotations

import asyncio
import inspect
import sys
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, cast

from opentelemetry.context import attach, detach, get_current

from ragtrace.capture.arguments import unwrap
from ragtrace.capture.fields import event_stream_in, holds_stream, is_late, is_mock, shape_of, unwrap_proxies
from ragtrace.recording.invocation import Invocation, steps
from ragtrace.recording.proxies import ObservedResponse, observed_stream
from ragtrace.recording.recorder import StepRecorder
from ragtrace.system.faults import faults

Driver: TypeAlias = "Callable[[StepRecorder, Any, tuple[Any, ...], dict[str, Any]], Any]"
"""Function that calls a user's function of one kind, returns the result, and ends the recording when the run ends."""


def driver_of(function: Any) -> Driver:
    """Return the driver for the kind of *function*: plain, coroutine, generator or asynchronous generator.

    What calling the function returns is seen through partials, static and class methods and callable objects.
    """
    inner = called_function(function)
    if inspect.iscoroutinefunction(inner):
        if type(function) is not _FUNCTION:
            return _drive_async
        # A coroutine takes over the name of the function that makes it, at no cost, and "coroutine 'x' was never
        # awaited" and debuggers print it: so the driver is a function of that name.
        driver = types.FunctionType(_drive_coroutine.__code__, globals(), function.__name__)
        driver.__qualname__ = function.__qualname__
        return driver
    is_lazy = inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)
    return _drive_lazy if is_lazy else _drive_plain


def called_function(function: Any) -> Any:
    """Return the function that calling *function* runs: of a partial or a callable object, that inside it."""
    inner = unwrap(function)
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = getattr(cast("type[object]", type(inner)), "__call__", inner)
    return inner


def _drive_lazy(recorder: StepRecorder, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # The span begins where the generator's body does: at the first next().
    return settle(Invocation(recorder), wrapped(*args, **kwargs))


def _drive_async(recorder: StepRecorder, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record the run of a coroutine function that is wrapped in an object, such as a partial.

    The returned coroutine has the name of the wrapped function.
    """
    driver: Any = _drive_coroutine(recorder, wrapped, args, kwargs)
    with suppress(Exception):  # a callable object may raise for any attribute
        name = getattr(wrapped, "__name__", None)
        if type(name) is str:
            driver.__name__, driver.__qualname__ = name, getattr(wrapped, "__qualname__", name)
    return driver


def _drive_plain(recorder: StepRecorder, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    context = recorder.begin()
    if context is None:
        return wrapped(*args, **kwargs)
    token = attach(context)
    try:
        result = wrapped(*args, **kwargs)
    except BaseException as error:  # Ctrl-C ends spans too
        detach(token)
        Invocation(recorder).failed(error)
        raise
    kind = _class_of(result)
    if kind is str or kind is list or (id(kind) in _FINISHED and (kind is not dict or not event_stream_in(result))):
        detach(token)
        recorder.done(result)
        return result
    recorder.current = get_current()
    detach(token)
    return settle(Invocation(recorder), result)


async def _drive_coroutine(recorder: StepRecorder, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if recorder.begin() is None:
        return await wrapped(*args, **kwargs)
    try:
        result = await steps(recorder, wrapped(*args, **kwargs))
    except BaseException as error:  # cancellation ends spans too
        Invocation(recorder).failed(error)
        raise
    kind = _class_of(result)
    if kind is str or kind is list or (id(kind) in _FINISHED and (kind is not dict or not event_stream_in(result))):
        recorder.done(result)
        return result
    return settle(Invocation(recorder), result)


async def _drive_awaitable(call: Invocation, awaitable: Awaitable[Any]) -> Any:
    """Await the awaitable that a decorated function returned, and record the result as the end of *call*."""
    try:
        result = await steps(call, awaitable)
    except BaseException as error:
        call.failed(error)
        raise
    return settle(call, result)


def _drive_generator(call: Invocation, source: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    call.begin()
    resume: Callable[[], Any] = source.__next__
    leaving = False
    while True:
        try:
            with call:
                piece = resume()
        except StopIteration as stop:
            if leaving:
                call.abandoned()
            call.done(stop.value)
            return stop.value
        except BaseException as error:
            call.failed(error)
            raise
        finally:
            resume = source.__next__  # else this frame would keep a thrown-in error alive
        call.add(piece)
        try:
            sent = yield piece
        except BaseException as error:  # GeneratorExit too: the source may clean up, answer it, or ignore it
            resume, leaving = partial(source.throw, error), issubclass(type(error), GeneratorExit)
        else:
            leaving = False
            if sent is not None:
                resume = partial(source.send, sent)
        call.resumed()


async def _drive_async_generator(call: Invocation, source: Any) -> AsyncGenerator[Any, Any]:
    call.begin()
    resume: Callable[[], Awaitable[Any]] = partial(start_async_generator, source)
    leaving = False
    while True:
        try:
            piece = await steps(call, resume())
        except StopAsyncIteration:
            if leaving:
                call.abandoned()
            call.done(None)
            return
        except BaseException as error:
            call.failed(error)
            raise
        finally:
            resume = partial(source.asend, None)
        call.add(piece)
        try:
            sent = yield piece
        except BaseException as error:
            if source.ag_frame is None:  # the garbage collector has closed it first: throwing into it would give None
                call.failed(error)
                raise
            resume, leaving = partial(source.athrow, error), issubclass(type(error), GeneratorExit)
        else:
            leaving = False
            if sent is not None:
                resume = partial(source.asend, sent)
        call.resumed()


def start_async_generator(source: AsyncGenerator[Any, Any]) -> Awaitable[Any]:
    """Start an asynchronous generator without registering it with the event loop.

    The driver closes *source*. Were both registered, the loop would close both at once when it shuts down, and one of
    them would be running.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=None, finalizer=None)
    try:
        return source.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


# Typed as Any: narrowing an unknown result to these generic types would leave their parameters unknown.
_FUNCTION: Any = types.FunctionType
_GENERATOR: Any = types.GeneratorType
_ASYNC_GENERATOR: Any = types.AsyncGeneratorType
_COROUTINE: Any = types.CoroutineType
_class_of: Callable[[object], type[object]] = type
"""`type`, annotated for the type checker: `typing.cast` would cost a call at run time."""
_FUTURES: Any = (asyncio.Future, Future)
_FINISHED = frozenset(map(id, (str, bytes, list, tuple, dict, set, frozenset, int, float, bool, type(None))))
"""Ids of classes whose objects are neither streams nor awaitables. Not the classes: a metaclass may prevent hashing."""


def settle(call: Invocation, result: Any) -> Any:
    """Record and return the result of a decorated function, with a stream or awaitable wrapped in a recording proxy.

    A stream or an awaitable is returned as a proxy: its run is over when it has been read.
    """
    kind = _class_of(result)
    if id(kind) not in _FINISHED or (kind is dict and event_stream_in(result)):
        try:
            observed = _observing_proxy(call, result)
            if observed is not None:
                return observed
        except Exception as error:  # an object whose attributes raise is returned unchanged
            faults.record("returned object", error)
    call.done(result)
    return result


def _observing_proxy(call: Invocation, result: Any) -> Any:
    """Return a proxy that ends *call* when the returned stream or awaitable ends, or None for any other object."""
    # Not isinstance, which asks the object for its class: a lazy proxy would make what it stands for.
    kind = type(unwrap_proxies(result))
    if is_mock(kind):
        return None
    driver: Any = None
    if kind is _COROUTINE:
        driver = _drive_awaitable(call, result)
    elif is_awaitable_generator(result):
        driver = _finishing(call, result)
    elif kind is _GENERATOR or kind is _ASYNC_GENERATOR:
        call.is_stream = True
        driver = _drive_generator(call, result) if kind is _GENERATOR else _drive_async_generator(call, result)
    if driver is not None:
        driver.__name__, driver.__qualname__ = result.__name__, result.__qualname__
        return driver
    own_kind = _class_of(result)
    if own_kind is dict and (name := event_stream_in(result)) is not None:
        call.is_stream = True
        result[name] = observed_stream(result[name], call)
        return result
    if issubclass(own_kind, _FUTURES):
        result.add_done_callback(partial(_on_future, call))
        return result
    if holds_stream(result):
        call.result = result
        result.response_gen = settle(call, result.response_gen)
        return result
    if is_late(result):
        call.result = result
        call.is_stream = True
        return ObservedResponse(result, partial(settle, call))
    if shape_of(own_kind).stream:
        call.is_stream = True
        call.take_provider(result)
        return observed_stream(result, call)
    return None


def is_awaitable_generator(result: Any) -> bool:
    """Return whether *result* is a generator that is awaited like a coroutine (`types.coroutine`), and no stream."""
    kind = _class_of(result)
    return kind is _GENERATOR and bool(result.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE)


@types.coroutine
def _finishing(call: Invocation, source: Any) -> Generator[Any, Any, Any]:
    """Wrap a generator-based awaitable (`types.coroutine`) so that *call* ends with its result."""
    call.begin()
    return (yield from _drive_awaitable(call, _await_generator(source)).__await__())


async def _await_generator(source: Any) -> Any:
    # `await` takes a generator-based awaitable, which has no `__await__` that a driver could call.
    return await source


def _on_future(call: Invocation, future: Any) -> None:
    # exception() would mark the error as retrieved, and asyncio would not warn any more that it never was.
    error = asyncio.CancelledError() if future.cancelled() else getattr(future, "_exception", None)
    if error is not None:
        call.failed(error)
    else:
        call.done(future.result())

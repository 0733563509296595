"""Awaits on behalf of the user's function, step by step."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, NoReturn, Protocol

from opentelemetry.context import Context, attach, detach, get_current

_COROUTINE: Any = types.CoroutineType


class Runs(Protocol):
    """Knows the context that user code is to run in; None: whichever is current."""

    current: Context | None


@types.coroutine
def steps(call: Runs, awaitable: Awaitable[Any]) -> Generator[Any, Any, Any]:
    """Await *awaitable*, with the call's context current only while its own code runs.

    An attach around an `await` would leave the context attached across suspensions, and fail to detach it when the
    coroutine is resumed elsewhere: another thread, another `contextvars.Context`.
    """
    iterator: Any = awaitable if type(awaitable) is _COROUTINE else _iterator(awaitable)
    resume: Callable[[Any], Any] = iterator.send
    given: Any = None
    while True:
        token = None if call.current is None else attach(call.current)
        try:
            pending = resume(given)
        except StopIteration as stop:
            return stop.value
        finally:
            if token is not None:
                # What the user's code attached stays attached for it, and for a stream that it returns, and for nobody
                # else.
                call.current = get_current()
                detach(token)
            resume, given = iterator.send, None  # else an error that was thrown in would keep itself alive
        try:
            given = yield pending
        except GeneratorExit as leaving:
            resume, given = partial(_close, iterator), leaving
        except BaseException as error:
            resume, given = iterator.throw, error


def _close(iterator: Any, leaving: GeneratorExit) -> NoReturn:
    """Close *iterator*, as `await` does, which one that is already over allows.

    The collector of cycles closes the coroutines of a task in any order: to throw into one that it has closed would
    print an error.
    """
    close: Callable[[], object] | None = getattr(iterator, "close", None)
    if close is not None:
        close()
    raise leaving


def _iterator(awaitable: Awaitable[Any]) -> Any:
    iterator: Any = awaitable if isinstance(awaitable, _COROUTINE) else awaitable.__await__()
    return iterator if hasattr(iterator, "send") else _await(awaitable)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable

"""Awaits on behalf of the user's function, step by step."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Generator
from functools import partial
from typing import Any

from ragtrace.drive.invocation import Invocation

_COROUTINE: Any = types.CoroutineType


@types.coroutine
def steps(call: Invocation, awaitable: Awaitable[Any]) -> Generator[Any, Any, Any]:
    """Await *awaitable*, with the call's context current only while its own code runs.

    An `await` inside `with call` would leave the context attached across suspensions, and fail to detach it when the
    coroutine is resumed elsewhere: another thread, another `contextvars.Context`.
    """
    iterator: Any = awaitable if isinstance(awaitable, _COROUTINE) else awaitable.__await__()
    if not hasattr(iterator, "send"):
        iterator = _await(awaitable)
    resume = partial(iterator.send, None)
    while True:
        try:
            with call:
                pending = resume()
        except StopIteration as stop:
            return stop.value
        finally:
            resume = partial(iterator.send, None)  # else an error that was thrown in would keep itself alive
        try:
            sent = yield pending
        except BaseException as error:
            resume = partial(iterator.throw, error)
        else:
            if sent is not None:
                resume = partial(iterator.send, sent)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable

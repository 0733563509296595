"""The function `carry`, which passes the current RAG call on to threads that do not copy the context."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from opentelemetry.context import attach, detach

from ragtrace.recording.recorder import recording_context
from ragtrace.system import collection

P = ParamSpec("P")
R = TypeVar("R")


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that it runs within the current RAG call on any thread.

    For `ThreadPoolExecutor` and other threads that do not copy the context. `asyncio.create_task`, `asyncio.to_thread`
    and OpenTelemetry's threading instrumentation carry the context themselves. The result may be called several times,
    and by several threads at once.

    Example: `pool.map(ragtrace.carry(search), queries)`
    """
    context = recording_context()

    @wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        if collection.is_on_this_thread():  # a finalizer must not set a context variable, and records nothing
            return function(*args, **kwargs)
        token = attach(context)
        try:
            return function(*args, **kwargs)
        finally:
            detach(token)

    return carried

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

    Examples:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> @ragtrace.retrieve
        ... def search(query: str) -> list[str]:
        ...     return [f"The {query} is in Paris."]
        >>> @ragtrace.trace
        ... def ask(question: str) -> str:
        ...     with ThreadPoolExecutor() as pool:
        ...         found = pool.map(ragtrace.carry(search), ["tower", "museum"])
        ...     return " ".join(text for texts in found for text in texts)
        >>> captured = ragtrace.testing.Captured()
        >>> ragtrace.configure(exporter=captured.signals)
        >>> ask("What is in Paris?")
        'The tower is in Paris. The museum is in Paris.'
        >>> ragtrace.flush()
        True
        >>> [span.name for span in captured.spans]
        ['retrieval', 'retrieval', 'invoke_workflow ask']

    Args:
        function: plain function that another thread is to call.
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

"""What is around calls: `carry` passes the current RAG call on to threads, `tags` says whose calls a block has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from opentelemetry.context import attach, detach

from ragtrace.capture.tags import kept_tags
from ragtrace.core.tags import TagValue
from ragtrace.recording.recorder import current_recorder, is_recording_suppressed, recording_context
from ragtrace.recording.tag_layers import current_layer, enter_layer, leave_layer
from ragtrace.system import collection
from ragtrace.system.faults import guarded

P = ParamSpec("P")
R = TypeVar("R")


class TagBlock:
    """Context manager whose block gives tags to calls. Use with `with` or `async with`, and as often as you like."""

    __slots__ = ("_tags",)

    def __init__(self, tags: Mapping[str, TagValue]) -> None:
        self._tags = tags

    def __enter__(self) -> None:
        # A finalizer must not set a context variable: `ragtrace.system.collection`.
        if collection.thread and collection.is_on_this_thread():
            return
        with guarded("tags of a block"):
            if is_recording_suppressed():
                return
            recorder = current_recorder(recording_context())
            if recorder is not None and recorder.call_builder is not None:
                # No layer: a generator's would be around what its reader calls between two pieces, too.
                recorder.add_tags(self._tags)
            else:
                enter_layer(self, self._tags)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not (collection.thread and collection.is_on_this_thread()):
            leave_layer(self)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def tags(**values: TagValue | None) -> TagBlock:
    """Return a context manager that gives tags to the calls in its block: whose they are, such as a tenant's.

    Every call that begins in the block has the tags, also in a task or thread that copies the context. Blocks in blocks
    add to them, and replace those of the same names. Entered while a call is in progress, in a decorated function say,
    the block gives its tags to that call. Never raises.

    Examples:
        >>> @ragtrace.trace
        ... def ask(question: str) -> str:
        ...     return "In Paris."
        >>> judge = ragtrace.testing.FakeJudge(ragtrace.Judgement(answer_label="answered"))
        >>> ragtrace.configure(exporter="none", screen=judge)
        >>> with ragtrace.tags(tenant="acme", channel="web"):  # in a middleware, around a request
        ...     ask("Where is the tower?")
        'In Paris.'
        >>> ragtrace.flush()
        True
        >>> judge.calls[0].tags
        {'tenant': 'acme', 'channel': 'web'}

    Args:
        values: value of each tag by its name, a letter, then letters, digits and `_` (in `**{...}` `-` and `.`, too),
            at most 64: a text of at most 200 characters, a boolean or a finite number. None: there is no such tag.
            Anything else is left out and counted, as is more than 16 tags of a call.
    """
    return TagBlock(kept_tags(values, "ragtrace.tags"))


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that it runs within the current RAG call on any thread.

    For `ThreadPoolExecutor` and other threads that do not copy the context. `asyncio.create_task`, `asyncio.to_thread`
    and OpenTelemetry's threading instrumentation carry the context themselves. The result may be called several times,
    and by several threads at once. Tags of `ragtrace.tags` are carried along.

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
    context, layer = recording_context(), current_layer.get()

    @wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        if collection.is_on_this_thread():  # a finalizer must not set a context variable, and records nothing
            return function(*args, **kwargs)
        token = attach(context)
        before = current_layer.set(layer)
        try:
            return function(*args, **kwargs)
        finally:
            current_layer.reset(before)
            detach(token)

    return carried

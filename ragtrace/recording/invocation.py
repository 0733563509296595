"""Recording of decorated function calls that return a stream or an awaitable, or raise an exception.

Nothing here raises into the application: each call of the recorder is guarded, and if it cannot begin, the function
runs untraced.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from time import perf_counter
from typing import Any, NoReturn

from opentelemetry.context import Context, attach, detach, get_current

from ragtrace.core.types import Timing
from ragtrace.recording.recorder import StepRecorder
from ragtrace.system import collection
from ragtrace.system.faults import faults

_COROUTINE: Any = types.CoroutineType


class Invocation:
    """Call of a decorated function that returned a stream or an awaitable, or that raised an exception.

    As a context manager it makes the call's context current, and is entered only around a step of the user's own code:
    never across a `yield`, an `await` or a return. What that code itself attached is kept for its next step.

    Args:
        recorder: taken over as it is if it has begun; else `begin` starts it.
    """

    __slots__ = (
        "_first", "_is_over", "_last", "_recorder", "_token", "_wait", "_wait_before_last", "_yielded", "current",
        "is_stream", "on_end", "result",
    )  # fmt: skip

    def __init__(self, recorder: StepRecorder) -> None:
        self._recorder = recorder
        self.current: Context | None = recorder.current
        self._first: float | None = None
        """Arrival times, in monotonic seconds, of the first piece, the last one, and the one that the reader uses."""
        self._last: float | None = None
        self._yielded: float | None = None
        self._wait = 0.0
        """Seconds that the reader held the stream between pieces: in total, and before the last piece."""
        self._wait_before_last = 0.0
        self._is_over = False
        self.is_stream = False
        """Whether the function returned a stream, whose pieces are recorded."""
        self.result: object = None
        """Object that contains the stream and is recorded when the stream ends; None if there is no such object."""
        self.on_end: Callable[[], object] | None = None
        """Function that is called once when the recording ends; None: no function."""
        self._token: Any = None

    def begin(self) -> None:
        """Begin to record the function call and start its span, unless both have been done."""
        if self.current is None and not self._is_over:
            self.current = self._recorder.begin()
            self._is_over = self.current is None

    def __enter__(self) -> None:
        # A finalizer must not set a context variable: `ragtrace.system.collection`.
        if self.current is not None and not (collection.thread and collection.is_on_this_thread()):
            self._token = attach(self.current)

    def __exit__(self, *_: object) -> None:
        token, self._token = self._token, None
        if token is not None and not (collection.thread and collection.is_on_this_thread()):
            # A span that the user's generator opened before a yield must be current after it, but not in between.
            self.current = get_current()
            detach(token)

    def resumed(self) -> None:
        """Note that a stream's reader asks for the next chunk, and add up the reader's own time."""
        if self._yielded is not None:
            self._wait += perf_counter() - self._yielded
            self._yielded = None

    def add(self, piece: object) -> None:
        """Record a chunk of the stream with its arrival time, before it is passed to the reader."""
        if self._is_over:
            return
        now = self._last = self._yielded = perf_counter()
        if self._first is None:
            self._first = now
        self._wait_before_last = self._wait
        try:
            self._recorder.piece(piece)
        except Exception as error:
            faults.record("stream piece", error)
        except BaseException as error:  # an exit or a cancellation out of a function of the application, which goes on
            self.failed(error)
            raise

    def take_provider(self, stream: object) -> None:
        """Set the model provider that the type of the returned stream shows, if any."""
        self._recorder.take_provider(stream)

    def done(self, value: object) -> None:
        """End the function call normally, because the function returned *value* or its stream is exhausted."""
        self._end(value, None, abandoned=False)

    def failed(self, error: BaseException) -> None:
        """End the function call with the exception that it raised.

        A `GeneratorExit` means that its stream was abandoned.
        """
        kind = type(error)  # isinstance would ask the error for its class, and a hostile one raises
        if issubclass(kind, GeneratorExit):
            self.abandoned()
        else:
            # Cancellation, of asyncio, trio or any other: the reader has what came before.
            left = self._first is not None and not issubclass(kind, Exception)
            self._end(None, error, abandoned=left)

    def abandoned(self) -> None:
        """End a function call whose stream was not read to its end, with the chunks read so far as its answer."""
        self._end(None, None, abandoned=True)

    def _end(self, value: object, error: BaseException | None, *, abandoned: bool) -> None:
        if self._is_over or self.current is None:
            return
        self._is_over = True
        if sys.is_finalizing():  # nothing can be exported, and a thread that is no more may hold any lock
            return
        try:
            started_at = self._recorder.started_at
            timing = Timing(
                duration_s=perf_counter() - started_at,
                first_s=None if self._first is None else self._first - started_at,
                last_s=None if self._last is None else self._last - started_at,
                consumer_wait_s=self._wait_before_last,
            )
            result = self.result if value is None else value
            self._recorder.end(result, error, timing=timing, abandoned=abandoned, streamed=self.is_stream)
            if self.on_end is not None:
                self.on_end()
        except Exception as fault:
            faults.record("end", fault)

    def __del__(self) -> None:
        # A returned stream that was never started runs no code at all when it is collected, not even a `finally`.
        if not self._is_over and self.current is not None:
            self.abandoned()


@types.coroutine
def steps(call: StepRecorder | Invocation, awaitable: Awaitable[Any]) -> Generator[Any, Any, Any]:
    """Run the coroutine of a recorded function with its span as the current span, and return the coroutine's result.

    The span is current only while the user's code runs, not while the coroutine is suspended.

    An attach around an `await` would leave the context attached across suspensions, and fail to detach it when the
    coroutine is resumed elsewhere: another thread, another `contextvars.Context`.
    """
    iterator: Any = awaitable
    if not isinstance(awaitable, _COROUTINE):
        iterator = awaitable.__await__()
        iterator = iterator if hasattr(iterator, "send") else _await(awaitable)
    resume: Callable[[Any], Any] = iterator.send
    given: Any = None
    try:
        while True:
            token = None
            if call.current is not None and not (collection.thread and collection.is_on_this_thread()):
                token = attach(call.current)
            try:
                pending = resume(given)
            except StopIteration as stop:
                return stop.value
            finally:
                if token is not None:
                    # What the user's code attached stays attached for that code, and for a stream that it returns.
                    call.current = get_current()
                    detach(token)
                resume, given = iterator.send, None  # else this frame would keep a thrown-in error alive
            try:
                given = yield pending
            except GeneratorExit as leaving:
                resume, given = partial(_close, iterator), leaving
            except BaseException as error:
                resume, given = iterator.throw, error
    finally:
        # That of `athrow` keeps the error that it throws, whose traceback has this frame.
        del awaitable, iterator, resume


def _close(iterator: Any, leaving: GeneratorExit) -> NoReturn:
    """Close the iterator of an abandoned awaitable, as `await` does, and raise its `GeneratorExit` again.

    The garbage collector closes the coroutines of a task in any order: to throw into one that it has closed would print
    an error.
    """
    close: Callable[[], object] | None = getattr(iterator, "close", None)
    if close is not None:
        close()
    raise leaving


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable

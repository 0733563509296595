"""One run of a decorated function: all policy about when its span begins and ends, and whose context is current when.

What is recorded is the `Recorder`'s business, which a higher layer supplies. Nothing here raises into the application:
each call of the recorder is guarded, and if it cannot begin, the function runs untraced.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from opentelemetry.context import Context, attach, detach, get_current

from ragtrace.core.types import Timing
from ragtrace.system.faults import faults


@dataclass(slots=True)
class Ending:
    """How an invocation ended. `value` is what was returned; pieces of a stream were reported before.

    `streamed` says that there was a stream, read or not.
    """

    value: object
    error: BaseException | None
    abandoned: bool
    streamed: bool
    clock: tuple[float, float | None, float | None, float, float]
    """Monotonic seconds of begin, first piece, last piece, the reader's own time between those two, end."""

    def timing(self) -> Timing:
        """The same relative to the begin."""
        began, first, last, wait, ended = self.clock
        return Timing(
            duration_s=ended - began,
            first_s=None if first is None else first - began,
            last_s=None if last is None else last - began,
            consumer_wait_s=wait,
        )


class Recorder(Protocol):
    """Told what happens to one invocation. `begin` and `done` never raise; what the others raise is counted."""

    began: float
    """Monotonic seconds, from `begin`."""
    current: Context | None
    """The context to run the function in, from `begin`: kept up to date where it runs in several steps."""

    def begin(self) -> Context | None:
        """The function is about to run: returns the context to run it in, None if it is not to be recorded."""
        ...

    def piece(self, piece: object) -> None:
        """A stream yielded *piece*."""
        ...

    def done(self, value: object) -> None:
        """The function returned *value*, which is neither a stream nor to be awaited: the usual case of `end`."""
        ...

    def end(self, ending: Ending) -> None:
        """The function, or the stream it returned, is over. Either this or `done` is called, once, after `begin`."""
        ...


class Invocation:
    """One run of a decorated function that is not over when the function returns, or that fails: ends once.

    As a context manager it makes the call's context current, and is entered only around a step of the user's own code:
    never across a `yield`, an `await` or a return. What that code itself attached is kept for its next step.

    Args:
        recorder: if it has begun, it is taken over as it is; else `begin` starts it.
    """

    __slots__ = (
        "_first",
        "_last",
        "_over",
        "_recorder",
        "_result",
        "_streams",
        "_token",
        "_wait",
        "_wait_before_last",
        "_yielded",
        "current",
    )

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.current: Context | None = recorder.current
        self._first: float | None = None
        self._last: float | None = None
        self._yielded: float | None = None
        self._wait = 0.0
        self._wait_before_last = 0.0
        self._over = False
        self._streams = False
        self._result: object = None
        self._token: Any = None

    def begin(self) -> None:
        """Start the span, unless that was done before."""
        if self.current is None and not self._over:
            self.current = self._recorder.begin()
            self._over = self.current is None

    def __enter__(self) -> None:
        if self.current is not None:
            self._token = attach(self.current)

    def __exit__(self, *_: object) -> None:
        if self.current is not None:
            # A span that the user's generator opened before a yield must be current again after it, but not in between.
            self.current = get_current()
            detach(self._token)

    def resumed(self) -> None:
        """The reader asks for the next piece: until now it was the reader's time."""
        if self._yielded is not None:
            self._wait += perf_counter() - self._yielded
            self._yielded = None

    def add(self, piece: object) -> None:
        """A piece of a stream is about to be handed to the reader."""
        if self._over:
            return
        now = self._last = self._yielded = perf_counter()
        if self._first is None:
            self._first = now
        self._wait_before_last = self._wait
        try:
            self._recorder.piece(piece)
        except Exception as error:
            faults.record("stream piece", error)

    def streams(self) -> None:
        """What the function returned is a stream, and is being observed."""
        self._streams = True

    def returned(self, result: object) -> None:
        """Keep *result*, an object around a stream, for the end of that stream."""
        self._result = result

    def done(self, value: object) -> None:
        """The function returned *value*, or the stream is exhausted."""
        self._end(value, None, abandoned=False)

    def failed(self, error: BaseException) -> None:
        """The function raised *error*; `GeneratorExit` means that its reader left."""
        kind = type(error)  # isinstance would ask the error for its class, and a hostile one raises
        if issubclass(kind, GeneratorExit):
            self.abandoned()
        else:
            left = self._first is not None and issubclass(kind, asyncio.CancelledError)
            self._end(None, error, abandoned=left)

    def abandoned(self) -> None:
        """The reader left before the end: what was read so far is the answer."""
        self._end(None, None, abandoned=True)

    def _end(self, value: object, error: BaseException | None, *, abandoned: bool) -> None:
        if self._over or self.current is None:
            return
        self._over = True
        try:
            result = self._result if value is None else value
            clock = (self._recorder.began, self._first, self._last, self._wait_before_last, perf_counter())
            self._recorder.end(Ending(result, error, abandoned, self._streams, clock))
        except Exception as fault:
            faults.record("end", fault)

    def __del__(self) -> None:
        # A returned stream that nobody ever started runs no code at all when it is collected, not even a `finally`.
        if not self._over and self.current is not None:
            self.abandoned()

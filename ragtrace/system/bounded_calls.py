"""Threads for what an event loop has others do for it, the resolving of a name above all.

Those of `concurrent.futures` take no work while the interpreter shuts down, and are waited for at exit: a name server
that does not answer would keep the process for half a minute. These are daemon threads, and nobody waits for them.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from ragtrace.system.faults import guarded

T = TypeVar("T")
_MOST_THREADS: Final = 8
_STARTS_NONE_AT_EXIT: Final = sys.version_info >= (3, 12)
"""From then on a thread that is needed at exit must have been started before."""


class _Job:
    """A function to be called, and what is to become of its result."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function, self.future = function, Future[Any]()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self._function()
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class DaemonExecutor(ThreadPoolExecutor):
    """At most *most* daemon threads, started when they are needed; what is more waits, and may be cancelled until then.

    It is a `ThreadPoolExecutor` by name only, since an event loop takes no other.
    """

    def __init__(self, most: int = _MOST_THREADS) -> None:
        super().__init__(most)
        self._most = most
        self._guard = threading.Lock()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        """None: a thread is to end."""
        self._started = self._free = 0
        self._over = False

    def prepare(self) -> None:
        """Start the first thread now where it may later be too late."""
        with self._guard, suppress(RuntimeError):  # it is too late, or there is no room: what needs one will say so
            if _STARTS_NONE_AT_EXIT and not self._started:
                self._start()

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have *loop* use these threads; one that takes none keeps what it has."""
        with guarded("threads of the background's event loop"):
            loop.set_default_executor(self)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Part of the interface of executors.

        Raises:
            RuntimeError: it has been shut down; or there is no thread, and none can be started.
        """
        job = _Job(lambda: fn(*args, **kwargs))
        with self._guard:
            if self._over:
                raise RuntimeError("this executor has been shut down; its event loop is closed")
            if self._free <= 0 and self._started < self._most:
                self._start_another()
            self._free -= 1
            self._jobs.put(job)
        return job.future

    def _start_another(self) -> None:
        try:
            self._start()
        except RuntimeError:  # the interpreter is shutting down, or there is no room: those that there are must do
            if not self._started:
                raise

    def _start(self) -> None:
        threading.Thread(target=self._serve, name="ragtrace-executor", daemon=True).start()
        self._started += 1
        self._free += 1

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job  # with what it returned
            with self._guard:
                self._free += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Part of the interface of executors: its threads end when there is no work, and are waited for by nobody."""
        with self._guard:
            if not self._over:
                self._over = True
                for _ in range(self._started):
                    self._jobs.put(None)

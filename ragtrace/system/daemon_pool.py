"""Runs something that may hang, for a bounded time, also while the interpreter shuts down."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from time import monotonic

from ragtrace.system.faults import guarded

_SPARE_THREADS = 5
_STARTS_NONE_AT_EXIT = sys.version_info >= (3, 12)
"""From then on a thread that is needed at exit must have been started before."""


class _Job:
    """An action, and what came of it."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._outcome: list[object] = []
        self._done = threading.Event()

    def run(self) -> None:
        with guarded("flush of a provider"):
            self._outcome.append(self._action())
        self._done.set()

    def wait(self, deadline: float) -> bool:
        """Whether it came back in time, and neither raised nor returned False."""
        self._done.wait(max(0.0, deadline - monotonic()))
        return bool(self._outcome) and self._outcome[0] is not False


class _Spares:
    """Daemon threads of this process that wait for a job; a hung one is not replaced."""

    def __init__(self) -> None:
        self._pid = 0
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def start(self) -> None:
        """Start them, once in each process: a fork copies none."""
        if self._pid == os.getpid():
            return
        self._jobs, self._idle = SimpleQueue(), threading.Semaphore(0)
        serve = partial(self._serve, self._jobs, self._idle)
        for _ in range(_SPARE_THREADS):
            threading.Thread(target=serve, name="ragtrace-spare", daemon=True).start()
        self._pid = os.getpid()

    def run(self, job: _Job) -> bool:
        """Have *job* run by an idle thread; by the caller if none was ever started; not at all, False, if all hang."""
        if self._pid != os.getpid():
            job.run()
            return True
        idle = self._idle.acquire(timeout=0.1)
        if idle:
            self._jobs.put(job)
        return idle

    @staticmethod
    def _serve(jobs: SimpleQueue[_Job], idle: threading.Semaphore) -> None:
        while True:
            idle.release()
            jobs.get().run()


_spares = _Spares()


def prepare() -> None:
    """See that `bounded` keeps to its deadline at exit too; cheap when it already does."""
    if _STARTS_NONE_AT_EXIT:
        with suppress(RuntimeError):  # it is too late, or there is no room: `bounded` does without
            _spares.start()


def bounded(action: Callable[[], object], deadline: float) -> bool:
    """Run *action* on another thread until *deadline*: the SDK's `force_flush` and `shutdown` keep to no time-out.

    Returns:
        Whether it came back in time, and neither raised nor returned False.
    """
    return _begun(action).wait(deadline)


def all_bounded(actions: Iterable[Callable[[], object]], deadline: float) -> bool:
    """The same for several side by side, none of which waits for another."""
    jobs = [_begun(action) for action in actions]
    done = [job.wait(deadline) for job in jobs]
    return all(done)


def start(action: Callable[[], object]) -> None:
    """Run *action* on another thread without waiting for it; on the caller's where there is none to be had."""
    job = _Job(action)
    try:
        threading.Thread(target=job.run, name="ragtrace-end", daemon=True).start()
    except RuntimeError:  # the interpreter is shutting down and starts no more threads
        if not _spares.run(job):
            job.run()


def _begun(action: Callable[[], object]) -> _Job:
    job = _Job(action)
    try:
        threading.Thread(target=job.run, name="ragtrace-flush", daemon=True).start()
    except RuntimeError:  # the interpreter is shutting down and starts no more threads
        _spares.run(job)
    return job

"""Threads of ragtrace, which are all made here.

`background_thread` makes a thread for one function, such as the worker's. A `DaemonPool` has threads for short work: an
event loop's blocking calls, a user's blocking functions, and calls that may hang. Threads of `concurrent.futures` take
no work while the interpreter shuts down and are waited for at exit: a name server that does not answer would keep the
process for half a minute. A process does not wait for threads of ours.

`tests/contract/test_one_place_makes_threads.py` checks that no other file makes one.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final, TypeVar, cast

try:
    from concurrent.futures import ThreadPoolExecutor
except RuntimeError as late:
    raise RuntimeError(
        "ragtrace was not used before the interpreter began to exit, and cannot begin to work now: call "
        "ragtrace.configure() earlier, or register this exit handler after `import concurrent.futures.thread`"
    ) from late

from ragtrace.system.fair_semaphore import FairSemaphore
from ragtrace.system.faults import faults, guarded
from ragtrace.system.forks import PerProcess
from ragtrace.system.green_threads import green_library as green_library  # which notes what threads are by now

T = TypeVar("T")
_MOST_THREADS: Final = 8
_SPARE_THREADS: Final = 5
_IDLE_SECONDS: Final = 10.0
_STARTS_NONE_AT_EXIT: Final = sys.version_info >= (3, 12)
"""Whether Python starts no thread during exit, so that a thread that is needed then must be started before."""


def background_thread(function: Callable[[], object], name: str) -> threading.Thread:
    """Return a thread that will call *function*, for which the process does not wait when it ends.

    The function runs in an empty context: its spans must not be children of the request that happens to start the
    thread. `start` raises a `RuntimeError` where there are too many threads, or the interpreter is shutting down.
    """
    return threading.Thread(target=contextvars.Context().run, args=(function,), name=name, daemon=True)


class DaemonPool(ThreadPoolExecutor):
    """Thread pool with a limited number of daemon threads, for which the process does not wait when it ends.

    Threads are started when they are needed; further calls wait, and may be cancelled. A `ThreadPoolExecutor` by name
    only, since an event loop takes no other.

    Args:
        most: threads at a time.
        name: of its threads.
        idle_seconds: after which a thread without work ends; None: it stays until `shutdown`.
    """

    def __init__(
        self, most: int = _MOST_THREADS, name: str = "ragtrace-executor", idle_seconds: float | None = None
    ) -> None:
        super().__init__(most)
        self._most, self._name, self._idle_seconds = most, name, idle_seconds
        # Re-entrant: a stream that is collected under it may start the worker, which prepares threads.
        self._guard = threading.RLock()
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        """Calls and their futures, in order; None stands for the end of one thread."""
        self._started = self._free = 0
        self._over = False

    def prepare(self, threads: int = 1) -> None:
        """Start threads of the pool now, on Python versions that start none while the interpreter exits."""
        with self._guard, suppress(RuntimeError):  # during exit, or out of threads: the call that needs one fails
            while _STARTS_NONE_AT_EXIT and self._started < threads:
                self._start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call *fn* on a thread of the pool and return a future of its result, as any executor does.

        Raises:
            RuntimeError: the pool has been shut down; or there is no thread, and none can be started.
        """
        future: Future[T] = Future()
        with self._guard:
            if self._over:
                raise RuntimeError("this executor has been shut down; its event loop is closed")
            if self._free <= 0 and self._started < self._most:
                try:
                    self._start()
                except RuntimeError:  # during exit, or out of threads: the ones that run must do
                    if not self._started:
                        raise
            self._free -= 1
            self._calls.put((lambda: fn(*args, **kwargs), future))
        return future

    def _start(self) -> None:
        background_thread(partial(self._serve, self._calls), self._name).start()
        self._started += 1
        self._free += 1

    def _serve(self, calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]) -> None:
        while True:
            try:
                call = calls.get(timeout=self._idle_seconds)
            except Empty:
                with self._guard:
                    # First this, so that a finalizer that submits a call meanwhile starts another thread for it.
                    self._started -= 1
                    self._free -= 1
                    if calls.empty():
                        return
                    self._started += 1  # a call was queued at this very moment
                    self._free += 1
                continue
            if call is None:
                return
            _run(*call)
            del call  # and the arguments that the call keeps alive
            with self._guard:
                self._free += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads of the pool after they have run all calls submitted so far, without waiting for them."""
        with self._guard:
            if not self._over:
                self._over = True
                for _ in range(self._started):
                    self._calls.put(None)


def _run(function: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    result: Any = None
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        del future, result  # which have the error, whose traceback has this frame or those that it called


_bounded_calls = PerProcess(lambda: DaemonPool(1_000, "ragtrace-bounded"))


def prepare_bounded_calls() -> None:
    """Start the threads of `run_bounded` in advance, as Python 3.12 starts none while the interpreter exits."""
    _bounded_calls.get().prepare(_SPARE_THREADS)


def run_bounded(action: Callable[[], object], deadline: float) -> bool:
    """Run *action* on another thread and wait for it, but no longer than until the monotonic time *deadline*.

    Returns:
        Whether it came back in time, and neither raised nor returned False.
    """
    return run_all_bounded([action], deadline)


def run_all_bounded(actions: Iterable[Callable[[], object]], deadline: float) -> bool:
    """Run *actions* in parallel threads. Return whether all succeeded before the monotonic time *deadline*."""
    futures = [start_in_thread(action) for action in actions]
    wait(futures, max(0.0, deadline - monotonic()))
    return all(future.done() and future.result() for future in futures)


def start_in_thread(action: Callable[[], object]) -> Future[bool]:
    """Start *action* on another thread, and return a future that tells whether it succeeded.

    If no thread can be started, it runs on the caller's. Its failures are counted.

    Returns:
        Of whether it neither raised nor returned False.
    """

    def guard() -> bool:
        outcomes: list[object] = []
        with guarded("flush of a provider"):
            outcomes.append(action())
        return bool(outcomes) and outcomes[0] is not False

    try:
        return _bounded_calls.get().submit(guard)
    except RuntimeError:  # the interpreter is shutting down and starts no more threads
        future: Future[bool] = Future()
        _run(guard, future)
        return future


def run_in_background(action: Callable[[], object]) -> bool:
    """Run *action* on another thread, without waiting for it. Return False if no thread can be started.

    Its failures are counted.
    """

    def guard() -> None:
        with guarded("background work"):
            action()

    try:
        # In an empty context: the work is no part of the request that happened to come first.
        _bounded_calls.get().submit(contextvars.Context().run, guard)
    except RuntimeError:  # out of threads, or the interpreter is shutting down and starts no more
        return False
    return True


class NoThreadError(Exception):
    """Raised when a function cannot run on a thread: too many threads hang, or no more can be started."""


class BlockingCalls:
    """Pool of daemon threads that run a user's blocking functions for an event loop.

    *limit* of them run at a time. A function whose caller is cancelled (by a deadline) is left to itself and counted as
    hung until it returns. At most *limit* may hang: so there are never more than twice *limit* threads.

    Args:
        limit: functions that may run at a time.
        owner: who they belong to, in messages: "judge NAME", "metrics of NAME".
    """

    def __init__(self, limit: int, owner: str) -> None:
        self._limit, self._owner = limit, owner
        self._semaphore = FairSemaphore(limit)
        self._pool = DaemonPool(2 * limit, f"ragtrace {owner}", _IDLE_SECONDS)
        self._abandoned: list[Future[Any]] = []

    @property
    def hung(self) -> int:
        """Number of threads that still run a function whose caller no longer waits."""
        self._abandoned = [future for future in self._abandoned if not future.done()]
        return len(self._abandoned)

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call the blocking *function* on a thread of the pool and return its result.

        Raises:
            NoThreadError: too many threads hang, or none can be started.
            RuntimeError: the function raised `SystemExit` or the like, which would end the event loop.
        """
        if self.hung >= self._limit:
            raise NoThreadError(
                f"{self.hung} threads of {self._owner} still hang in earlier calls; set a timeout in their code"
            )

        def outcome() -> tuple[list[T], BaseException | None]:
            try:
                return [function(*args)], None
            except BaseException as raised:
                return [], raised

        async with self._semaphore:
            try:
                # In a copy of our context, in which instrumented HTTP clients do not trace a judge's requests.
                future = self._pool.submit(contextvars.copy_context().run, outcome)
            except RuntimeError as none:
                raise NoThreadError(f"no thread could be started: {none}") from none
            try:
                values, error = cast("tuple[list[T], BaseException | None]", await asyncio.wrap_future(future))
            finally:
                if not future.done():
                    self._abandoned.append(future)
                    faults.warn_once(
                        f"hung thread: {self._owner}",
                        "%s did not return in time; its thread is left to itself. Give its client a time limit of its "
                        "own",
                        self._owner,
                    )
        try:
            if error is None:
                return values[0]
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                raise error
            raise RuntimeError(f"{type(error).__name__} was raised in a thread of {self._owner}") from error
        finally:
            del error, future  # the error's traceback has this frame

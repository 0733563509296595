"""The current runtime of the process, and `flush`, `stats` and `shutdown`, which ask it.

A small module, so that decorating a function imports little else, and an exit handler that calls them nothing.

A forked child has none at first: it leaves its parent's alone, and its first use of ragtrace builds one of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from math import inf
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from ragtrace.system import forks
from ragtrace.system.faults import faults, guarded

if TYPE_CHECKING:
    from ragtrace.core.ledger import Stats
    from ragtrace.runtime.runtime import Runtime

with suppress(RuntimeError):  # of an interpreter that exits, which imports this no more: exit handlers need it then
    import_module("concurrent.futures.thread")

_PAUSE_SECONDS: Final = 0.005
_lock = threading.RLock()
installed: Runtime | None = None
"""Current runtime, which decorated functions read directly.

None before `configure`, after `shutdown`, and in a forked child before `current` is called: then call it.
"""
_rebuild: Callable[[Runtime], Runtime] | None = None
"""Function that builds the runtime of a forked child, which is then started, from its parent's configuration."""
_parents: Runtime | None = None
"""Runtime of the parent in a forked child that has not built its own; else None."""
_is_building = False
_switched_off = False
_ended: Runtime | None = None
"""Runtime that was shut down last; None while another runtime is installed."""
_ending: list[Runtime] = []
"""Former runtimes whose shutdown goes on in the background."""


def current() -> Runtime | None:
    """Return the runtime configured in this process, or None before `configure` and after `shutdown`.

    The first call in a forked child builds the child's runtime.
    """
    return installed if _parents is None else _build_own()


def wake() -> None:
    """Start the worker of the current runtime."""
    runtime = current()
    if runtime is not None:
        runtime.worker.start()


def switched_off() -> bool:
    """Return whether the last `configure` disabled ragtrace (`enabled=False`)."""
    return _switched_off


def final_stats() -> Stats | None:
    """Return the final stats of the runtime that was shut down last, or None if there is none or another one runs."""
    return None if _ended is None else _ended.stats()


def flush(timeout: float = 5.0) -> bool:
    """Score all finished calls and export their telemetry within *timeout* seconds.

    Examples:
        >>> ragtrace.configure(exporter="none")
        >>> ragtrace.flush(timeout=2.0)
        True

    Args:
        timeout: the longest that it may take.

    Returns:
        True if all of them were scored and exported; True as well if ragtrace is not configured.
    """
    runtime, deadline = current(), monotonic() + timeout
    flushed = runtime is None or runtime.flush(timeout)
    return _wait_for_former(deadline) and flushed


def stats() -> Stats:
    """Return how many calls were scored, sampled out, failed or dropped since `configure`, and ragtrace's internal
    faults.

    `faults` counts for the whole process, over all its configurations; `ragtrace.doctor()` shows those of the last one.
    After `shutdown` these are the final counts, with what was lost, until `configure` is called again.

    Examples:
        >>> ragtrace.configure(exporter="none")
        >>> with ragtrace.call("Where is the tower?") as call:
        ...     call.answered("In Paris.")
        >>> ragtrace.flush()
        True
        >>> stats = ragtrace.stats()
        >>> stats.offered, stats.scored, stats.dropped
        (1, 1, {})
    """
    runtime = current()
    if runtime is not None:
        return runtime.stats()
    from ragtrace.core.ledger import Stats

    return final_stats() or Stats({}, faults.counts())


def shutdown(timeout: float = 10.0) -> bool:
    """Score and export all pending calls within *timeout* seconds, then stop ragtrace.

    Losses are counted and logged.

    An exception that a signal handler raises meanwhile (Ctrl-C, `sys.exit`) passes through after about a second, in
    which calls that were not scored are kept in the spool, or counted as lost.

    Examples:
        >>> ragtrace.configure(exporter="none")
        >>> ragtrace.shutdown(timeout=2.0)
        True

    Args:
        timeout: the longest that it may take.

    Returns:
        True if everything was scored and exported; called again, the same as the first time.
    """
    deadline = monotonic() + timeout
    complete = install(None, timeout)
    return _wait_for_former(deadline) and complete


def install(
    runtime: Runtime | None,
    timeout: float,
    *,
    off: bool = False,
    faults_so_far: Mapping[str, int] | None = None,
    rebuild: Callable[[Runtime], Runtime] | None = None,
    patience: float = inf,
) -> bool:
    """Make *runtime* the current runtime of the process, and shut the previous runtime down within *timeout* seconds.

    Args:
        runtime: the new runtime, which has been started; None: there is none from now on.
        timeout: seconds for the shutdown of the previous one.
        off: whether ragtrace is switched off (`enabled=False`).
        faults_so_far: counts of what failed while *runtime* was configured, by place.
        rebuild: builds the runtime of a forked child, which it gives its parent's.
        patience: seconds to wait for the shutdown, which goes on in the background after that.

    Returns:
        Whether nothing was lost in the shutdown of the previous runtime, or else of the one that was shut down last.
    """
    global installed, _switched_off, _ended, _rebuild, _parents
    _watch_forks()
    with _lock:
        if _parents is not None:  # a child that configures itself, or shuts down, builds no runtime from the parent's
            _parents.worker.forget_queued()
        before, installed, _switched_off = installed, runtime, off
        _rebuild, _parents = rebuild, None
        # Set before the shutdown, which a signal may interrupt: `stats` reads the ended runtime afterwards.
        before = before or (_ended if runtime is None and not off else None)
        _ended = before if runtime is None and not off else None
    try:
        return True if before is None else before.shutdown(timeout, patience)
    finally:
        _ending[:] = [each for each in _ending if not each.has_ended]
        if before is not None:
            if not before.has_ended and before not in _ending:
                _ending.append(before)
            faults.end_configuration(faults_so_far or {})
        if runtime is not None:
            faults.begin_configuration()


def _wait_for_former(deadline: float) -> bool:
    """Wait for the former runtimes that end in the background, until the monotonic time *deadline*.

    Returns:
        Whether they have ended, and nothing of theirs was lost.
    """
    former = tuple(_ending)
    while any(not each.has_ended for each in former) and monotonic() < deadline:
        sleep(_PAUSE_SECONDS)
    return all(each.has_ended and each.shutdown(0) for each in former)


def _build_own() -> Runtime | None:
    """Build the runtime of this forked child, unless another thread has done so.

    A failure is counted as a fault, and not tried again; an interruption is the application's, as anywhere else.
    """
    global installed, _parents, _is_building
    with _lock:
        if _parents is not None and _rebuild is not None and not _is_building:
            _is_building = True
            try:
                with guarded("start in a forked process"):
                    from ragtrace.system import green_threads

                    if problem := green_threads.problem():
                        raise RuntimeError(problem)
                    runtime = _rebuild(_parents)
                    runtime.start()
                    installed = runtime
                _parents = None  # not where a signal handler has interrupted it: the next use builds one
            finally:
                _is_building = False
        return installed


@cache
def _watch_forks() -> None:
    forks.watch_forks(in_child=_leave_parents)


def _leave_parents() -> None:
    """Leave the parent's runtime alone in a forked child: its locks may be held, and its connections are shared."""
    global installed, _parents, _ended, _lock, _is_building
    _lock, _is_building = threading.RLock(), False
    faults.forget_former()
    for ended in (*_ending, *filter(None, [_ended])):
        forks.keep(ended)
    _ending.clear()
    _ended = None
    if installed is not None:
        forks.keep_connections_open()
        forks.keep(installed)
        installed, _parents = None, installed

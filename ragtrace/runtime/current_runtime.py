"""The current runtime of the process, in a small module so that decorating a function imports little else."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ragtrace.system.faults import faults

if TYPE_CHECKING:
    from ragtrace.core.ledger import Stats
    from ragtrace.runtime.runtime import Runtime

_lock = threading.RLock()
installed: Runtime | None = None
"""Current runtime, which decorated functions read directly; None before `configure` and after `shutdown`."""
_switched_off = False
_ended: Runtime | None = None
"""Runtime that was shut down last; None while another runtime is installed."""


def current() -> Runtime | None:
    """Return the runtime configured in this process, or None before `configure` and after `shutdown`."""
    return installed


def switched_off() -> bool:
    """Return whether the last `configure` disabled ragtrace (`enabled=False`)."""
    return _switched_off


def final_stats() -> Stats | None:
    """Return the final stats of the runtime that was shut down last, or None if there is none or another one runs."""
    return None if _ended is None else _ended.stats()


def install(
    runtime: Runtime | None, timeout: float, *, off: bool = False, faults_so_far: Mapping[str, int] | None = None
) -> bool:
    """Make *runtime* the current runtime of the process, and shut the previous runtime down within *timeout* seconds.

    Args:
        runtime: the new runtime; None: there is none from now on.
        timeout: seconds for the shutdown of the previous one.
        off: whether ragtrace is switched off (`enabled=False`).
        faults_so_far: counts of what failed while *runtime* was configured, by place.

    Returns:
        Whether nothing was lost in the shutdown of the previous runtime, or else of the one that was shut down last.
    """
    global installed, _switched_off, _ended
    with _lock:
        before, installed, _switched_off = installed, runtime, off
        # Set before the shutdown, which a signal may interrupt: `stats` reads the ended runtime afterwards.
        before = before or (_ended if runtime is None and not off else None)
        _ended = before if runtime is None and not off else None
    try:
        return True if before is None else before.shutdown(timeout)
    finally:
        if before is not None:
            faults.end_configuration(faults_so_far or {})
        if runtime is not None:
            faults.begin_configuration()

"""Notices which thread runs the garbage collector, where finalizers must not change context variables.

Python 3.10 and 3.11 collect at any allocation, one inside `ContextVar.set` included. A finalizer that sets a variable
of the same context meanwhile (a generator's `finally`, `__del__`) makes the outer `set` read freed memory, which ends
the process. From 3.12 on the collector runs between instructions only, and nothing is watched.
"""

from __future__ import annotations

import gc
import sys
from threading import get_ident

thread: int | None = None
"""Id of the thread that collects garbage now; None: no thread, or it is not watched."""


def watch() -> None:
    """Note collections of this process from now on, where finalizers need care."""
    if sys.version_info < (3, 12) and sys.implementation.name == "cpython" and _note not in gc.callbacks:
        gc.callbacks.append(_note)


def is_on_this_thread() -> bool:
    """Return whether the caller runs inside a collection, as finalizers do."""
    return thread is not None and thread == get_ident()


def _note(phase: str, _: dict[str, int]) -> None:
    global thread
    thread = get_ident() if phase == "start" else None

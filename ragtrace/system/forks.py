"""Hook for forked child processes, where locks, queues and threads of the parent must be made anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakMethod


def call_in_child(method: Callable[[], object]) -> None:
    """Register the bound method *method* to be called in every forked child process, while its object lives.

    A hook of the interpreter can never be removed again, so it must not keep the object alive. Where there are no forks
    it does nothing.
    """
    alive = WeakMethod(method)
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=lambda: (call := alive()) and call())

"""Hook for forked children, where locks, queues and threads are the parent's, or in the state that the fork found."""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakMethod


def in_child(method: Callable[[], object]) -> None:
    """Call *method*, bound to an object, in every child that is forked while the object lives.

    A hook of the interpreter can never be removed again, so it must not keep the object alive. Where there are no forks
    it does nothing.
    """
    alive = WeakMethod(method)
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=lambda: (call := alive()) and call())

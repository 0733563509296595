"""Exit handlers that also run in children of `multiprocessing`, which end without calling `atexit` handlers."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from typing import Any


def before_exit(finish: Callable[[], object]) -> None:
    """Register *finish* to be called when this process ends normally, by `sys.exit` or by an exception."""
    atexit.register(finish)
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        _before_child_ends(finish)


def cancel(finish: Callable[[], object]) -> None:
    """Unregister the exit handler *finish*. A child process of `multiprocessing` may still call the handler."""
    atexit.unregister(finish)


def after_fork(owner: object, finish: Callable[[], object]) -> None:
    """Register the exit handler *finish* in a newly forked child process, for as long as *owner* lives."""
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:

        def register(_: object) -> None:
            _before_child_ends(finish)

        # multiprocessing clears its exit handlers in a new child, and calls this function after that.
        util.register_after_fork(owner, register)


def _before_child_ends(finish: Callable[[], object]) -> None:
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, finish, exitpriority=0)

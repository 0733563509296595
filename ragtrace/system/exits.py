"""Exit handlers that also run in children of `multiprocessing`, which end without calling `atexit` handlers."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from typing import Any


def before_exit(finish: Callable[[], object]) -> None:
    """Register *finish* to be called when this process ends normally, by `sys.exit` or by an exception.

    Handlers run in reverse order. One that is registered already is moved to the end of the list.
    """
    atexit.unregister(finish)
    atexit.register(finish)
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        _before_child_ends(finish)


def cancel(finish: Callable[[], object]) -> None:
    """Unregister the exit handler *finish*. A child process of `multiprocessing` may still call the handler."""
    atexit.unregister(finish)


def _before_child_ends(finish: Callable[[], object]) -> None:
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, finish, exitpriority=0)

"""Runs something before the process ends, also in children of `multiprocessing`, which end past `atexit`."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from functools import partial
from typing import Any


def before_exit(finish: Callable[[], object]) -> None:
    """Call *finish* when this process ends by itself: at its end, by `sys.exit`, by an exception."""
    atexit.register(finish)
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        _before_child_ends(finish)


def cancel(finish: Callable[[], object]) -> None:
    """Do not call *finish* at exit any more. A child of multiprocessing may still do."""
    atexit.unregister(finish)


def after_fork(owner: object, finish: Callable[[], object]) -> None:
    """In a child that has just been forked: see that *finish* is called before it ends, while *owner* lives."""
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        # multiprocessing forgets what is registered now, and calls this back when it has.
        util.register_after_fork(owner, partial(_in_child, finish))


def _in_child(finish: Callable[[], object], _: object) -> None:
    _before_child_ends(finish)


def _before_child_ends(finish: Callable[[], object]) -> None:
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, finish, exitpriority=0)

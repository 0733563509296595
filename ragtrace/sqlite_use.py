"""Forks and SQLite: a child that is forked while another thread is inside SQLite gets its locks, held for ever.

So a fork waits a moment until nobody of ours is inside. Where that is not enough, SQLite would hang in the child: there
every use of ours fails instead, and what was to be kept is counted as lost.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Final

MOST_SECONDS: Final = 0.2
"""How long a fork of the application is held up at most."""


class Gate:
    """Lets threads in, except while the process forks. Forks are announced by `before_fork` and `after_fork`.

    Args:
        patience: seconds that a fork waits for those who are inside.
    """

    def __init__(self, patience: float = MOST_SECONDS) -> None:
        self._patience = patience
        self._thread = threading.local()
        self._open(passable=True)

    def _open(self, *, passable: bool) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside, self._forking, self._passable = 0, False, passable

    @contextmanager
    def inside(self) -> Generator[None, None, None]:
        """While the block runs, no fork takes place, unless it takes too long.

        Raises:
            sqlite3.OperationalError: this process was forked while another thread was inside.
        """
        depth: int = getattr(self._thread, "depth", 0)
        if not depth:
            self._enter()
        self._thread.depth = depth + 1
        try:
            yield
        finally:
            self._thread.depth = depth
            if not depth:
                self._leave()

    def _enter(self) -> None:
        with self._changed:
            if not self._passable:
                import sqlite3

                raise sqlite3.OperationalError("this process was forked while SQLite was in use, and cannot use it")
            self._changed.wait_for(lambda: not self._forking)
            self._inside += 1

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def before_fork(self) -> None:
        """Let nobody in any more, and wait for those who are inside; holds the lock until `after_fork`."""
        self._changed.acquire()
        self._forking = True
        own = int(getattr(self._thread, "depth", 0) > 0)
        self._changed.wait_for(lambda: self._inside <= own, timeout=self._patience)

    def after_fork(self, *, child: bool) -> None:
        """Let them in again; in a *child* only if nobody was inside."""
        if child:
            self._open(passable=self._passable and self._inside == 0)
            return
        self._forking = False
        self._changed.notify_all()
        self._changed.release()


@cache
def _gate() -> Gate:
    gate = Gate()
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(
            before=gate.before_fork,
            after_in_parent=partial(gate.after_fork, child=False),
            after_in_child=partial(gate.after_fork, child=True),
        )
    return gate


def using_sqlite() -> AbstractContextManager[None]:
    """Around whatever calls SQLite, be it to close a file; raises what SQLite raises where it cannot be used."""
    return _gate().inside()

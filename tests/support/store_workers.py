"""Processes that share one history and take turns: run as `python -m tests.support.store_workers EXPERIMENT PATH`.

Each experiment makes a known number of calls in several processes and exits with 0 if all of their ends went well.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Final

import ragtrace
from ragtrace.testing import Captured

CHILDREN: Final = 4
CALLS: Final = 100
"""Of each process besides the first one."""
_SECONDS: Final = 30.0


@ragtrace.generate
def _answer(question: str, contexts: list[str]) -> str:
    return "In " + question


def _configure(path: str) -> None:
    ragtrace.configure(service="s", exporter=Captured().signals, store=path)


def _call(name: str, times: int = 1) -> None:
    for number in range(times):
        _answer(f"{name} {number}?", ["Berlin."])
    if not ragtrace.flush(_SECONDS):
        sys.exit(f"{name}: not flushed")


class Turns:
    """A forked child that takes one step whenever it is told to, and ends after the last.

    Args:
        steps: what it does, in order.
    """

    def __init__(self, *steps: Callable[[], object]) -> None:
        told, self._tell = os.pipe()
        self._done, done = os.pipe()
        self._pid = os.fork()
        if self._pid:
            return
        for step in steps:
            os.read(told, 1)
            step()
            os.write(done, b".")
        os._exit(0)

    def step(self) -> None:
        """Let the child take its next step, and wait until it has."""
        os.write(self._tell, b".")
        if not os.read(self._done, 1):
            sys.exit("a child ended before its time")

    def end(self) -> None:
        """Wait until the child has ended, which must be in order."""
        if os.waitpid(self._pid, 0)[1]:
            sys.exit("a child failed")


def _shut_down() -> None:
    if not ragtrace.shutdown(_SECONDS):
        sys.exit("a shutdown lost something")


def forked(path: str) -> int:
    """Fork children from a process that has the file open, and end the parent's use of it first."""
    _configure(path)
    _call("parent")
    half = CALLS // 2
    children = [
        Turns(lambda name=f"{n} early": _call(name, half), lambda name=f"{n} late": _call(name, half), _shut_down)
        for n in range(CHILDREN)
    ]
    for child in children:
        child.step()
    _shut_down()
    for _ in range(2):
        for child in children:
            child.step()
    for child in children:
        child.end()
    return 1 + CHILDREN * CALLS


def refused(path: str) -> int:
    """Have one process refuse a second `configure` for the same file, while others come and go."""

    def worker(name: str) -> Turns:
        return Turns(lambda: (_configure(path), _call(name)), lambda: _call(name, CALLS), _shut_down)

    first, second, third = (worker(name) for name in ("first", "second", "third"))
    first.step()
    second.step()
    _configure(path)
    _call("refusing")
    with contextlib.suppress(ragtrace.SettingsError):
        ragtrace.configure(store=path, exporter="typo")
    for step in (first.step, first.step, second.step, second.step, third.step):
        step()
    _call("refusing again")
    third.step()
    _shut_down()
    third.step()
    for child in (first, second, third):
        child.end()
    return 2 + 3 * (1 + CALLS)


EXPERIMENTS: Final = {"forked": forked, "refused": refused}

if __name__ == "__main__":
    print(EXPERIMENTS[sys.argv[1]](sys.argv[2]))  # noqa: T201 - for the process that started this one

"""Finds the locks of ragtrace's objects, and holds them all at a time, as its threads may when a process forks."""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from time import monotonic
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Final

OWN: Final = ("ragtrace", "ragtrace_exporters")
"""Packages whose objects are walked through. How those of the SDK and of users survive a fork is not our affair."""
LOCKS: Final = (type(threading.Lock()), type(threading.RLock()))
TAKEN_BY_THE_FORK: Final = "ForkGate._changed"
"""Lock that the thread which forks takes itself, before the process divides."""
FREE_S: Final = 30.0
"""How long all locks together may be in use. A thread that ticks takes them for microseconds."""


def own_locks(*more: object) -> list[tuple[str, Any]]:
    """Return all locks that the modules of ragtrace and the objects *more* lead to, each with its name.

    A name is that of the class and the attribute, `Outbox._changed`, or of the module and the variable. The walk goes
    through attributes, containers, partial functions, bound methods and closures of ragtrace's objects, so that a lock
    that is new in any of them is found.
    """
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in OWN]
    waiting = deque[tuple[str, object]](("", value) for value in (*modules, *more))
    seen = {id(value) for _, value in waiting}
    found: list[tuple[str, Any]] = []
    while waiting:
        name, value = waiting.popleft()
        if isinstance(value, LOCKS) and name != TAKEN_BY_THE_FORK:
            found.append((name, value))
        for attribute, part in _parts(value):
            if id(part) not in seen:
                seen.add(id(part))
                waiting.append((attribute or name, part))
    return found


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield what *value* leads to, with the name of the attribute that holds it; "": that of *value* itself."""
    if isinstance(value, ModuleType) and value.__name__.partition(".")[0] in OWN:
        yield from ((f"{value.__name__}.{name}", part) for name, part in tuple(vars(value).items()))
    elif isinstance(value, (threading.Condition, threading.Event, threading.Semaphore)):
        yield from (("", vars(value)[name]) for name in ("_lock", "_cond") if name in vars(value))
    elif isinstance(value, Mapping) and type(value).__module__ in ("builtins", "collections"):
        yield from (("", part) for part in tuple(value.values()))
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield from (("", part) for part in tuple(value))
    elif isinstance(value, functools.partial):
        yield from (("", part) for part in (value.func, value.args, value.keywords))
    elif isinstance(value, MethodType):
        yield "", value.__self__
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # not assigned yet
                yield "", cell.cell_contents
    elif str(type(value).__module__).partition(".")[0] in OWN:
        yield from ((f"{type(value).__name__}.{name}", part) for name, part in _attributes(value))


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    yield from tuple(getattr(value, "__dict__", {}).items())
    for name, slot in (entry for cls in type(value).__mro__ for entry in vars(cls).items()):
        if isinstance(slot, MemberDescriptorType):
            with suppress(AttributeError):  # not set
                yield name, slot.__get__(value)


def hold_all(locks: Iterable[Any]) -> None:
    """Acquire all *locks* on this thread.

    A thread of ragtrace may hold one of them and wait for another: then all are released, and tried again.
    """
    wanted, deadline = list(locks), monotonic() + FREE_S
    while True:
        held: list[Any] = []
        for lock in wanted:
            if not lock.acquire(timeout=0.1):
                break
            held.append(lock)
        else:
            return
        release_all(held)
        assert monotonic() < deadline, f"the lock number {len(held)} is never free"


def release_all(locks: Iterable[Any]) -> None:
    """Release *locks*, which this thread holds, in the reverse of their order."""
    for lock in reversed(list(locks)):
        lock.release()

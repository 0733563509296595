"""The one place that notices a fork of the process.

A fork copies locks in the state they were in, none of the threads, and connections that two processes must not share.
So nothing of the parent is repaired in a child, but the lock of the module that holds the runtime, and the parent's
queued items are let go (`Worker.forget_queued`): what has locks, queues, threads or connections is made anew at its
first use there. That is the whole runtime (`ragtrace.runtime.current_runtime`), and each `PerProcess` value of the few
objects that outlive a runtime, as users and libraries hold them: judges, span processors, meters.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Generic, TypeVar, cast

T = TypeVar("T")
process: object = object()
"""Marker of this process: another object in each forked child. To compare markers costs less than `os.getpid`."""
_UNMADE: Final = object()
_lock = threading.RLock()
_unhooked: Final[list[None]] = [None]
"""One entry until the hooks are registered, for the thread that registers them. A lock might be held at a fork."""
_before: list[Callable[[], object]] = []
_in_parent: list[Callable[[], object]] = []
_in_child: list[Callable[[], object]] = []
_parents: list[object] = []
"""Objects of the parent process and its ancestors, whose deletion would harm them."""


class Home:
    """Process in which an object was made.

    Unlike the marker `process`, it is right in a child whose hooks of the fork have not all run: those of other
    libraries start threads.
    """

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    def is_here(self) -> bool:
        """Return whether this process is the one, and no child of it."""
        return self._pid == os.getpid()


class PerProcess(Generic[T]):
    """Value that each process makes for itself, at its first use.

    A forked child drops its parent's value without reading it, and a copy has none. Safe from any thread.

    Args:
        make: makes the value.
        keeps_parents: whether the parent's value stays referenced in a child, because its deletion would close
            connections of the parent.
    """

    __slots__ = ("_keeps_parents", "_make", "_process", "_value")

    def __init__(self, make: Callable[[], T], *, keeps_parents: bool = False) -> None:
        self._make, self._keeps_parents = make, keeps_parents
        self._process: object = None
        self._value: object = _UNMADE

    def __reduce__(self) -> tuple[object, ...]:
        """Have a copy, or what another process unpickles, make a value of its own."""
        return partial(PerProcess, keeps_parents=self._keeps_parents), (self._make,)

    def get(self) -> T:
        """Return the value of this process. The first use makes it, and raises what that raises."""
        if self._process is not process:
            self._make_value()
        return cast("T", self._value)

    def peek(self) -> T | None:
        """Return the value of this process, or None if it was not used yet."""
        return cast("T", self._value) if self._process is process else None

    def _make_value(self) -> None:
        _hook()
        with _lock:
            if self._process is process:  # made by another thread meanwhile
                return
            if self._keeps_parents and self._value is not _UNMADE:
                keep(self._value)
                self._value = _UNMADE
            self._value = self._make()
            self._process = process  # last, as `get` reads it without the lock


def keep(parents: object) -> None:
    """Keep an object of the parent process referenced in a forked child, so that it is never deleted there."""
    _parents.append(parents)


def watch_forks(
    *,
    before: Callable[[], object] | None = None,
    in_parent: Callable[[], object] | None = None,
    in_child: Callable[[], object] | None = None,
) -> None:
    """Have functions called around every fork from now on, where there are forks.

    They cannot be removed, so they must not keep alive what ends before the process.

    Args:
        before: called before the fork, on the thread that forks.
        in_parent: called after it in the parent.
        in_child: called after it in the child, which has no other thread then.
    """
    _hook()
    for functions, function in ((_before, before), (_in_parent, in_parent), (_in_child, in_child)):
        if function is not None:
            functions.append(function)


def keep_connections_open() -> None:
    """Keep urllib3 from closing the parent's idle connections when a forked child ends.

    urllib3 closes its pools at exit, and waits for the lock of each: a thread of the parent may have held it at the
    fork, as our exporters' do at each request, and then the child would never end.
    """
    # The only way to reach these objects.
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        known = finalizer.peek()
        if known is not None and getattr(known[1], "__module__", "") == "urllib3.connectionpool":
            finalizer.atexit = False


def _hook() -> None:
    if not _unhooked or not hasattr(os, "register_at_fork"):  # not on Windows
        return
    with suppress(IndexError):  # another thread has just come first: registered twice, every fork would wait for itself
        _unhooked.pop()
        os.register_at_fork(before=_call_before, after_in_parent=_call_in_parent, after_in_child=_call_in_child)


def _call_before() -> None:
    for function in _before:
        function()


def _call_in_parent() -> None:
    for function in _in_parent:
        function()


def _call_in_child() -> None:
    global process, _lock
    process, _lock = object(), threading.RLock()
    for function in _in_child:
        function()

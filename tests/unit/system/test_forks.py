"""What a process and its forked children have of their own."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from itertools import count
from typing import Final

import pytest

from ragtrace.system import forks
from ragtrace.system.forks import PerProcess, watch_forks

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def in_child(observe: Callable[[], str]) -> str:
    """Return what *observe* returns in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, observe().encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, encoding="utf-8") as told:
        return told.read()


def test_a_process_makes_a_value_once_and_a_child_another() -> None:
    """The parent keeps its own."""
    numbers = count()
    value = PerProcess(lambda: next(numbers))
    assert (value.peek(), value.get(), value.get(), value.peek()) == (None, 0, 0, 0)
    assert in_child(lambda: f"{value.peek()} {value.get()} {value.get()}") == "None 1 1"
    assert value.get() == 0


def test_every_generation_makes_its_own() -> None:
    """Also a child whose parent has not used the value."""
    value = PerProcess(object)
    first = value.get()

    def grandchild() -> str:
        return in_child(lambda: str(value.get() is not first))

    assert in_child(lambda: f"{value.peek()} {grandchild()}") == "None True"


def test_a_lock_that_was_held_at_the_fork_hinders_no_child() -> None:
    """Neither one that is a value, nor the one under which values are made."""
    value, may_end, is_held = PerProcess(threading.Lock), threading.Event(), threading.Event()

    def hold() -> None:
        with value.get(), forks._lock:
            is_held.set()
            may_end.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(10)
    assert in_child(lambda: str(value.get().acquire(timeout=5))) == "True"
    may_end.set()
    thread.join()


class Connection:
    """Something that may be referenced weakly."""


@pytest.mark.parametrize("keeps", [True, False])
def test_a_child_lets_go_of_its_parents_value_or_keeps_it_for_ever(keeps: bool) -> None:
    """What would close a connection of the parent is never deleted; anything else takes no memory."""
    value = PerProcess(Connection, keeps_parents=keeps)
    parents = weakref.ref(value.get())

    def observe() -> str:
        value.get()
        gc.collect()
        return str(parents() is not None)

    assert in_child(observe) == str(keeps)


def test_a_value_that_could_not_be_made_is_made_at_the_next_use() -> None:
    """The failure is the caller's."""
    answers = iter([ZeroDivisionError(), 7])

    def make() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    value = PerProcess(make)
    with pytest.raises(ZeroDivisionError):
        value.get()
    assert (value.peek(), value.get()) == (None, 7)


def test_forks_are_watched_before_and_after_in_both_processes() -> None:
    """A function cannot be removed, so these do nothing after the test."""
    seen: list[str] = []
    is_over: list[bool] = []

    def note(word: str) -> Callable[[], object]:
        return lambda: is_over or seen.append(word)

    watch_forks(before=note("before"), in_parent=note("parent"), in_child=note("child"))
    assert in_child(lambda: " ".join(seen)) == "before child"
    assert seen == ["before", "parent"]
    is_over.append(True)


TWO_THREADS: Final = """
import os, sys, threading
from ragtrace.system import forks

seen, steps = [], 0

def use():
    forks.watch_forks(before=lambda: seen.append("before"))

def trace(frame, event, argument):
    global steps
    if frame.f_code.co_name == "_hook":
        steps += event == "line"
        if event == "line" and steps == int(sys.argv[1]):
            other = threading.Thread(target=use)
            other.start()
            other.join()
    return trace

sys.settrace(trace)
use()
sys.settrace(None)
child = os.fork()
if child == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(steps, len(seen))
"""


def test_two_threads_that_watch_forks_first_at_the_same_time_hook_once() -> None:
    """Else each fork would stop SQLite twice, and wait for ever for the lock that it holds itself."""

    def lines_and_calls(at: int) -> tuple[int, int]:
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", TWO_THREADS, str(at)],
            capture_output=True, text=True, timeout=240, check=True,
        )  # fmt: skip
        lines, calls = map(int, done.stdout.split())
        return lines, calls

    lines, calls = lines_and_calls(0)  # without another thread
    assert (lines > 1, calls) == (True, 1)
    # Wherever in the function the other thread comes between: each of the two functions is called once.
    assert [lines_and_calls(at)[1] for at in range(1, lines + 1)] == [2] * lines

"""Daemon threads for an event loop: bounded, cancellable while they wait, and no reason for a process to stay."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Final

import pytest

from ragtrace.system.threads import DaemonPool
from tests.support.watched import WAIT_S

ROOT: Final = Path(__file__).parents[3]
ENDS_S: Final = 50.0
"""After which a process counts as kept: until it has ended, its name server does not answer."""


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What the functions in a test wait for; open at its end."""
    event = threading.Event()
    yield event
    event.set()


def test_what_a_function_returns_comes_back() -> None:
    """Arguments go along."""
    assert DaemonPool().submit(divmod, 7, 2).result(WAIT_S) == (3, 1)


def test_what_a_function_raises_comes_back() -> None:
    """The thread goes on to the next."""
    executor = DaemonPool(1)
    with pytest.raises(ZeroDivisionError):
        executor.submit(divmod, 7, 0).result(WAIT_S)
    assert executor.submit(divmod, 7, 2).result(WAIT_S) == (3, 1)


def test_the_threads_are_daemons_and_bounded_in_number(gate: threading.Event) -> None:
    """What comes while all are busy waits its turn."""
    before = set(threading.enumerate())
    executor = DaemonPool(3)
    waiting = [executor.submit(gate.wait, WAIT_S) for _ in range(10)]
    started = set(threading.enumerate()) - before
    assert len(started) == 3
    assert all(thread.daemon for thread in started)
    gate.set()
    assert all(future.result(WAIT_S) for future in waiting)


def test_a_finalizer_that_needs_the_pool_does_not_wait_for_the_submission_that_it_interrupts() -> None:
    """The garbage collector runs it at an allocation of `submit`, on the same thread."""
    executor, futures = DaemonPool(2), list[Future[int]]()

    class Collected:
        """Garbage that leaves another piece of garbage, so that every collection finds one."""

        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            executor.prepare()
            futures.append(executor.submit(int))
            if len(futures) < 200:
                Collected()

    def submit() -> None:
        Collected()
        while len(futures) < 200:
            futures.append(executor.submit(int))

    thread, thresholds = threading.Thread(target=submit, daemon=True), gc.get_threshold()
    gc.set_threshold(1, 1_000_000, 1_000_000)
    try:
        thread.start()
        thread.join(WAIT_S)
    finally:
        gc.set_threshold(*thresholds)
    assert not thread.is_alive()
    assert {future.result(WAIT_S) for future in futures} == {0}


def test_a_thread_that_rests_is_used_again() -> None:
    """One after the other needs one thread."""
    before = set(threading.enumerate())
    executor, freed = DaemonPool(3), threading.Event()
    for _ in range(5):
        freed.clear()
        future: Future[None] = executor.submit(lambda: None)
        future.add_done_callback(lambda _: freed.set())
        assert freed.wait(WAIT_S)
    assert len(set(threading.enumerate()) - before) <= 2  # the next may come before the thread says that it rests


def test_what_waits_can_be_cancelled(gate: threading.Event) -> None:
    """It is never begun."""
    executor, begun = DaemonPool(1), threading.Event()
    first = executor.submit(gate.wait, WAIT_S)
    second = executor.submit(begun.set)
    assert second.cancel()
    gate.set()
    assert first.result(WAIT_S)
    assert executor.submit(divmod, 7, 2).result(WAIT_S) == (3, 1)
    assert not begun.is_set()


def test_to_shut_it_down_waits_for_nobody(gate: threading.Event) -> None:
    """An event loop does so when it is closed."""
    executor = DaemonPool(1)
    future = executor.submit(gate.wait, WAIT_S)
    executor.shutdown(wait=True, cancel_futures=True)
    assert not future.done()


def test_shut_down_its_threads_end_when_they_have_done_their_work(gate: threading.Event) -> None:
    """And it takes no more."""
    before = set(threading.enumerate())
    executor = DaemonPool(2)
    futures = [executor.submit(gate.wait, WAIT_S) for _ in range(3)]
    threads = set(threading.enumerate()) - before
    executor.shutdown(wait=False)
    executor.shutdown(wait=False)
    gate.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert all(future.result(0) for future in futures)
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(RuntimeError, match="has been shut down"):
        executor.submit(gate.is_set)


def test_an_event_loop_uses_it(gate: threading.Event) -> None:
    """For whatever it is asked to run in its executor, and to resolve; closing the loop waits for nothing."""
    loop = asyncio.new_event_loop()
    try:
        loop.set_default_executor(DaemonPool())
        name = loop.run_until_complete(loop.run_in_executor(None, lambda: threading.current_thread().name))
        loop.run_until_complete(loop.getaddrinfo("localhost", 80))
        loop.run_in_executor(None, gate.wait, WAIT_S)
    finally:
        loop.close()
    assert name == "ragtrace-executor"


SLOW_NAMES: Final = """
import os, socket, sys, threading
import ragtrace

answers = socket.getaddrinfo
asked = threading.Event()

def slow(host, *args, **options):
    if host in ("judge.invalid", b"judge.invalid"):
        asked.set()
        os.read(0, 1)  # the test holds the other end open
    return answers(host, *args, **options)

socket.getaddrinfo = slow
ragtrace.configure(
    service="s",
    exporter="none",
    screen=None,
    judge=ragtrace.OpenAIJudge("m", base_url="http://judge.invalid/v1", api_key="k"),
    sampling=ragtrace.Sampling(rate=1.0),
)
from tests.support.watched import ask

ask("where?")
assert asked.wait(30.0)
{shutdown}
print(sum(ragtrace.stats().dropped.values()), flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize("shutdown", ["ragtrace.shutdown(0.2)", "ragtrace.flush(0.2)"])
def test_a_name_server_that_does_not_answer_does_not_keep_the_process(shutdown: str) -> None:
    """It ends when it has said what was lost, at its exit at the latest, with the exit code of the program."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_NAMES.format(shutdown=shutdown)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=dict(os.environ),
    )
    with process:
        try:
            code = process.wait(ENDS_S)
        finally:
            process.kill()
        assert process.stdout
        assert process.stderr
        dropped = "1\n" if "shutdown" in shutdown else "0\n"
        assert (code, process.stdout.read()) == (7, dropped), process.stderr.read()

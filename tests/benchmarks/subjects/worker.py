"""One subject in a process of its own: measures itself when told to.

    python -m tests.benchmarks.subjects.worker MODULE:FUNCTION

Reads one JSON order a line and answers each with one JSON line. It needs nothing but the subject's own module, so that
it also runs under the interpreter of another environment.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any, Final

from tests.benchmarks.subjects.application import QUERIES, Subject

WARM_UP: Final = 30
"""Calls before each measurement, so that a round does not begin with the caches of whoever ran before it."""
PROBE_S: Final = 0.001


@contextmanager
def _quiet() -> Iterator[None]:
    """No garbage collection inside, and none of older garbage right after."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _burst(subject: Subject, calls: int, clock: Callable[[], float]) -> float:
    """Microseconds a call by *clock*, of *calls* calls one right after the other."""
    queries = list(islice(cycle(QUERIES), calls))
    ask = subject.ask
    began = clock()
    for query in queries:
        ask(query)
    return (clock() - began) / calls * 1e6


async def _async_burst(subject: Subject, calls: int, clock: Callable[[], float]) -> float:
    queries = list(islice(cycle(QUERIES), calls))
    ask = subject.ask
    began = clock()
    for query in queries:
        await ask(query)
    return (clock() - began) / calls * 1e6


def _spread(subject: Subject, calls: int, pause: float) -> float:
    """Microseconds a call of this thread, of calls with *pause* seconds between them: with cold caches, as in life."""
    total = 0.0
    for query in islice(cycle(QUERIES), calls):
        time.sleep(pause)
        began = time.thread_time()
        subject.ask(query)
        total += time.thread_time() - began
    return total / calls * 1e6


class Worker:
    """Carries out orders on one subject."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._loop = asyncio.new_event_loop()

    def thread(self, calls: int) -> dict[str, Any]:
        """CPU time of the thread that serves the request, flush and warm-up left out."""
        before = self._spans()
        self._run(WARM_UP, time.thread_time)
        with _quiet():
            taken = self._run(calls, time.thread_time)
        self._subject.flush()
        return {"value": taken, "spans": (self._spans() - before) / (calls + WARM_UP)}

    def process(self, calls: int) -> dict[str, Any]:
        """CPU time of all threads for the calls and everything that follows from them, up to the end of a flush."""
        self._run(WARM_UP, time.thread_time)
        self._subject.flush()
        with _quiet():
            began = time.process_time()
            self._run(calls, time.thread_time)
            self._subject.flush()
            taken = time.process_time() - began
        return {"value": taken / calls * 1e6, "spans": math.nan}

    def spread(self, calls: int, pause: float) -> dict[str, Any]:
        """CPU time of the thread that serves the request, with a pause before each call."""
        before = self._spans()
        with _quiet():
            taken = _spread(self._subject, calls, pause)
        self._subject.flush()
        return {"value": taken, "spans": (self._spans() - before) / calls}

    def lag(self, seconds: float, rate: float) -> dict[str, Any]:
        """99th percentile of the event loop's lag, in microseconds, under *rate* calls a second."""
        with _quiet():
            late = sorted(self._loop.run_until_complete(_paced(self._subject, seconds, rate)))
        self._subject.flush()
        return {"value": late[int(len(late) * 0.99)] * 1e6, "median": late[len(late) // 2] * 1e6}

    def _run(self, calls: int, clock: Callable[[], float]) -> float:
        if self._subject.asynchronous:
            return self._loop.run_until_complete(_async_burst(self._subject, calls, clock))
        return _burst(self._subject, calls, clock)

    def _spans(self) -> float:
        return math.nan if self._subject.spans is None else float(self._subject.spans())


async def _paced(subject: Subject, seconds: float, rate: float) -> list[float]:
    """How late the loop ran what was due every millisecond, while calls came at *rate* a second."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    arriving = asyncio.create_task(_arrivals(subject, ends, rate))
    late: list[float] = []
    while (due := loop.time() + PROBE_S) < ends:
        await asyncio.sleep(PROBE_S)
        late.append(max(0.0, loop.time() - due))
    await arriving
    return late


async def _arrivals(subject: Subject, ends: float, rate: float) -> None:
    loop = asyncio.get_running_loop()
    due, calls = loop.time(), set[asyncio.Task[Any]]()
    for query in cycle(QUERIES):
        due += 1 / rate
        if due >= ends:
            break
        await asyncio.sleep(due - loop.time())
        call = asyncio.create_task(subject.ask(query))
        calls.add(call)
        call.add_done_callback(calls.discard)
    await asyncio.gather(*calls)


def main() -> None:
    # What libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    module, _, function = sys.argv[1].partition(":")
    try:
        subject: Subject = getattr(importlib.import_module(f"{__package__}.{module}"), function)()
    except ImportError as error:
        answers.write(json.dumps({"missing": error.name or str(error)}) + "\n")
        return
    worker = Worker(subject)
    answers.write("{}\n")
    for line in sys.stdin:
        order = json.loads(line)
        answers.write(json.dumps(getattr(worker, order.pop("measure"))(**order)) + "\n")
    # Nothing is left to measure: a judge that hangs and an exporter that is dead are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()

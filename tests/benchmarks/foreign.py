"""How much longer a decorated call of hostile objects takes than an undecorated one.

    python tests/benchmarks/foreign.py [--objects 50000] [--seed 1] [--delay 0.03] [--results FILE]

Each object (`tests/support/foreign.py`: random classes with slow, endless, raising methods and properties, metaclasses,
proxies, containers of them) is the argument and the result of a retrieval, a generation and a trace, a piece of a
stream, and in an exception. Every foreign method takes `--delay` seconds, so that running a single one shows. The
garbage collector is off while a call is timed: what it takes is not the call's. The control is a second undecorated
call that then spins for as much CPU time as the decorated one took: what it takes beyond that is the machine's. A
difference of more than 20 ms of CPU time is measured once more, with objects that are made alike: "lesser" has the
smaller of both, as what belongs to the object comes again and an interrupt does not.

It works in pieces of 1,000 objects, each with a seed of its own. Interrupted, it shows what it has; with `--results`,
each piece is kept in a file as it ends, and the same command goes on with those that are lacking.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter, sleep, thread_time
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that it also runs by its path alone

import ragtrace
from ragtrace.testing import Captured
from tests.support.foreign import Foreign


def give(question: Any, docs: Any, value: Any) -> Any:
    return value


def stream(question: Any, docs: Any, value: Any) -> Iterator[Any]:
    yield value


def fail(question: Any, docs: Any, value: Any) -> Any:
    raise value


def first(function: Callable[..., Iterator[Any]]) -> Callable[..., Any]:
    """Read the first piece."""
    return lambda *args: next(function(*args))


def seconds(function: Callable[..., Any], *args: Any, spin: float = 0.0) -> tuple[float, float]:
    """Wall and CPU seconds of one call, at least *spin* of CPU."""
    began, cpu = perf_counter(), thread_time()
    with suppress(BaseException):  # what it raises is hostile too
        function(*args)
    while thread_time() - cpu < spin:
        pass
    return perf_counter() - began, thread_time() - cpu


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "retrieve": (give, ragtrace.retrieve(give)),
    "generate": (give, ragtrace.generate(give)),
    "trace": (give, ragtrace.trace(give)),
    "stream": (first(stream), first(ragtrace.generate(stream))),
    "exception": (fail, ragtrace.trace(fail)),
}


PIECE = 1_000
COLUMNS = ("wall", "cpu", "lesser", "control")
"""Each of them less what the undecorated call took; the control is in wall time, the lesser in CPU time."""
LONG = 0.02
"""Seconds of CPU time after which a call is measured again."""
KEPT = 200
"""Largest values of a piece that are kept: enough for the 99.9 % quantile of a hundred pieces."""


def piece(seed: int, objects: int, delay: float, captured: Captured) -> dict[str, Any]:
    """Return the largest differences of each case and column, in seconds, and how often foreign methods ran."""
    timing, runs = "", Counter[str]()

    def hook() -> None:
        if timing:
            runs[timing] += 1
            sleep(delay)

    def measure(seed: int) -> dict[str, tuple[float, float, float]]:
        nonlocal timing
        foreign, found = Foreign(seed, hook), {}
        value, error = foreign.value(), foreign.error()
        for name, (plain, decorated) in CASES.items():
            given = (value, value, error if name == "exception" else value)
            timing = "undecorated"
            bare = seconds(plain, *given)
            timing = "decorated"
            watched = seconds(decorated, *given)
            timing = "control"
            again = seconds(plain, *given, spin=watched[1])
            timing = ""
            found[name] = (watched[0] - bare[0], watched[1] - bare[1], again[0] - bare[0])
        return found

    added: dict[str, list[tuple[float, ...]]] = {name: [] for name in CASES}
    for number in range(objects):
        found = measure(seed * PIECE + number)
        long = any(cpu > LONG for _, cpu, _ in found.values())
        once_more = measure(seed * PIECE + number) if long else found
        for name, (wall, cpu, control) in found.items():
            added[name].append((wall, cpu, min(cpu, once_more[name][1]), control))
        if number % 500 == 499:
            ragtrace.flush(10)
            captured.clear()
            gc.collect()
    largest = {
        name: {
            column: sorted(each, reverse=True)[:KEPT]
            for column, each in zip(COLUMNS, zip(*rows, strict=True), strict=True)
        }
        for name, rows in added.items()
    }
    return {"seed": seed, "objects": objects, "runs": runs, "largest": largest}


def show(pieces: list[dict[str, Any]]) -> None:
    """Print the table."""
    objects = sum(each["objects"] for each in pieces)
    print(f"{objects} objects in {len(pieces)} pieces: decorated minus undecorated, and the control; milliseconds")
    print(f"{'':12}{'':14}{'p99.9':>9}{'worst':>9}{'over 20 ms':>12}")
    for name in CASES:
        for column in COLUMNS:
            values = sorted((value for each in pieces for value in each["largest"][name][column]), reverse=True)
            over = sum(value > LONG for value in values)
            print(f"{name:12}{column:14}{values[objects // 1_000] * 1e3:9.2f}{values[0] * 1e3:9.2f}{over:12}")
    runs = Counter[str]()
    for each in pieces:
        runs.update(each["runs"])
    print(f"foreign methods run: {runs['undecorated']} in undecorated calls, {runs['decorated']} in decorated ones")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--objects", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first piece")
    parser.add_argument("--delay", type=float, default=0.03, help="seconds that each foreign method takes")
    parser.add_argument("--results", type=Path, help="file that keeps the pieces")
    options = parser.parse_args()
    logging.getLogger("ragtrace").setLevel(logging.CRITICAL)
    results: Path | None = options.results
    pieces: list[dict[str, Any]] = []
    if results is not None and results.exists():
        pieces = [json.loads(line) for line in results.read_text().splitlines()]
    captured = Captured()
    ragtrace.configure(exporter=captured.signals, screen=None)
    gc.disable()
    wanted = range(options.seed, options.seed + -(-options.objects // PIECE))
    with suppress(KeyboardInterrupt):
        for seed in wanted:
            if any(each["seed"] == seed for each in pieces):
                continue
            pieces.append(piece(seed, min(PIECE, options.objects), options.delay, captured))
            if results is not None:
                with results.open("a") as file:
                    file.write(json.dumps(pieces[-1]) + "\n")
            print(f"{len(pieces)} of {len(wanted)} pieces", file=sys.stderr, flush=True)
    if pieces:
        show(pieces)
    ragtrace.shutdown(10)


if __name__ == "__main__":
    main()

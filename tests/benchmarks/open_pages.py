"""Whether the pages on a history stay live while two processes write it, and whether the writers notice.

    python -m tests.benchmarks.open_pages [--minutes 10] [--rate 200] [--before 0]

Two processes make half of the calls each, at fixed times, evaluate every one with the embedded judge and store it.
`ragtrace open` serves the history; a client asks for the first page as a browser does that shows it, five seconds after
the last answer, in every other part of the run. So calls are timed with the page and without it side by side.

Printed: what was written and what the history has; how long a decorated call took in the parts with and without the
page; how long the page took, how far its number of calls was behind, and the memory of its process. `--before` is the
number of calls that the history has at the start.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Final

import httpx

import ragtrace
from ragtrace.history.schema import history_file
from tests.benchmarks.report import simulated
from tests.support.history import fill

PARTS: Final = 10
"""Parts of the run; the page is shown in the second, the fourth and so on."""
REFRESH_S: Final = 5.0
WRITERS: Final = 2
CHUNKS: Final = [
    f"The bridge {name} was opened in {year}. It is {length} metres long and stands on {piers} piers of stone."
    for name, year, length, piers in (("Anna", 1911, 412, 6), ("Berta", 1934, 1020, 9), ("Carla", 1987, 77, 2))
]


def write(path: str, rate: float, seconds: float) -> None:
    """Make calls at fixed times, store them, and print one line of JSON: how many, and when and how long each."""
    ragtrace.configure(service="writer", store=path)

    @ragtrace.retrieve
    def search(question: str) -> list[str]:
        return CHUNKS

    @ragtrace.trace
    def ask(question: str) -> str:
        chunk = search(question)[len(question) % len(CHUNKS)]
        return f"{chunk} It was painted blue." if question.endswith("7?") else chunk

    began, times = time.perf_counter(), list[tuple[float, float]]()
    for number in range(int(rate * seconds)):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        start = time.perf_counter()
        ask(f"When was bridge number {number} opened, and how long is bridge {number}?")
        times.append((start - began, time.perf_counter() - start))
    ragtrace.flush(timeout=60.0)
    stats = ragtrace.stats()
    ragtrace.shutdown(timeout=60.0)
    print(
        json.dumps(
            {"calls": len(times), "times": times, "scored": stats.scored, "dropped": sum(stats.dropped.values())}
        )
    )


def percentile(values: list[float], share: float) -> float:
    """Value below which a share of the values lies."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def memory_mib(pid: int) -> float:
    """Most resident memory that a process has had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def show(address: str, written: Callable[[], float], seconds: float) -> tuple[list[float], list[float]]:
    """Ask for the first page in every other part of the run.

    Args:
        address: the printed address of the pages.
        written: returns the number of calls that have been made by now.
        seconds: length of the run.

    Returns:
        Seconds for each page, and by how many calls the number on each was behind.
    """
    took, behind, began = list[float](), list[float](), time.perf_counter()
    with httpx.Client(follow_redirects=True, timeout=60.0) as client:
        base = address.partition("/?")[0]
        client.get(address).raise_for_status()
        while (now := time.perf_counter() - began) < seconds:
            if is_shown(now / seconds):
                asked = time.perf_counter()
                page = client.get(f"{base}/").raise_for_status().text
                took.append(time.perf_counter() - asked)
                if (found := re.search(r"of ([\d,]+) calls scored", page)) is not None:
                    behind.append(written() - int(found[1].replace(",", "")))
            time.sleep(REFRESH_S)
    return took, behind


def is_shown(share: float) -> bool:
    """Return whether the page is shown when a share of the run is over."""
    return int(share * PARTS) % 2 == 1


def main() -> None:
    """Run the writers and the pages, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=200.0, help="calls per second, of both writers (default: 200)")
    parser.add_argument("--before", type=int, default=0)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    seconds = 60 * arguments.minutes
    if arguments.write:
        write(arguments.write, arguments.rate / WRITERS, seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        history_file(str(path)).create()
        if arguments.before:
            fill(path, simulated(arguments.before, time.time()))
        same = ["--minutes", str(arguments.minutes), "--rate", str(arguments.rate)]
        command = [sys.executable, "-m", "tests.benchmarks.open_pages", "--write", str(path), *same]
        pages = subprocess.Popen(
            [sys.executable, "-m", "ragtrace", "open", str(path), "--port", "0"], stdout=subprocess.PIPE, text=True
        )
        writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(WRITERS)]
        assert pages.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", pages.stdout.readline())
        assert found is not None
        began = time.perf_counter()
        took, behind = show(
            found[0], lambda: arguments.before + arguments.rate * (time.perf_counter() - began), seconds
        )
        made = [json.loads(writer.communicate()[0]) for writer in writers]
        memory = memory_mib(pages.pid)
        pages.kill()
        pages.wait()
        with closing(sqlite3.connect(path)) as database:
            (stored,) = database.execute("SELECT count(*) FROM calls").fetchone()
    sums = {kind: sum(each[kind] for each in made) for kind in ("calls", "dropped", "scored")}
    print(f"calls made {sums['calls']}, dropped {sums['dropped']}, scored {sums['scored']},", end=" ")
    print(f"stored {stored - arguments.before}; asked for the page {len(took)} times\n")
    print("| | median | p99 |\n|---|--:|--:|")
    for title, shown in (("decorated call, no page shown", False), ("decorated call, page shown", True)):
        times = [took for each in made for at, took in each["times"] if is_shown(at / seconds) == shown]
        print(f"| {title} | {1e6 * median(times):.0f} us | {1e6 * percentile(times, 0.99):.0f} us |")
    print(f"| page | {1e3 * median(took):.0f} ms | {1e3 * percentile(took, 0.99):.0f} ms |")
    if behind:
        print(f"| page is behind by | {median(behind):.0f} calls | {percentile(behind, 0.99):.0f} calls |")
    print(f"\nmost memory of the process of the pages: {memory:.0f} MiB")


if __name__ == "__main__":
    main()

"""What the pages on a large history cost after their start: seconds and CPU of the first view and of each further one.

    python -m tests.benchmarks.first_page [--calls 1000000] [--history HISTORY.db] [--starts 5] [--pause 0]

The history is made first, as by `report.py`, unless one is given. `ragtrace open` is started several times; each time
the first page is asked for when the address is printed, or `--pause` seconds later, then each view three times.
Printed: median of the first requests, of the further ones, and the most memory that the process has had after each.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from tests.benchmarks.open_pages import memory_mib
from tests.benchmarks.report import make

VIEWS: Final = (
    "/",
    "/calls",
    "/calls?sort=worst",
    "/calls?sort=worst&since=all",
    "/changes",
    "/health",
    "/?since=7d",
    "/changes?since=1h",
    "/label",
)
AGAIN: Final = 2


def cpu_seconds(pid: int) -> float:
    """CPU seconds of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Measured:
    """Seconds, CPU seconds and memory of one view, over all starts."""

    def __init__(self) -> None:
        self.first: list[tuple[float, float]] = []
        self.further: list[float] = []
        self.mib = 0.0

    def row(self, view: str) -> str:
        seconds, cpu = (median(column) for column in zip(*self.first, strict=True))
        further = f"{1e3 * median(self.further):.0f}" if self.further else "-"
        return f"| `{view}` | {1e3 * seconds:.0f} | {1e3 * cpu:.0f} | {further} | {self.mib:.0f} |"


def ask(history: Path, pause: float, measured: dict[str, Measured]) -> float:
    """Start the pages, ask for each view, end them, and return the CPU seconds until the address was printed."""
    pages = subprocess.Popen(
        [sys.executable, "-m", "ragtrace", "open", str(history), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert pages.stdout is not None
    found = re.search(r"(http://127\.0\.0\.1:\d+)/\?token=\S+", pages.stdout.readline())
    assert found is not None
    started = cpu_seconds(pages.pid)
    time.sleep(pause)
    with httpx.Client(follow_redirects=True, timeout=60.0) as client:
        client.get(found[0]).raise_for_status()
        for view in VIEWS:
            mine = measured[view]
            for again in range(1 + AGAIN):
                cpu, began = cpu_seconds(pages.pid), time.perf_counter()
                client.get(found[1] + view).raise_for_status()
                took = time.perf_counter() - began
                if again:
                    mine.further.append(took)
                else:
                    mine.first.append((took, cpu_seconds(pages.pid) - cpu))
            mine.mib = max(mine.mib, memory_mib(pages.pid))
    pages.send_signal(signal.SIGINT)
    pages.wait(10.0)
    return started


def main() -> None:
    """Make the history, start the pages on it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--history", type=Path)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        history: Path = options.history or Path(folder) / "history.db"
        if options.history is None:
            maker = get_context("spawn").Process(target=make, args=(history, options.calls))
            maker.start()
            maker.join()
        measured: defaultdict[str, Measured] = defaultdict(Measured)
        started = [ask(history, options.pause, measured) for _ in range(options.starts)]
    print(f"\nCPU until the address is printed: {median(started):.2f} s\n")
    print("| view | first, ms | its CPU, ms | again, ms | most MiB until then |\n|---|--:|--:|--:|--:|")
    for view, mine in measured.items():
        print(mine.row(view))


if __name__ == "__main__":
    main()

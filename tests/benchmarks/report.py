"""What a report on a large history costs: seconds and memory of the whole command, in a process of its own.

    python -m tests.benchmarks.report [--calls 100000] [--formats terminal,html,json,markdown] [--strict]

The history is made first and not timed: two days of simulated calls, each seen by a screen and a fifth of them by a
judge, three metrics each, texts of a few hundred characters. Printed beside it: what keeping a call costs the thread
that writes.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from ragtrace.history.writing import QueuedCall
from tests.support.history import Simulated, fill, made

MOST_SECONDS: Final = 10.0
MOST_MIB: Final = 500.0
DAY: Final = 86_400.0


def simulated(calls: int, now: float) -> Iterator[QueuedCall]:
    """Two days with a regression in the last six hours."""
    rng = random.Random(1)
    for number in range(calls):
        at = now - 2 * DAY * (1 - number / calls)
        workflow, model = rng.choice((("support", "small-1"), ("support", "large-2"), ("search", "small-1")))
        bad = 0.12 if at > now - DAY / 4 and model == "small-1" else 0.04
        yield made(at, Simulated(bad, 0.2, workflow, model), rng)


def measured(path: Path, form: str) -> tuple[float, float, int]:
    """Seconds, peak MiB and size of the output of `ragtrace report` in a process of its own."""
    out = path.with_name(f"report.{form}")
    arguments = ["report", str(path), "--since", "24h", "--format", form, "--out", str(out)]
    began = time.perf_counter()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-m", "ragtrace", *arguments], os.environ)
    _, status, used = os.wait4(pid, 0)
    took = time.perf_counter() - began
    if status:
        sys.exit(f"the report failed with status {status}")
    return took, used.ru_maxrss / 1024, out.stat().st_size


def make(path: Path, calls: int) -> None:
    """Fill the history and print what that took."""
    offered = list(simulated(calls, time.time()))
    before = resource.getrusage(resource.RUSAGE_SELF)
    fill(path, offered)
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = 1e6 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / calls
    print(f"{calls:,} calls, {path.stat().st_size / 2**20:.0f} MiB, {spent:.0f} us of CPU a call to keep", flush=True)


def main() -> None:
    """Make the history, report on it in every form, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--formats", default="terminal,html,json,markdown")
    parser.add_argument("--strict", action="store_true", help="fail where a bound is not kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        # In another process: a child's peak memory counts that of its parent at the start.
        maker = get_context("spawn").Process(target=make, args=(path, options.calls))
        maker.start()
        maker.join()
        print(f"{'form':<10}{'seconds':>9}{'MiB':>8}{'kB out':>9}")
        seconds, peak = 0.0, 0.0
        for form in options.formats.split(","):
            took, mib, size = measured(path, form)
            seconds, peak = max(seconds, took), max(peak, mib)
            print(f"{form:<10}{took:>9.2f}{mib:>8.0f}{size / 1000:>9.0f}", flush=True)
    if options.strict and (seconds > MOST_SECONDS or peak > MOST_MIB):
        sys.exit(f"a bound of {MOST_SECONDS:g} s and {MOST_MIB:g} MiB was not kept")


if __name__ == "__main__":
    main()

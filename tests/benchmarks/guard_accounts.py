"""The accounts of guarded calls: 10,000 of each kind, with judges of all tempers, ended in each way, all at random.

    python tests/benchmarks/guard_accounts.py [--calls 10000] [--seed 38] [--budget 50] [--shutdowns 50]

- traffic: functions of five kinds (sync, async, generator, async generator, returned stream), with each action and
  `stream=`, open and closed. The judge is quick, slow, hangs, answers garbage or dies; readers read to the end, leave,
  close, are cancelled, or the function fails (`tests/support/guard_traffic.py`). Verdict and action of each call must
  be equal on its span, its event and in the history; their numbers also in `stats()`, in the metric, and with the calls
  that were made. No piece may leave a closed guard, known by identity, before the judge has found its text to be
  good. The time is that for which readers waited for answers that they read to the end, the machine's included: beside
  it stands how late a thread of the same process was that only waits.
- shutdowns: ragtrace is shut down within 10 s in the middle of such calls. No call that the judge was asked about may
  be without a score.

The script fails where anything is not so.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that it also runs by its path alone

from tests.support.guard_traffic import KINDS, paid_and_dropped, run_traffic

ROUNDS = ("quick", "slow", "quick", "hangs", "quick", "garbage", "quick", "dies", "quick", "quick")
"""The judge's usual temper, round by round: each has circuit breakers of its own."""


class Ticker(threading.Thread):
    """Thread that waits 5 ms, again and again, and notes how late it is: what the machine adds to any wait."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.late, self._is_over = list[float](), threading.Event()

    def run(self) -> None:
        began = perf_counter()
        while not self._is_over.wait(0.005):
            self.late.append(perf_counter() - began - 0.005)
            began = perf_counter()

    def stop(self) -> list[float]:
        """End, and return the seconds by which the thread was late, sorted."""
        self._is_over.set()
        self.join()
        return sorted(self.late)


def percentiles(times: list[float]) -> str:
    """Format the median, the 99th percentile and the greatest of sorted seconds in milliseconds."""
    p50, p99, most = (times[int(share * (len(times) - 1))] * 1000 for share in (0.5, 0.99, 1.0))
    return f"p50 {p50:6.1f} ms, p99 {p99:6.1f}, most {most:6.1f} of {len(times)}"


def traffic(calls: int, seed: int, budget_ms: float) -> list[str]:
    """Make the calls in rounds, print what became of them, and return what is wrong."""
    wrong, verdicts, added = list[str](), Counter[tuple[str, str]](), {kind: list[float]() for kind in KINDS}
    ticker = Ticker()
    ticker.start()
    for number, temper in enumerate(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "history.db"
            each = calls // len(ROUNDS)
            accounts = run_traffic(each, seed=seed + number, temper=temper, budget_ms=budget_ms, store=store)
        wrong += accounts.differences()
        verdicts += Counter((said.workflow.split(",")[0], said.verdict) for said in accounts.outlets.spans.values())
        for kind in KINDS:
            added[kind] += accounts.added(kind)
        print(f"round {number + 1} of {len(ROUNDS)}, {temper}: {len(accounts.outlets.spans)} verdicts", flush=True)
    for kind in KINDS:
        counts = ", ".join(f"{verdict} {count}" for (of, verdict), count in sorted(verdicts.items()) if of == kind)
        print(f"{kind:<16} {percentiles(sorted(added[kind]))} read; {counts}")
    print(f"{'a bare thread':<16} {percentiles(ticker.stop())} waits of 5 ms, late by")
    return wrong


def shutdowns(rounds: int, seed: int) -> list[str]:
    """Shut down in the middle of calls, print how many the judge was asked about, and return what is wrong."""
    paid, wrong = 0, list[str]()
    for number in range(rounds):
        asked, found = paid_and_dropped(100, seed=seed + number, after_s=0.05 + 0.05 * (number % 10))
        paid, wrong = paid + asked, wrong + found
    print(f"{rounds} shutdowns in the middle of calls: the judge was asked about {paid}")
    return wrong


def main() -> None:
    """Parse the command line and run both parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=10_000, help="of each kind")
    parser.add_argument("--seed", type=int, default=38)
    parser.add_argument("--budget", type=float, default=50.0, help="of the guards, in milliseconds")
    parser.add_argument("--shutdowns", type=int, default=50)
    options = parser.parse_args()
    logging.getLogger("ragtrace").setLevel(logging.CRITICAL)  # judges fail here, as they should
    wrong = traffic(options.calls, options.seed, options.budget) + shutdowns(options.shutdowns, options.seed)
    for each in wrong:
        print("WRONG:", each)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

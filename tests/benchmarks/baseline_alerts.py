"""How soon `Alert("consistency", below="baseline")` tells of more rejected answers, and how often without a reason.

    RAGTRACE_LABELLED_DATA=DIR python -m tests.benchmarks.baseline_alerts [--runs 1000]

DIR as of `accuracy.py`. Every labelled call is scored once by the embedded judge; then traffic is drawn from the scores
of approved and of rejected answers, in a fixed mix. Each run learns a baseline of its own from its first calls, so its
error is in the figures. Runs are cut off: a mean is that of min(calls, cap), with the share that was cut off beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from ragtrace.alerts import Alert
from ragtrace.estimates import Distribution, baseline_bound
from tests.benchmarks.accuracy import judge_all
from tests.support.alarms import Draw, Floats, run_lengths

ALERT: Final = Alert("consistency", below="baseline")
SETS: Final = ("ragtruth_qa", "mtrag_human", "summedits")
MIXES: Final = (0.0, 0.05, 0.25, 0.5, 1.0)
BASELINES: Final = (500, 2_000)
CHANGES: Final = ((0.05, 0.15), (0.05, 0.25))
UNCHANGED_CAP: Final = 40_000
CHANGED_CAP: Final = 20_000
SEED: Final = 20_263


def mixed(approved: Floats, rejected: Floats, share: float, repeated: int = 1) -> Draw:
    """Badness of calls of which *share* is rejected; each score comes *repeated* times in a row."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, float]:
        drawn = (math.ceil(shape[0] / repeated), shape[1])
        bad = rng.random(drawn) < share
        good, poor = (scores[rng.integers(len(scores), size=drawn)] for scores in (approved, rejected))
        return np.repeat(np.where(bad, poor, good), repeated, axis=0)[: shape[0]], 1.0

    return draw


def lengths(learned: Draw, seen: Draw, *, calls: int, runs: int, most: int, seed: int = SEED) -> Floats:
    """Calls until the alert tells, of *runs* runs that each learn a baseline from so many *calls*."""
    rng = np.random.default_rng(seed)
    scores = 1.0 - learned(rng, (calls, runs))[0]
    bounds = np.array([1.0 - baseline_bound(Distribution.of(list(column)), ALERT.direction) for column in scores.T])
    return run_lengths(
        bounds, ALERT.mean_calls_between_false_alarms, seen,
        streams=runs, seed=seed + 1, most=most, batch=ALERT.calls_in_batch, head_start=0.0,
    )  # fmt: skip


def badness(path: Path) -> tuple[Floats, Floats]:
    """1 - consistency of the approved and of the rejected answers that have one."""
    calls = [call for call in asyncio.run(judge_all(path)) if not math.isnan(call.value("consistency"))]
    return (
        np.array([1.0 - call.value("consistency") for call in calls if not call.bad]),
        np.array([1.0 - call.value("consistency") for call in calls if call.bad]),
    )


def report(name: str, kind: Callable[[float], Draw], runs: int) -> None:
    """Print the delays and the false alarms of one kind of traffic."""
    cells: list[str] = []
    for before, after in CHANGES:
        for calls in BASELINES:
            found = lengths(kind(before), kind(after), calls=calls, runs=runs, most=CHANGED_CAP)
            cut = (found >= CHANGED_CAP).mean()
            cells.append(f"{found.mean():,.0f} ({np.median(found):,.0f}; {cut:.0%})" if cut else _cell(found))
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def _cell(found: Floats) -> str:
    return f"{found.mean():,.0f} ({np.median(found):,.0f})"


def report_unchanged(name: str, kind: Callable[[float], Draw], runs: int) -> None:
    """Print how long unchanged traffic of each mix goes without an alarm, at a baseline of 500 calls."""
    for share in MIXES:
        found = lengths(kind(share), kind(share), calls=BASELINES[0], runs=runs, most=UNCHANGED_CAP)
        print(
            f"| {name} | {share:.0%} | {found.mean():,.0f} | {np.median(found):,.0f} | "
            f"{(found >= UNCHANGED_CAP).mean():.0%} | {(found <= 1_000).mean():.1%} |",
            flush=True,
        )


def main() -> None:
    """Simulate all sets that there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="of a change; of unchanged traffic 200")
    asked = parser.parse_args()
    folder = os.environ.get("RAGTRACE_LABELLED_DATA")
    if not folder:
        raise SystemExit("set RAGTRACE_LABELLED_DATA to the folder with the labelled calls")
    began = time.monotonic()
    found = {name: badness(Path(folder) / f"{name}.json.gz") for name in SETS}
    columns = [
        f"{before:.0%} to {after:.0%}, baseline of {calls:,}" for before, after in CHANGES for calls in BASELINES
    ]
    print(f"Calls until it tells, mean (median); cut off at {CHANGED_CAP:,}; {asked.runs} runs\n")
    print("| set | " + " | ".join(columns) + " |")
    for name, (approved, rejected) in found.items():
        report(name, lambda share, a=approved, r=rejected: mixed(a, r, share), asked.runs)
    print(f"\nUnchanged traffic, cut off at {UNCHANGED_CAP:,}; 200 runs\n")
    print("| set | rejected | mean run | median | cut off | alarm within 1,000 calls |")
    for name, (approved, rejected) in found.items():
        report_unchanged(name, lambda share, a=approved, r=rejected: mixed(a, r, share), 200)
        if name == SETS[0]:
            report_unchanged(f"{name}, in pairs", lambda s, a=approved, r=rejected: mixed(a, r, s, 2), 200)
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

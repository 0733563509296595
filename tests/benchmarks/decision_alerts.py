"""Alerts on a decision judge's raw scores against a learned baseline, and on calibrated ones against a fixed bound.

    python -m tests.benchmarks.decision_alerts [--streams 300]

Streams of scores (`tests/support/decision_alerts.py`) go through the package's detector with the bound that each
stream's own baseline gives. Prints the mean number of calls of the traffic until the alarm after a change of the rate,
and between false alarms of unchanged traffic; then those of alerts with `above=` on probabilities of a curve from 500
labels.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np

from tests.support.decision_alerts import alarm_calls, calibrated_alarm_calls
from tests.support.decision_populations import Decider

AUROCS = (0.75, 0.8, 0.85, 0.92)
CHANGES = ((0.02, 0.06), (0.05, 0.1), (0.05, 0.15), (0.05, 0.25))
MOST = 6_000
UNCHANGED = 40_000


def main() -> None:
    """Simulate the grid and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=300)
    options = parser.parse_args()
    print("raw scores against a baseline: mean calls until the alarm (share without one within 6,000 calls)")
    print("| baseline | AUROC | 2 -> 6 % | 5 -> 10 % | 5 -> 15 % | 5 -> 25 % | unchanged 5 % |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for baseline, auroc in product((500, 2_000), AUROCS):
        judge = Decider(auroc)
        shown = list[str]()
        for before, after in CHANGES:
            found = alarm_calls(judge, before, after, baseline=baseline, streams=options.streams, most=MOST)
            shown.append(_cell(found, MOST))
        still = alarm_calls(judge, 0.05, 0.05, baseline=baseline, streams=options.streams // 3, most=UNCHANGED)
        print(f"| {baseline:,} | {auroc} | {' | '.join((*shown, _cell(still, UNCHANGED)))} |", flush=True)
    print("calibrated by 500 labels, above= the rate before the change:")
    print("| AUROC | 5 -> 10 % | 5 -> 15 % | 5 -> 25 % | unchanged 5 % |")
    print("|---|---|---|---|---|", flush=True)
    for judge in (Decider(0.85, blind=0.2), Decider(0.92)):
        shown = [
            _cell(calibrated_alarm_calls(judge, 0.05, after, streams=options.streams, most=MOST), MOST)
            for after in (0.1, 0.15, 0.25)
        ]
        still = calibrated_alarm_calls(judge, 0.05, 0.05, streams=options.streams // 3, most=UNCHANGED)
        print(f"| {judge} | {' | '.join((*shown, _cell(still, UNCHANGED)))} |", flush=True)


def _cell(calls: np.ndarray[tuple[int], np.dtype[np.float64]], most: int) -> str:
    cut = float(np.mean(calls >= most))
    return f"{calls.mean():,.0f}{f' ({cut:.0%})' if cut else ''}"


if __name__ == "__main__":
    main()

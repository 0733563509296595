"""Cascades of screen, decision judge, chat judge and people: bias, coverage and effective labels, by simulation.

    python -m tests.benchmarks.cascade [--samples 1000] [--seed 1]

Traffic goes through all stages (`tests/support/cascade_populations.py`), each call with recorded probabilities, and
each sample is estimated by the package's code. Verdicts and decisions are paid for with labels, so that a cascade costs
what labels alone would. Prints for each cell the labels bought, the coverage, the effective labels relative to labels
alone for the same money, the bias of each stage with its Monte Carlo error, and what it would be without weights; then
each cell that misses a bound.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product

from tests.support.cascade_populations import CascadeCell, CascadeSamples, simulate_cascade
from tests.support.decision_populations import Decider

RATES = (0.002, 0.01, 0.03, 0.1, 0.3)
JUDGES = (Decider(0.75), Decider(0.85, blind=0.2), Decider(0.92), Decider(0.97, top=0.03))
LAYOUTS = ((10_000, 100.0, 0.05), (10_000, 300.0, 0.2), (100_000, 300.0, 0.05), (100_000, 1000.0, 0.05))
"""Calls, money, and the share of the calls that the chat judge sees."""
LEAST_GAIN = 1.4
ERRORS = 3.0
"""Monte Carlo standard errors that a stage's bias may have."""


def cells() -> Iterator[CascadeCell]:
    """Yield every cell of the grid."""
    for rate, judge, (calls, usd, verdicts) in product(RATES, JUDGES, LAYOUTS):
        yield CascadeCell(rate, judge, calls, usd, verdicts)


def gains(cell: CascadeCell) -> bool:
    """Return whether the gain of 1.4 is promised: from 3 %, 250 labels, 5 verdicts a label, an AUROC of .85."""
    return (
        cell.rate >= 0.03
        and cell.judge.auroc >= 0.85
        and cell.bought >= 250
        and cell.calls * cell.verdicts >= 5 * cell.bought
        and cell.calls * cell.verdicts * 0.01 <= cell.usd / 3.0
    )


def misses(found: CascadeSamples) -> list[str]:
    """Return the bounds of the design that a cell misses."""
    missed = list[str]()
    if found.coverage < 0.93:
        missed.append(f"covers {found.coverage:.3f}")
    if found.widest > 1.0 + 1e-9:
        missed.append(f"widest {found.widest:.3f} of the labels alone")
    if gains(found.cell) and found.gain < LEAST_GAIN:
        missed.append(f"gain {found.gain:.2f}")
    for stage in range(3):
        bias, error = found.bias(stage)
        if abs(bias) > ERRORS * error:
            missed.append(f"bias of stage {stage + 1} {bias:+.5f}, {abs(bias) / error:.1f} Monte Carlo errors")
    return missed


def main() -> None:
    """Simulate the grid and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        "| rate | judge | calls, USD, chat judge | labels | coverage | gain | bias of the stages, points | unweighted |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    results = list[CascadeSamples]()
    for number, cell in enumerate(cells()):
        found = simulate_cascade(cell, options.samples, options.seed * 10_000 + number)
        results.append(found)
        bias = ", ".join(f"{100 * value:+.2f} ± {196 * error:.2f}" for value, error in map(found.bias, range(3)))
        plain = ", ".join(f"{100 * value:+.1f}" for value in found.unweighted)
        layout = f"{cell.calls:,}, {cell.usd:,.0f}, {cell.verdicts:.0%}"
        print(
            f"| {cell.rate:.0%} | {cell.judge} | {layout} | {cell.bought} | {found.coverage:.3f} | {found.gain:.2f} "
            f"| {bias} | {plain} |",
            flush=True,
        )
    for found in results:
        if missed := misses(found):
            print("misses:", found.cell, "|", "; ".join(missed))


if __name__ == "__main__":
    main()

"""Rates and calibration curves of decision judges: coverage, width, promised errors and the gate, by simulation.

    python -m tests.benchmarks.decision_scores [--samples 2500] [--seed 1] [--every 1]

Traffic of 10,000 calls is scored by a simulated decision judge (`tests/support/decision_populations.py`), people label
a sample of them, and each sample is fitted and corrected by the package's code. Prints by rate and number of labels the
lowest and mean coverage of the rate of these calls, the width relative to as many labels alone at random, how often a
promised calibration error is kept (of 200 samples a cell that may be called calibrated), how often one is promised, and
how often a curve may be called calibrated; then each cell that misses a bound.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.support.decision_populations import Decider, DecisionCell, DecisionSamples, simulate

RATES = (0.002, 0.01, 0.03, 0.1, 0.3)
LABELS = (50, 100, 200, 500, 1000)
JUDGES = (
    *(Decider(auroc) for auroc in (0.75, 0.85, 0.92, 0.97)),
    Decider(0.75, temperature=2.5),
    Decider(0.85, temperature=2.5),
    Decider(0.85, temperature=0.5),
    Decider(0.85, shift=1.5),
    Decider(0.85, shift=-1.5),
    Decider(0.85, digits=2),
    Decider(0.92, temperature=2.5, shift=1.5),
    Decider(0.85, blind=0.2),
    Decider(0.92, blind=0.5),
    Decider(0.6),
    Decider(0.85, top=0.05),
    Decider(0.92, top=0.02),
    Decider(0.97, top=0.05),
    Decider(0.97, top=0.2),
    Decider(0.999, top=0.02),
    Decider(0.999, top=0.1),
)


def cells() -> Iterator[DecisionCell]:
    """Yield every cell of the grid."""
    for rate, labels, judge, uncertain in product(RATES, LABELS, JUDGES, (False, True)):
        yield DecisionCell(rate, judge, labels, uncertain)


def misses(found: DecisionSamples) -> list[str]:
    """Return the bounds of the design that a cell misses.

    A judge that hardly tells good from bad, or gives good calls a top score, passes the gate by chance now and then,
    for a nearly constant curve: there the bound is 4 % of the samples; over all passes it is far below 1 %.
    """
    cell, missed = found.cell, list[str]()
    if found.coverage < 0.93:
        missed.append(f"covers {found.coverage:.3f}")
    if found.widest > 1.0 + 1e-9:
        missed.append(f"widest {found.widest:.3f} of the labels alone")
    if found.kept < 0.97:
        missed.append(f"promised error kept in {found.kept:.4f}")
    if found.wrongly_passed > (0.01 if cell.judge.auroc >= 0.75 and not cell.judge.top else 0.04):
        missed.append(f"calibrated though worse than the mean in {found.wrongly_passed:.4f}")
    if cell.uncertain and not cell.judge.blind and not cell.judge.top and found.relative > widest_allowed(cell):
        missed.append(f"width {found.relative:.3f}, allowed {widest_allowed(cell):.2f}")
    return missed


def widest_allowed(cell: DecisionCell) -> float:
    """Return the largest width that picks by uncertainty may have, relative to labels alone at random."""
    if cell.judge.auroc >= 0.92 and cell.rate >= 0.1 and cell.labels >= 200:
        return 0.80
    if cell.judge.auroc >= 0.85 and cell.labels >= 200 and cell.rate >= 0.03:
        return 0.97 if cell.rate < 0.1 else 0.90
    return 1.12


def main() -> None:
    """Simulate the grid and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="simulate only every so many cells")
    options = parser.parse_args()
    results = [
        simulate(cell, options.samples, options.seed * 100_000 + number)
        for number, cell in enumerate(list(cells())[:: options.every])
    ]
    print(
        "| rate | labels | coverage: lowest, mean | width: random, uncertain (A .75, .85, .92, .97) | kept, promised "
        "| passed, A .85 |"
    )
    print("|---|---|---|---|---|---|")
    for rate, labels in product(RATES, LABELS):
        mine = [each for each in results if (each.cell.rate, each.cell.labels) == (rate, labels)]
        if not mine:
            continue
        plain = [each for each in mine if each.cell.judge in JUDGES[:4]]
        widths = (
            "/".join(f"{each.relative:.2f}" for each in plain if each.cell.uncertain == uncertain)
            for uncertain in (False, True)
        )
        kept = [each for each in mine if np.isfinite(each.promised).any()]
        passed = [float(each.passed.mean()) for each in plain if each.cell.judge == JUDGES[1]]
        print(
            f"| {rate:.1%} | {labels:,} | {min(each.coverage for each in mine):.3f}, "
            f"{np.mean([each.coverage for each in mine]):.3f} | {', '.join(widths)} "
            f"| {min((each.kept for each in kept), default=1.0):.4f}, "
            f"{np.mean([each.promising for each in kept]) if kept else 0.0:.2f} "
            f"| {', '.join(f'{each:.2f}' for each in passed)} |",
            flush=True,
        )
    passes = sum(int(each.passed.sum()) for each in results)
    wrong = sum(int((each.passed & (each.gain < 0.0)).sum()) for each in results)
    print(f"calibrated though worse than the mean label: {wrong} of {passes} passes; most of one cell: ", end="")
    print(f"{max(each.wrongly_passed for each in results):.4f} of its samples")
    print(f"95th percentile of the calibration error, worst cell by rate and labels, {options.samples} samples:")
    for rate in RATES:
        worst = [
            max(float(np.quantile(r.error, 0.95)) for r in results if (r.cell.rate, r.cell.labels) == (rate, labels))
            for labels in LABELS
            if any((r.cell.rate, r.cell.labels) == (rate, labels) for r in results)
        ]
        print(f"  {rate:.0%}: " + ", ".join(f"{each:.3f}" for each in worst))
    for each in results:
        if missed := misses(each):
            print("misses:", each.cell, "|", "; ".join(missed))


if __name__ == "__main__":
    main()

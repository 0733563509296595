"""How often the 95 % intervals of corrected rates cover, and how wide they are, over simulated traffic.

    python -m tests.benchmarks.corrected_rate [--replicates 1000] [--again 20000] [--seed 1] [--every 1] [--set NAME=1]

A screen scores all calls, a judge of known sensitivity and specificity a sample of them, a person a sample of those.
Prints, by true rate and number of labels, the coverage and the mean width of three intervals: the corrected one, that
of the labels alone and the uncorrected one of the judge; then every cell that misses a bound, worst first: 93 %
coverage, and a corrected interval that is narrower than that of the labels alone where the judge's correlation with the
label is 0.5 or more. A cell near its
bound for coverage is simulated once more, on another seed with more replicates, and that is what is reported.

`--set` gives a constant of `ragtrace.estimates.corrected` another value, which shows what the constant is there for.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product

from ragtrace.estimates import corrected
from tests.support.label_populations import LabelCell, LabelResult, measure

SENSITIVITIES = (0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 1.0)
SPECIFICITIES = (0.8, 0.9, 0.95, 0.99)
RATES = (0.002, 0.005, 0.02, 0.05, 0.1, 0.3)
LABELS = (30, 60, 150, 300, 500)
JUDGED = ((1000, 1.0), (2000, 0.2), (2000, 0.02), (600, 0.2))
"""Expected number of judged calls, and the probability of being judged."""
FLAGGED = (None, 0.5, 0.8)
"""Share of the labels that are drawn among the calls that the judge finds bad."""
COVERAGE = 0.93
"""Least coverage of a cell."""


def cells() -> Iterator[LabelCell]:
    """Yield every cell of the grid."""
    grid = product(RATES, SENSITIVITIES, SPECIFICITIES, LABELS, JUDGED, FLAGGED)
    for rate, sensitivity, specificity, labels, (judged, p), flagged in grid:
        yield LabelCell(rate, sensitivity, specificity, labels, judged, p, flagged)


def table(results: Sequence[LabelResult]) -> Iterator[str]:
    """Yield the lines of a table of coverages and widths, by true rate and number of labels."""
    groups: dict[tuple[float, int], list[LabelResult]] = defaultdict(list)
    for result in results:
        groups[result.cell.rate, result.cell.labels].append(result)
    yield "| rate | labels | corrected: covers (lowest), width | labels alone | uncorrected judge |"
    yield "|---|---|---|---|---|"
    for (rate, labels), group in sorted(groups.items()):

        def mean(name: str, among: Sequence[LabelResult] = group) -> float:
            return sum(float(getattr(result, name)) for result in among) / len(among)

        lowest = min(result.corrected for result in group)
        yield (
            f"| {rate:g} | {labels} | {mean('corrected'):.3f} ({lowest:.3f}), {mean('corrected_width'):.3f} "
            f"| {mean('alone'):.3f}, {mean('alone_width'):.3f} | {mean('judge'):.3f}, {mean('judge_width'):.3f} |"
        )


def main() -> None:
    """Simulate the grid and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--again", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="simulate only every so many cells")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER", help="another value of a constant")
    options = parser.parse_args()
    for setting in options.set:
        name, _, number = setting.partition("=")
        if not isinstance(getattr(corrected, name, None), float):
            parser.error(f"--set takes a constant of ragtrace.estimates.corrected and a number, got {setting}")
        setattr(corrected, name, float(number))
    results: list[LabelResult] = []
    again = 0
    for number, cell in enumerate(list(cells())[:: options.every]):
        result = measure(cell, options.replicates, options.seed * 100_000 + number)
        if result.corrected < COVERAGE + 0.01:
            result = measure(cell, options.again, options.seed * 100_000 + 50_000 + number)
            again += 1
        results.append(result)
    for line in table(results):
        print(line)
    for name, ordinary in (("ten bad and ten good labels or more", True), ("fewer", False)):
        among = [result for result in results if result.ordinary == ordinary]
        print(f"{name}: {len(among)} cells, lowest coverage {min(each.corrected for each in among):.3f}")
    close = [result for result in results if result.cell.correlation >= 0.5]
    narrower = [result for result in close if result.relative < 1.0]
    print(
        f"correlation 0.5 or more: {len(close)} cells, narrower than the labels alone in {len(narrower)}; widest of "
        f"all cells: {max(result.relative for result in results):.3f} of the labels alone, mean of all "
        f"{sum(result.relative for result in results) / len(results):.3f}; simulated again: {again}"
    )
    for result in sorted(results, key=lambda each: each.corrected):
        if result.corrected < COVERAGE:
            print("covers too little:", result)
    for result in close:
        if result.relative >= 1.0:
            print(f"not narrower (no bad label in {result.without_bad:.0%} of the samples):", result)


if __name__ == "__main__":
    main()

"""How often the 95 % intervals of the estimates cover, and how wide they are, over simulated traffic.

    python -m tests.benchmarks.coverage [--replicates 2000] [--again 20000] [--seed 1] [--kind shifted] [--always]
    python -m tests.benchmarks.coverage --ruled [--replicates 2000] [--seed 1]

Prints one line a kind of population, method and target, and below it every cell that misses a bound, worst first:
93 % coverage and a mean width of at most 1.5 times the oracle's where ten or more bad and ten or more good judged calls
are expected, 90 % elsewhere. The oracle is the normal interval with the true standard deviation of the weighted mean.

With `--ruled`: traffic of which an `always` rule has a part judged, while of the rest few calls or none are judged, and
windows of 20 to 50 calls.

The lowest of thousands of coverages is low by chance: over 2,000 replicates they vary by 0.6 %. So a cell that is near
its bound is simulated once more, on another seed with more replicates, and that is what is reported.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final, get_args

from ragtrace.estimates.formulas import Method, Target
from tests.support.populations import (
    Cell,
    Kind,
    Replicates,
    Result,
    RuledTraffic,
    interval,
    simulate,
    simulate_ruled,
    tried,
)

RATES: Final = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5)
PROBABILITIES: Final = (0.01, 0.1, 0.2, 0.5, 1.0)
CORRELATIONS: Final = (0.0, 0.4, 0.7, 0.9)
JUDGED: Final = (30, 100, 300, 1000, 5000)
DESIGNS: Final = ((1.0, 0.1), (3.0, 0.1), (10.0, 0.05), (10.0, 0.2))
"""How many times as often suspicious calls are judged, and their share of the traffic."""
ALWAYS: Final = (0.1, 0.3, 0.6)
"""Shares of the traffic that an `always` rule has judged, in a grid of their own."""
RULED_RATES: Final = (0.002, 0.01, 0.05, 0.2)
RULED_GRID: Final = tuple(
    product((20, 50, 100, 500, 2000, 5000), (0.02, *ALWAYS), RULED_RATES, RULED_RATES, (0.0, 0.005, 0.02, 0.05, 0.1))
)
"""Calls, the share that a rule has judged, the rates of bad calls among these and the others, and their probability."""
WINDOWS: Final = tuple(
    product(
        (20, 30, 40, 50),
        ((0.02, 0.4, 0.0123), (0.05, 0.3, 0.0053), (0.1, 0.1, 0.0111), (0.1, 0.2, 0), (0.02, 1, 0), (0.6, 0.03, 0.005)),
        (0.005, 0.02, 0.05, 0.1),
    )
)
"""Calls, (ruled share, its rate, the others' rate), which make a true rate of 2 %, and the others' probability."""
METHODS: Final[tuple[Method, ...]] = get_args(Method)
TARGETS: Final[tuple[Target, ...]] = get_args(Target)


def cells(kind: Kind) -> Iterator[Cell]:
    """Every cell of the grid that is possible."""
    for rate, p, correlation, judged, (boost, share) in product(RATES, PROBABILITIES, CORRELATIONS, JUDGED, DESIGNS):
        if (boost > 1.0 and p >= 0.5) or (kind == "graded" and rate >= 0.5):
            continue
        yield Cell(rate, p, correlation, judged, boost, share, kind)


def ruled(kind: Kind) -> Iterator[Cell]:
    """Cells in which a rule has a part of the calls judged always."""
    grid = product(RATES[1:5], (0.01, 0.05, 0.2), (0.0, 0.4, 0.7), (60, 100, 300), DESIGNS[:2] + DESIGNS[3:], ALWAYS)
    for rate, p, correlation, judged, (boost, share), always in grid:
        if p * boost <= 1.0:
            yield Cell(rate, p, correlation, judged, boost, share, kind, always)


@dataclass(frozen=True)
class Line:
    """One method in one cell."""

    cell: Cell
    result: Result
    correlation: float
    """Reached."""

    @property
    def covers(self) -> bool:
        return self.result.coverage >= (0.93 if self.result.ordinary else 0.90)

    @property
    def near(self) -> bool:
        """Whether chance may have decided on which side of the bound for coverage it is."""
        return self.result.coverage < (0.94 if self.result.ordinary else 0.91)

    @property
    def narrow(self) -> bool:
        return not self.result.ordinary or self.result.relative <= 1.5

    def __str__(self) -> str:
        c, r = self.cell, self.result
        return (
            f"rate {c.rate:<5g} p {c.p:<4g} correlation {self.correlation:.2f} judged {c.judged:<4d} "
            f"boost {c.boost:g} of {c.suspicious:g} always {c.always:g}: "
            f"covers {r.coverage:.3f}, width {r.relative:.2f}"
        )


def report(title: str, lines: list[Line], worst: int) -> None:
    """One method's line, and what misses a bound."""
    ordinary = [line.result for line in lines if line.result.ordinary]
    few = [line.result.coverage for line in lines if not line.result.ordinary]
    covered, widths = [r.coverage for r in ordinary], [r.relative for r in ordinary]
    print(
        f"{title}: {len(ordinary)} cells with ten or more of each: coverage from {min(covered):.3f}, below .93 in "
        f"{sum(c < 0.93 for c in covered)}, width up to {max(widths):.2f} (mean {sum(widths) / len(widths):.2f}), over "
        f"1.5 in {sum(w > 1.5 for w in widths)} | {len(few)} with fewer: coverage from {min(few):.3f}, below .90 in "
        f"{sum(c < 0.90 for c in few)}"
    )
    low, wide = [line for line in lines if not line.covers], [line for line in lines if not line.narrow]
    for line in sorted(low, key=lambda line: line.result.coverage)[:worst]:
        print(f"    low:  {line}")
    for line in sorted(wide, key=lambda line: -line.result.relative)[:worst]:
        print(f"    wide: {line}")


def gains(title: str, tuned: list[Line], plain: list[Line]) -> None:
    """How much narrower the tuned interval is."""
    pairs = list(zip(tuned, plain, strict=True))
    ratios = [(one, one.result.width / other.result.width) for one, other in pairs if other.result.width]
    good = [pair for pair in ratios if pair[0].correlation >= 0.695 and pair[0].cell.p <= 0.2]
    print(f"{title}: tuned width by plain width: at most {max(ratio for _, ratio in ratios):.4f}")
    for design, alike in (("alike p", True), ("suspicious sampling", False)):
        for number, ordinary in (("ten or more of each", True), ("fewer", False)):
            found = [
                ratio for line, ratio in good if (line.cell.boost == 1.0) == alike and line.result.ordinary == ordinary
            ]
            if found:
                print(
                    f"    correlation .7 and more, p .2 and less, {design}, {number}: mean "
                    f"{sum(found) / len(found):.3f}, at most {max(found):.3f}, over .8 in "
                    f"{sum(ratio > 0.8 for ratio in found)} of {len(found)}"
                )


def _lines(cell: Cell, replicates: Replicates) -> list[Line]:
    return [Line(cell, tried(replicates, m, t), replicates.correlation) for m, t in product(METHODS, TARGETS)]


def report_ruled(seed: int, replicates: int) -> None:
    """Print a table row for each share of the traffic that a rule has judged, and a line on short windows."""
    print("| always | cells x methods x targets | lowest coverage: ordinary | others | below .94 |")
    print("|--:|--:|--:|--:|--:|")
    for share in (0.02, *ALWAYS):
        cells = [RuledTraffic(*cell) for cell in RULED_GRID if cell[1] == share]
        found: dict[bool, list[float]] = {True: [], False: []}
        for number, cell in enumerate(cells):
            drawn = simulate_ruled(cell, seed * 1_000_003 + number, replicates)
            found[cell.ordinary] += [tried(drawn, *each).coverage for each in product(METHODS, TARGETS)]
        count, below = sum(map(len, found.values())), sum(c < 0.94 for c in found[True] + found[False])
        lowest = [f"{min(each):.3f}" if each else "none" for each in found.values()]
        print(f"| {share:.0%} | {count:,} | {lowest[0]} | {lowest[1]} | {below} |")
    worst = 0.0
    for number, (calls, (share, rate, others), p) in enumerate(WINDOWS):
        cell = RuledTraffic(calls, share, rate, others, p)
        drawn = simulate_ruled(cell, seed * 2_000_003 + number, 10 * replicates)
        worst = max(worst, *(float((interval(drawn, method, "rate")[1] > 0.05).mean()) for method in METHODS))
    print(f"windows of 20 to 50 calls at a rate of 2 % wholly above 5 %: at most {worst:.2%} of a cell's")


def main() -> None:
    """Simulate the grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=2000)
    parser.add_argument("--again", type=int, default=20_000, help="replicates of a cell near a bound; 0: none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=get_args(Kind), action="append")
    parser.add_argument("--always", action="store_true", help="the grid in which a rule has calls judged always")
    parser.add_argument("--ruled", action="store_true", help="traffic of which a rule has a part judged, little else")
    parser.add_argument("--worst", type=int, default=5)
    asked = parser.parse_args()
    if asked.ruled:
        report_ruled(asked.seed, asked.replicates)
        return
    for kind in asked.kind or get_args(Kind):
        found: dict[tuple[Method, Target], list[Line]] = {(m, t): [] for m in METHODS for t in TARGETS}
        for number, cell in enumerate((ruled if asked.always else cells)(kind)):
            seed = asked.seed * 1_000_003 + number
            tries = _lines(cell, simulate(cell, seed, asked.replicates))
            if asked.again and any(line.near for line in tries):
                tries = _lines(cell, simulate(cell, seed + 500_009, asked.again))
            for lines, line in zip(found.values(), tries, strict=True):
                lines.append(line)
        for (method, target), lines in found.items():
            report(f"{kind} {method} {target}", lines, asked.worst)
        for target in () if asked.always else TARGETS:
            gains(f"{kind} {target}", found["tuned", target], found["weighted", target])


if __name__ == "__main__":
    main()

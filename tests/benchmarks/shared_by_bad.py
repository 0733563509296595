"""What bad calls share where questions repeat: groups by chance, and how often a planted cause is found.

Run: python -m tests.benchmarks.shared_by_bad
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ragtrace.report.model import Grouping
from tests.support.repeated_questions import CAUSE, grouping

REPORTS = 100
SEED = 660_000
CHANCE = ((0.05, 1_000), (0.1, 1_000), (0.2, 1_000), (0.1, 3_000))
CAUSES = ((0.1, 0.5, 1_000), (0.1, 0.5, 3_000), (0.05, 0.5, 3_000), (0.05, 0.8, 3_000))


def reports(rate: float, with_cause: float, calls: int, share: float = 0.1) -> list[Grouping]:
    found: list[Grouping] = []
    for number in range(REPORTS):
        print(f"\r{number}/{REPORTS}", end="", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "history.db"
            found.append(grouping(path, SEED + number, rate=rate, with_cause=with_cause, calls=calls, share=share))
    return found


def is_cause(kind: str, name: str, alike: tuple[str, ...]) -> bool:
    return (kind, name) == ("chunk", CAUSE) or f"chunk {CAUSE}" in alike


def main() -> None:
    print(f"{REPORTS} reports a row; seeds from {SEED:,}\n")
    print("| bad answers | scored calls | questions | groups compared | reports with a group by chance |")
    print("|--:|--:|--:|--:|--:|")
    for rate, calls in CHANCE:
        found = reports(rate, rate, calls)
        mean = [
            sum(values) / REPORTS for values in zip(*((each.questions, each.examined) for each in found), strict=True)
        ]
        by_chance = sum(1 for each in found if each.worse)
        print(f"| {rate:.0%} | {calls:,} | {mean[0]:.0f} | {mean[1]:.0f} | {by_chance} |", flush=True)
    print("\n| questions with the cause | bad with it (else 10 %) | scored calls | cause found | with another group |")
    print("|--:|--:|--:|--:|--:|")
    for share, bad, calls in CAUSES:
        rows = [each.worse for each in reports(0.1, bad, calls, share)]
        causes = sum(any(is_cause(row.kind, row.name, row.alike) for row in each) for each in rows)
        others = sum(any(not is_cause(row.kind, row.name, row.alike) for row in each) for each in rows)
        print(f"| {share:.0%} | {bad:.0%} | {calls:,} | {causes} | {others} |", flush=True)


if __name__ == "__main__":
    main()

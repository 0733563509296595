"""What `Alert("consistency", below="baseline")` notices, and what it says of a rebuilt index, by the size of the index.

    python -m tests.benchmarks.baseline_indexes [--runs 16]

Simulated: the scores of two topics, .21 apart, are around a mean of their own for each document (standard deviation
.05), and those of bad answers .3 lower; calls vary around these with a standard deviation of .1. Documents are drawn by
Zipf's law with the exponent in the table, or never come again. Each run learns a baseline from 2,000 calls as the
product does. "Stated" is what `ragtrace baseline show` says beforehand of the fall of the mean that follows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import numpy as np

from ragtrace.alerts import Alert
from ragtrace.alerts.detector import Detector
from ragtrace.alerts.sensitivity import Sensitivity
from ragtrace.estimates import Adjustment, CallTraits, KnownDocuments, baseline_bound

ALERT: Final = Alert("consistency", below="baseline")
LEARNED: Final = 2_000
CAP: Final = 20_000
AFTER_REBUILDING: Final = 2_000
USUAL: Final = 0.05
LOSS: Final = 0.3
DIFFERENCE: Final = 0.21
SEED: Final = 90_210
_ENDLESS: Final = 10_000_000


@dataclass(frozen=True)
class Index:
    """Documents of each topic, and the exponent of the law by which calls are about them."""

    documents: int
    exponent: float

    @property
    def name(self) -> str:
        """Row of the table."""
        if self.documents >= _ENDLESS:
            return "documents never come again"
        return f"{self.documents:,} documents a topic" + (f", Zipf {self.exponent:g}" if self.exponent else ", alike")


INDEXES: Final = (
    Index(12, 0.0), Index(100, 0.0), Index(300, 1.0), Index(1_000, 1.0), Index(3_000, 1.0), Index(3_000, 0.7),
    Index(_ENDLESS, 0.0),
)  # fmt: skip
TURNS: Final = (0, 100, 300, 1_000)


class Traffic:
    """Endless calls about two topics that take turns of *turn* calls; 0: in a fixed mix."""

    def __init__(self, index: Index, turn: int, seed: int) -> None:
        self._rng = np.random.default_rng([SEED, index.documents, turn, seed])
        self._turn, self._documents = turn, index.documents
        weights = np.arange(1.0, min(index.documents, 100_000) + 1.0) ** -index.exponent
        self._cumulative = np.cumsum(weights / weights.sum())
        self._levels = self._rng.normal(0.0, 0.05, (2, weights.size))
        self._calls = int(self._rng.integers(2 * turn)) if turn else 0
        self.bad, self.rebuilt = USUAL, False

    def next(self) -> tuple[float, CallTraits, int]:
        """Score, traits and question of a call."""
        rng = self._rng
        topic = self._calls // self._turn % 2 if self._turn else int(rng.random() < 0.5)
        self._calls += 1
        document = min(self._cumulative.size - 1, int(np.searchsorted(self._cumulative, rng.random())))
        level = 0.85 - DIFFERENCE * topic + self._levels[topic, document] - LOSS * (rng.random() < self.bad)
        name = 10_000_000 * topic + document if self._documents < _ENDLESS else 30_000_000 + self._calls
        traits = CallTraits(name + 1_000_000_000 * self.rebuilt, 1_000)
        return float(min(1.0, max(0.0, rng.normal(level, 0.1)))), traits, self._calls


def learn(traffic: Traffic) -> tuple[Adjustment, Callable[[], tuple[bool, bool]]]:
    """Learn a baseline; also returns a function that adds a call, and tells of alarms and of new documents."""
    scores, traits, questions = zip(*[traffic.next() for _ in range(LEARNED)], strict=True)
    found = Adjustment.learn(scores, traits, weights=[1.0] * LEARNED, questions=questions)
    bound, gate = baseline_bound(found.distribution, ALERT.direction), found.gate(ALERT.direction)
    detector = Detector(1.0 - bound, ALERT.mean_calls_between_false_alarms, ALERT.calls_in_batch, 0.0, gate)
    documents = KnownDocuments(found.least_known)

    def add() -> tuple[bool, bool]:
        score, each, question = traffic.next()
        documents.add(found.knows(each))
        if documents.calls_since_vanished:
            return False, True
        return detector.add(1.0 - found.adjust(score, each), 1.0, question), False

    return found, add


def noticed(index: Index, turn: int, worse: float, runs: int) -> tuple[list[int], list[int]]:
    """Calls until a rise of the share of bad answers is noticed, as stated beforehand and as seen, of each run."""
    stated: list[int] = []
    seen: list[int] = []
    for seed in range(runs):
        traffic = Traffic(index, turn, seed)
        found, add = learn(traffic)
        stated.append(Sensitivity(ALERT, found.distribution, found).calls_to_notice(LOSS * (worse - USUAL)) or 0)
        traffic.bad = worse
        seen.append(next((call for call in range(1, CAP + 1) if add()[0]), CAP))
    return stated, seen


def rebuilt(index: Index, turn: int, runs: int) -> tuple[int, int]:
    """Return in how many runs a rebuilt index is called worse answers, and in how many new documents."""
    alarms = told = 0
    for seed in range(runs):
        traffic = Traffic(index, turn, 10_000 + seed)
        _, add = learn(traffic)
        traffic.rebuilt = True
        seen = [add() for _ in range(AFTER_REBUILDING)]
        alarms, told = alarms + any(alarm for alarm, _ in seen), told + any(new for _, new in seen)
    return alarms, told


def main() -> None:
    """Simulate all sizes of indexes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=16)
    asked = parser.parse_args()
    began, within, cells = time.monotonic(), 0, 0
    print(f"Scored calls until a rise is noticed, mean of {asked.runs} runs cut off at {CAP:,}\n")
    print("| index | turns | 5 to 25 %: stated | seen | 5 to 50 %: stated | seen | rebuilt: worse | new documents |")
    for index in INDEXES:
        for turn in TURNS:
            columns: list[str] = []
            for worse in (0.25, 0.5):
                stated, seen = map(fmean, noticed(index, turn, worse, asked.runs))
                within, cells = within + (0.5 <= stated / seen <= 2.0), cells + 1
                columns += [f"{stated:,.0f}", f"{seen:,.0f}"]
            columns += [f"{count / asked.runs:.0%}" for count in rebuilt(index, turn, asked.runs)]
            print(f"| {index.name} | {turn or 'one mix'} | " + " | ".join(columns) + " |", flush=True)
    print(f"\nstated within a factor of 2 in {within} of {cells} cells; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

"""An alert on a baseline keeps its promise where the mix of topics varies, and still tells of worse answers.

Scores of the answers about a document are around a mean of the document's topic, 0.2 apart, and topics come in turns.
What the alert says beforehand of how soon it notices worse answers is held against how soon it does.
The detector, the bound and the adjustment are the product's own; `benchmarks/baseline_topics.py` has the labelled sets.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import fmean

import pytest

from ragtrace.alerts import Alert
from ragtrace.alerts.detector import Detector
from ragtrace.alerts.sensitivity import Sensitivity
from ragtrace.estimates import Adjustment, CallTraits, Distribution, KnownDocuments, baseline_bound

ALERT = Alert("consistency", below="baseline")
RUNS = 10
LEARNED = 2_000


class Traffic:
    """Calls about twelve documents of each topic, which take turns; a turn of 0: topics in a fixed mix.

    Alternatively no document comes again.
    """

    def __init__(self, seed: int, topics: int, turn: int, difference: float) -> None:
        self._rng = random.Random(seed)
        self._topics, self._turn, self._difference = topics, turn, difference
        self._calls = self._rng.randrange(turn * topics) if turn else 0
        self.bad, self.index, self.documents = 0.05, 0, 12

    def next(self) -> tuple[float, CallTraits, object]:
        """Score, traits and question of a call."""
        rng = self._rng
        topic = self._calls // self._turn % self._topics if self._turn else rng.randrange(self._topics)
        self._calls += 1
        level = 0.85 - self._difference * topic / max(1, self._topics - 1)
        score = rng.gauss(level - 0.3 if rng.random() < self.bad else level, 0.1)
        document = 1_000_000 * self.index + 100_000 * topic + rng.randrange(self.documents)
        return min(1.0, max(0.0, score)), CallTraits(document, 1000), self._calls


def plain(traffic: Traffic) -> Callable[[], bool]:
    """Learn a baseline without the effects of documents; returns a function that adds a call and tells of an alarm."""
    bound = baseline_bound(Distribution.of([traffic.next()[0] for _ in range(LEARNED)]), "below")
    detector = Detector(1.0 - bound, ALERT.mean_calls_between_false_alarms, ALERT.calls_in_batch, 0.0)
    return lambda: detector.add(1.0 - traffic.next()[0])


def adjusted(traffic: Traffic) -> Callable[[], bool]:
    """Learn a baseline as the product does."""
    scores, traits, questions = zip(*[traffic.next() for _ in range(LEARNED)], strict=True)
    found = Adjustment.learn(scores, traits, weights=[1.0] * LEARNED, questions=questions)
    bound, gate = baseline_bound(found.distribution, "below"), found.gate("below")
    documents = KnownDocuments(found.least_known)
    detector = Detector(1.0 - bound, ALERT.mean_calls_between_false_alarms, ALERT.calls_in_batch, 0.0, gate)

    def add() -> bool:
        score, each, question = traffic.next()
        documents.add(found.knows(each))
        if documents.calls_since_vanished:
            return False
        return detector.add(1.0 - found.adjust(score, each), 1.0, question)

    return add


def run_lengths(
    learn: Callable[[Traffic], Callable[[], bool]],
    *,
    topics: int,
    turn: int,
    most: int,
    difference: float = 0.2,
    worse: float = 0.05,
    rebuilt: bool = False,
) -> list[int]:
    """Calls until an alarm, *most* where there was none within so many."""
    found: list[int] = []
    for seed in range(RUNS):
        traffic = Traffic(seed, topics, turn, difference)
        add = learn(traffic)
        traffic.bad, traffic.index = worse, int(rebuilt)
        found.append(next((call for call in range(1, most + 1) if add()), most))
    return found


def calls_for_each_alarm(lengths: Sequence[int], most: int) -> float:
    """The mean run, estimated from runs of which some were cut off at *most* calls without an alarm."""
    return sum(lengths) / max(1, sum(each < most for each in lengths))


@pytest.mark.parametrize(("topics", "turn"), [(2, 100), (2, 1000), (5, 300)])
def test_topics_in_turn_raise_no_more_false_alarms_than_promised(topics: int, turn: int) -> None:
    """10,000 calls for each alarm, in runs that are cut at 8,000; without the adjustment a third of that."""
    assert calls_for_each_alarm(run_lengths(plain, topics=topics, turn=turn, most=8_000), 8_000) < 3_300
    assert calls_for_each_alarm(run_lengths(adjusted, topics=topics, turn=turn, most=8_000), 8_000) >= 10_000


@pytest.mark.parametrize("turn", [0, 300])
def test_worse_answers_are_told_of_whatever_the_topic(turn: int) -> None:
    """A rise of bad answers from 5 to 25 % within 400 calls, to 15 % within 1,000 in the mean."""
    assert fmean(run_lengths(adjusted, topics=2, turn=turn, most=5_000, worse=0.25)) <= 400
    assert fmean(run_lengths(adjusted, topics=2, turn=turn, most=5_000, worse=0.15)) <= 1_000


@pytest.mark.parametrize("turn", [0, 300])
def test_a_rebuilt_index_raises_no_alarm_of_worse_answers(turn: int) -> None:
    """With new ids and texts of all documents, within 2,000 calls."""
    assert run_lengths(adjusted, topics=2, turn=turn, most=2_000, rebuilt=True) == [2_000] * RUNS


@pytest.mark.parametrize(
    ("documents", "turn", "worse"),
    [(12, 0, 0.25), (12, 300, 0.25), (500, 300, 0.5), (100_000, 100, 0.25), (100_000, 300, 0.5), (100_000, 1_000, 0.5)],
)
def test_an_alert_says_beforehand_how_soon_it_notices_worse_answers(documents: int, turn: int, worse: float) -> None:
    """Within a factor of 2 of the mean of six runs, which take 200 to 4,000 calls."""
    stated: list[int] = []
    seen: list[int] = []
    for seed in range(6):
        traffic = Traffic(700 + seed, 2, turn, 0.2)
        traffic.documents = documents
        scores, traits, questions = zip(*[traffic.next() for _ in range(LEARNED)], strict=True)
        found = Adjustment.learn(scores, traits, weights=[1.0] * LEARNED, questions=questions)
        stated.append(Sensitivity(ALERT, found.distribution, found).calls_to_notice(0.3 * (worse - 0.05)) or 0)
        bound, gate = baseline_bound(found.distribution, "below"), found.gate("below")
        detector = Detector(1.0 - bound, ALERT.mean_calls_between_false_alarms, ALERT.calls_in_batch, 0.0, gate)
        traffic.bad = worse
        seen.append(0)
        while seen[-1] < 20_000:
            score, each, question = traffic.next()
            seen[-1] += 1
            if detector.add(1.0 - found.adjust(score, each), 1.0, question):
                break
    assert 0.5 <= fmean(stated) / fmean(seen) <= 2.0, (stated, seen)

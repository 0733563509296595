"""Whether `Alert("consistency", below="baseline")` keeps its promise while the mix of topics changes.

    RAGTRACE_LABELLED_DATA=DIR python -m tests.benchmarks.baseline_topics [--runs 60]

DIR as of `accuracy.py`. Every labelled call is scored once by the embedded judge. Traffic is drawn from these calls, of
which a fixed share was rejected by people: in one mix, with topics that take turns, with a mix that follows a slow
wave, and with a question that many people ask at once. Each run learns a baseline from its first calls as the product
does, once with the effects of documents and lengths and once without. Runs are cut off: a mean is that of min(calls,
cap). The sets are small, so runs share calls; what differs between runs is their order and mix.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from statistics import fmean, median
from typing import Final, TypeAlias

from ragtrace.alerts import Alert
from ragtrace.alerts.detector import Detector
from ragtrace.estimates import Adjustment, CallTraits, Distribution, KnownDocuments, baseline_bound
from tests.benchmarks.accuracy import judge_all

ALERT: Final = Alert("consistency", below="baseline")
SETS: Final = ("ragtruth_qa", "mtrag_human")
LEARNED: Final = 2_000
USUAL: Final = 0.05
TURNS: Final = (100, 300, 1_000)
EARLY: Final = 1_000
CAP: Final = 20_000
SEED: Final = 77_001


@dataclass(frozen=True)
class Scored:
    """A labelled call: what an alert sees of it, and whether people rejected the answer."""

    score: float
    traits: CallTraits
    question: str
    bad: bool


class Topic:
    """Calls about one topic. Questions are asked alike whatever share of the answers is rejected.

    Args:
        calls: the labelled calls of the topic.
        others: all labelled calls of the set. The score of a question that was never answered so is that of another
            question of the topic or, if there is none, of the set.
    """

    def __init__(self, calls: Sequence[Scored], others: Sequence[Scored]) -> None:
        self._asked = by_question(calls)
        self._elsewhere = {
            bad: [each for each in calls if each.bad is bad] or [each for each in others if each.bad is bad]
            for bad in (False, True)
        }

    def draw(self, rng: random.Random, share: float) -> Scored:
        """A call with a question drawn at random, whose answer is rejected with the probability *share*."""
        bad, answers = rng.random() < share, rng.choice(self._asked)
        if fitting := [each for each in answers if each.bad is bad]:
            return rng.choice(fitting)
        return replace(rng.choice(answers), score=rng.choice(self._elsewhere[bad]).score, bad=bad)


Stream: TypeAlias = Callable[[random.Random, Callable[[], float]], Iterator[Scored]]
"""Endless calls, from random numbers and the share of rejected answers at the moment."""
Watch: TypeAlias = Callable[[Iterator[Scored]], Callable[[Scored], bool]]
"""Learns a baseline; returns a function that adds a call and tells of an alarm."""


def in_turn(topics: Sequence[Topic], turn: int) -> Stream:
    """Topics that take turns of *turn* calls, from any point of the cycle on."""

    def calls(rng: random.Random, share: Callable[[], float]) -> Iterator[Scored]:
        at = rng.randrange(turn * len(topics))
        while True:
            yield topics[at // turn % len(topics)].draw(rng, share())
            at += 1

    return calls


def in_a_wave(one: Topic, other: Topic, length: int) -> Stream:
    """Two topics whose shares follow a sine of *length* calls between 0 and 1."""

    def calls(rng: random.Random, share: Callable[[], float]) -> Iterator[Scored]:
        at = rng.randrange(length)
        while True:
            chosen = one if rng.random() < (1.0 + math.sin(2.0 * math.pi * at / length)) / 2.0 else other
            yield chosen.draw(rng, share())
            at += 1

    return calls


def repeated(topic: Topic, times: int, within: int, *, rephrased: bool = False) -> Stream:
    """Calls in one mix, in which some question comes *times* times within so many calls, in the same words or others.

    Once in ten times *within* calls a question begins to come again; its answer is the same one each time.
    """

    def calls(rng: random.Random, share: Callable[[], float]) -> Iterator[Scored]:
        left, again = 0, topic.draw(rng, share())
        for number in range(1 << 60):
            if not left and rng.random() < 0.1 / within:
                left, again = times, topic.draw(rng, share())
            if left and rng.random() < times / within:
                left -= 1
                question = f"{again.question} {number}" if rephrased else again.question
                yield Scored(again.score, again.traits, question, again.bad)
            else:
                yield topic.draw(rng, share())

    return calls


def adjusted(calls: Iterator[Scored]) -> Callable[[Scored], bool]:
    """Watch scores without the usual effects of documents and lengths, as the product does."""
    learned = list(islice(calls, LEARNED))
    found = Adjustment.learn(
        [each.score for each in learned],
        [each.traits for each in learned],
        weights=[1.0] * LEARNED,
        questions=[each.question for each in learned],
    )
    detector = _detector(found.distribution, found.gate(ALERT.direction))
    documents = KnownDocuments(found.least_known)

    def add(call: Scored) -> bool:
        documents.add(found.knows(call.traits))
        if documents.calls_since_vanished:
            return False
        return detector.add(1.0 - found.adjust(call.score, call.traits), 1.0, call.question)

    return add


def plain(calls: Iterator[Scored]) -> Callable[[Scored], bool]:
    """Watch the scores themselves."""
    learned = list(islice(calls, LEARNED))
    detector = _detector(
        Distribution.of([each.score for each in learned], questions=[each.question for each in learned]), 0.0
    )
    return lambda call: detector.add(1.0 - call.score, 1.0, call.question)


def _detector(found: Distribution, gate: float) -> Detector:
    bound = 1.0 - baseline_bound(found, ALERT.direction)
    return Detector(bound, ALERT.mean_calls_between_false_alarms, ALERT.calls_in_batch, 0.0, gate)


def run_lengths(stream: Stream, watch: Watch, *, runs: int, most: int, worse: float = USUAL) -> list[int]:
    """Calls until an alarm in each run, after a share of *worse* rejected answers followed the baseline's."""
    found: list[int] = []
    for run in range(runs):
        share = [USUAL]
        calls = stream(random.Random(SEED + run), partial(share.__getitem__, 0))
        add = watch(calls)
        share[0] = worse
        found.append(next((at for at, call in enumerate(islice(calls, most), 1) if add(call)), most))
    return found


def labelled(path: Path) -> list[Scored]:
    """The labelled calls of a file that have a consistency."""
    return [
        Scored(call.value("consistency"), CallTraits.of(call.call), call.call.query or "", call.bad)
        for call in asyncio.run(judge_all(path))
        if not math.isnan(call.value("consistency"))
    ]


def by_question(calls: Sequence[Scored]) -> list[list[Scored]]:
    """The calls of each question."""
    found: defaultdict[str, list[Scored]] = defaultdict(list)
    for each in calls:
        found[each.question].append(each)
    return list(found.values())


def streams(sets: dict[str, list[Scored]]) -> dict[str, Stream]:
    """Every kind of traffic, by its name in the table."""
    first, second = (sets[name] for name in SETS)
    questions = by_question(first)
    random.Random(SEED).shuffle(questions)
    found: dict[str, Stream] = {name: in_turn([Topic(calls, calls)], 1) for name, calls in sets.items()}

    def topics(ordered: Sequence[list[Scored]], count: int, size: int) -> list[Topic]:
        parts = [chain.from_iterable(ordered[at * size : (at + 1) * size]) for at in range(count)]
        return [Topic(list(part), first) for part in parts]

    by_mean = sorted(questions, key=lambda calls: fmean(each.score for each in calls))
    halves, fifths = topics(by_mean, 2, len(by_mean) // 2), topics(by_mean, 5, len(by_mean) // 5)
    kinds = {
        "2 topics of 20 questions": topics(questions, 2, 20),
        "2 topics of 5 questions": topics(questions, 2, 5),
        "5 topics of 20 questions": topics(questions, 5, 20),
        "halves by mean score": halves,
        "fifths by mean score": fifths,
        "two sets": [Topic(first, first), Topic(second, second)],
    }
    for name, parts in kinds.items():
        for turn in TURNS:
            found[f"{name}, turns of {turn:,}"] = in_turn(parts, turn)
    for length in (1_000, 4_000):
        found[f"halves by mean score, a wave of {length:,}"] = in_a_wave(halves[0], halves[1], length)
    whole = Topic(first, first)
    found["a question five times over 40 calls"] = repeated(whole, 5, 40)
    found["20 rephrasings of a question in a row"] = repeated(whole, 20, 20, rephrased=True)
    return found


def main() -> None:
    """Simulate every kind of traffic."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40, help=f"five times as many for alarms within {EARLY:,} calls")
    parser.add_argument("--only", default="", help="kinds of traffic with these words in their names")
    asked = parser.parse_args()
    folder = os.environ.get("RAGTRACE_LABELLED_DATA")
    if not folder:
        raise SystemExit("set RAGTRACE_LABELLED_DATA to the folder with the labelled calls")
    began = time.monotonic()
    sets = {name: labelled(Path(folder) / f"{name}.json.gz") for name in SETS}
    print(f"Scored calls until an alarm, {asked.runs} runs cut off at {CAP:,}; a baseline of {LEARNED:,} calls\n")
    print(f"| traffic | unadjusted: mean run | mean run | median | within {EARLY:,} | 5 to 25 % | 5 to 15 % |")
    for name, stream in streams(sets).items():
        if asked.only not in name:
            continue
        before = run_lengths(stream, plain, runs=asked.runs, most=CAP)
        after = run_lengths(stream, adjusted, runs=asked.runs, most=CAP)
        short = run_lengths(stream, adjusted, runs=5 * asked.runs, most=EARLY + 1)
        told = [run_lengths(stream, adjusted, runs=asked.runs, most=CAP, worse=worse) for worse in (0.25, 0.15)]
        early = fmean(each <= EARLY for each in short)
        print(
            f"| {name} | {fmean(before):,.0f} | {fmean(after):,.0f} | {median(after):,.0f} | {early:.1%} | "
            + " | ".join(f"{fmean(each):,.0f}" for each in told)
            + " |",
            flush=True,
        )
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

"""What documents and lengths usually do to a score, learned from the calls of a baseline, is subtracted from it."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from ragtrace.core.types import Document, RagCall
from ragtrace.estimates import Adjustment, CallTraits, Distribution, baseline_bound
from ragtrace.estimates.adjustment import FEWEST_CALLS, Excess, KnownDocuments, block_factor


def learned(scores: list[float], traits: list[CallTraits]) -> Adjustment:
    """From calls of the same weight with different questions."""
    return Adjustment.learn(scores, traits, weights=[1.0] * len(scores), questions=range(len(scores)))


def topics(calls: int, difference: float, turn: int, seed: int = 1) -> tuple[list[float], list[CallTraits]]:
    """Calls about ten documents of each of two topics in turn, whose mean scores differ."""
    rng = random.Random(seed)
    scores: list[float] = []
    traits: list[CallTraits] = []
    for number in range(calls):
        topic = number // turn % 2
        scores.append(min(1.0, max(0.0, rng.gauss(0.75 - difference * (topic - 0.5), 0.1))))
        traits.append(CallTraits(10 * topic + rng.randrange(10), 1000))
    return scores, traits


def test_a_document_is_known_by_its_id_or_by_its_text() -> None:
    """Without documents the question takes their place; the length is that of all documents."""
    named = RagCall("q?", (Document("one", id="a"), Document("three")), "x")
    renamed, unnamed = RagCall("q?", (Document("else", id="a"),), "x"), RagCall("p?", (Document("one"),), "x")
    assert CallTraits.of(named)[:2] == (CallTraits.of(renamed).document, 8)
    assert CallTraits.of(named).text == CallTraits.of(unnamed).document == CallTraits.of(unnamed).text
    assert CallTraits.of(unnamed) == CallTraits.of(RagCall("r?", (Document("one"),), "x"))
    assert CallTraits.of(unnamed).document != CallTraits.of(named).document
    for contexts in ((), None):
        assert CallTraits.of(RagCall("q?", contexts, "x")) == CallTraits.of(RagCall("q?", contexts, "y"))
        assert CallTraits.of(RagCall("q?", contexts, "x")) != CallTraits.of(RagCall("p?", contexts, "x"))


def test_the_difference_between_topics_is_subtracted() -> None:
    """Of the adjusted scores of two topics the means are nearly equal, and so is that of the baseline."""
    scores, traits = topics(2000, 0.2, 300)
    found = learned(scores, traits)
    scores, traits = topics(2000, 0.2, 1000, seed=2)
    adjusted = [found.adjust(score, each) for score, each in zip(scores, traits, strict=True)]
    assert fmean(scores[:1000]) - fmean(scores[1000:]) > 0.19
    assert abs(fmean(adjusted[:1000]) - fmean(adjusted[1000:])) < 0.02
    assert found.distribution.mean == pytest.approx(fmean(adjusted), abs=0.01)


def test_a_document_with_a_new_id_is_known_by_its_text() -> None:
    """Not by a text that several documents have; of ids that were exchanged, the text counts."""
    scores, traits = topics(2000, 0.2, 300)
    found = learned(scores, [each._replace(text=1_000 + each.document) for each in traits])
    assert found.adjust(0.5, CallTraits(7_777, 1000, 1_003)) == found.adjust(0.5, CallTraits(3, 1000)) < 0.45
    assert found.adjust(0.5, CallTraits(3, 1000, 1_013)) == found.adjust(0.5, CallTraits(13, 1000)) > 0.55
    assert (found.knows(CallTraits(7_777, 1000, 1_003)), found.knows(CallTraits(7_777, 1000, 9_999))) == (True, False)
    of_one_text = learned(scores, [each._replace(text=1_000) for each in traits])
    assert not of_one_text.knows(CallTraits(7_777, 1000, 1_000))


def test_known_documents_vanish_where_they_are_rarer_than_they_ever_were() -> None:
    """Within 20 calls of a small index; a topic about which few documents are known is no new index."""
    scores, traits = topics(2000, 0.2, 300)
    small = KnownDocuments(learned(scores, traits).least_known)
    for known, vanished in ((True, 0), (False, 20)):
        for _ in range(100):
            assert small.calls_since_vanished == 0 or not known
            small.add(known)
        assert (small.calls_since_vanished > 0) == (vanished > 0)
    assert small.calls_since_vanished == 100
    for _ in range(49):
        small.add(True)
    assert small.calls_since_vanished == 149
    for _ in range(1):
        small.add(True)
    assert small.calls_since_vanished == 0
    one_topic = [each if each.document < 10 else CallTraits(100 + n, 1000) for n, each in enumerate(traits)]
    assert learned(scores, one_topic).least_known == (0, 0)
    other = KnownDocuments((0, 0))
    for _ in range(200):
        other.add(False)
    assert other.calls_since_vanished == 0


def test_a_question_that_comes_again_counts_once_in_ten_calls_as_in_the_detector() -> None:
    """In the gate, and in the share of the calls that count as evidence; sampled calls count by their weights."""
    scores, traits = topics(2000, 0.2, 300)

    def learn(weight: float, different: int) -> Adjustment:
        weights = [weight if call % 2 else 1.0 for call in range(2000)]
        asked = [call % different for call in range(2000)]
        return Adjustment.learn(scores, traits, weights=weights, questions=asked)

    assert learn(1.0, 2000).counted == 1.0
    assert learn(1.0, 5).counted == pytest.approx(5 / 15, abs=0.01)
    assert learn(1.0, 5).gate_below > 0.0
    assert learn(4.0, 2000).counted == pytest.approx(5 / 8)
    assert len(learn(1.0, 5).course) == 100


def test_many_documents_with_few_calls_do_not_leave_a_part_of_the_difference() -> None:
    """Each of 75 documents of a topic has 13 calls: their errors cancel out, and do not all point to the same side."""
    left: list[float] = []
    for seed in range(5):
        rng = random.Random(seed)

        def calls(topic: int, count: int, rng: random.Random = rng) -> list[tuple[float, CallTraits]]:
            documents = [CallTraits(100 * topic + rng.randrange(75), 1000) for _ in range(count)]
            return [(min(1.0, max(0.0, rng.gauss(0.6 - 0.2 * topic, 0.2))), each) for each in documents]

        scores, traits = zip(*calls(0, 1000), *calls(1, 1000), strict=True)
        found = learned(list(scores), list(traits))
        high, low = (fmean(found.adjust(score, each) for score, each in calls(topic, 3000)) for topic in (0, 1))
        left.append(high - low)
    assert abs(fmean(left)) < 0.02, left


def test_a_document_with_too_few_calls_for_its_mean_to_tell_has_no_effect() -> None:
    """Where documents differ little, a mean of some calls is a worse guess than none; that of many calls is better."""
    rng = random.Random(8)
    often = [CallTraits(topic, 100) for topic in (1, 2) for _ in range(900)]
    seldom = [CallTraits(10 + number % 20, 100) for number in range(200)]
    scores = [rng.gauss(0.5 + (0.04 if each.document == 1 else -0.04), 0.15) for each in (*often, *seldom)]
    found = learned([min(1.0, max(0.0, score)) for score in scores], [*often, *seldom])
    assert {document for document, effect in found.document_effects.items() if effect} == {1, 2}
    assert found.document_effects[1] - found.document_effects[2] == pytest.approx(0.08, abs=0.02)


def test_the_length_of_the_contexts_is_allowed_for() -> None:
    """Where answers from long contexts score lower, a long call is compared with long ones."""
    rng = random.Random(3)
    lengths = [rng.randrange(500, 8000) for _ in range(2000)]
    scores = [min(1.0, max(0.0, rng.gauss(0.9 - length / 20_000, 0.05))) for length in lengths]
    found = learned(scores, [CallTraits(number, length) for number, length in enumerate(lengths)])
    assert found.adjust(0.55, CallTraits(9_999, 7_000)) == pytest.approx(
        found.adjust(0.85, CallTraits(9_998, 1_000)), abs=0.03
    )
    assert len(found.length_effects) == len(found.lengths) + 1 == 8


def test_what_documents_do_not_tell_is_not_subtracted() -> None:
    """Scores that do not depend on the document stay as they are, and an unknown document changes nothing."""
    rng = random.Random(4)
    found = learned([rng.random() for _ in range(2000)], [CallTraits(rng.randrange(50), 100) for _ in range(2000)])
    assert all(abs(found.adjust(0.5, CallTraits(document, 100)) - 0.5) < 0.06 for document in range(50))
    assert found.adjust(0.5, CallTraits(4_000, 100)) == pytest.approx(0.5, abs=0.01)


def test_a_few_bad_answers_are_no_difficult_document() -> None:
    """A document with fewer calls than it takes to tell has no effect."""
    scores, traits = topics(2000, 0.2, 300)
    rare = CallTraits(77, 1000)
    found = learned([*scores, *[0.0] * (FEWEST_CALLS - 1)], [*traits, *[rare] * (FEWEST_CALLS - 1)])
    assert found.document_effects[77] == 0.0
    assert found.adjust(0.0, rare) < 0.02


def test_effects_of_the_baselines_own_calls_leave_the_call_out() -> None:
    """Otherwise a document with few calls would explain their scores, and the baseline would look too even."""
    rng = random.Random(5)
    scores = [rng.random() for _ in range(2000)]
    found = learned(scores, [CallTraits(number // FEWEST_CALLS, 100) for number in range(2000)])
    assert found.distribution.variance == pytest.approx(Distribution.of(scores).variance, rel=0.03)


def test_calls_in_a_row_that_are_alike_count_as_fewer() -> None:
    """Runs of a hundred alike calls make the mean as uncertain as a hundredth of the calls would."""
    rng = random.Random(6)
    alone = [rng.random() for _ in range(2000)]
    assert block_factor(alone) < 2.5
    runs = [level for _ in range(20) for level in [rng.random()] * 100]
    assert block_factor(runs) > 50
    assert block_factor([0.5] * 2000) == 1.0
    traits = [CallTraits(number, 1) for number in range(2000)]
    assert learned(runs, traits).distribution.effective_n < learned(alone, traits).distribution.effective_n / 20


def test_the_gate_is_a_multiple_of_what_the_baseline_shows() -> None:
    """Twice, and more where calls in a row are alike; on both sides. A repeated question counts once."""
    scores = [0.9] * 900 + [0.4] * 100 + [0.9] * 1000
    traits = [CallTraits(number, 1) for number in range(2000)]
    found = learned(scores, traits)
    excess, largest = Excess(1.0 - baseline_bound(found.distribution, "below")), 0.0
    for score in scores:
        excess.add(1.0 - score)
        largest = max(largest, excess.value)
    assert block_factor(scores) > 5
    assert found.gate("below") == pytest.approx(2.0 * block_factor(scores) ** 0.25 * largest)
    assert found.gate("below") > 10 * found.gate("above") / 9
    again = Adjustment.learn(
        scores, traits, weights=[1.0] * 2000, questions=[0 if 900 <= at < 1000 else at + 1 for at in range(2000)]
    )
    assert again.gate("below") < found.gate("below") / 5


def test_one_document_and_one_length_are_no_topics() -> None:
    """Then there is nothing to adjust for."""
    found = learned([0.5, 0.9] * 1000, [CallTraits(1, 10)] * 2000)
    assert (found.adjust(0.3, CallTraits(1, 10)), found.adjust(0.3, CallTraits(2, 99))) == (0.3, 0.3)

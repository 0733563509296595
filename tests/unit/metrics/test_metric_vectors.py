"""Known labels, known numbers: the metrics of the main reply on examples worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragtrace.core.labels import ChunkLabel
from ragtrace.core.types import Judgement, Metric, Score, Unscored
from ragtrace.metrics import Formula, average_precision_at, combined_quality, precision_at
from ragtrace.metrics.chunks import discounted_mean
from ragtrace.metrics.quality import letter_grade, quality_harmonic, quality_minimum, quality_weighted
from tests.support.labelled import (
    SHARE_METRICS,
    asked,
    cited,
    graded,
    measure,
    outcome,
    scored,
    sentences,
    stated,
)

CALL = asked("a chunk", "another chunk")


@pytest.mark.parametrize(
    ("labels", "faithful", "noncontradicting"),
    [
        ("SC", 0.5, 0.5),
        ("C", 0.0, 0.0),
        ("SS", 1.0, 1.0),
        ("S", 1.0, 1.0),
        ("SF", 0.5, 1.0),
        ("SFCS", 0.5, 0.75),
        ("FF", 0.0, 1.0),
        ("PPS", 1 / 3, 1.0),
        ("SSSSCCPF", 0.5, 0.75),
    ],
)
def test_shares_of_statements(labels: str, faithful: float, noncontradicting: float) -> None:
    """Faithfulness counts what is supported, noncontradiction what is not contradicted; the others are the rest."""
    found = [outcome(name, CALL, stated(labels)) for name in SHARE_METRICS]
    assert found == pytest.approx([faithful, noncontradicting, 1 - faithful, 1 - noncontradicting], abs=1e-12)


@pytest.mark.parametrize(
    ("labels", "expected"), [("S", 0.0), ("SSSS", 0.0), ("SSSSSSSSSF", 1.0), ("SP", 1.0), ("SC", 1.0), ("SSSS?", 0.0)]
)
def test_one_unsupported_statement_makes_an_answer_hallucinated(labels: str, expected: float) -> None:
    """Of whatever kind it is, and however many are supported; one that was not judged is none."""
    result = scored("hallucinated", CALL, stated(labels))
    assert (result.value, result.label) == (expected, "fail" if expected else "pass")
    assert result.higher_is_better is False


@pytest.mark.parametrize(("contexts", "expected"), [((), 1.0), (("", " \n"), 1.0), (("", "a chunk"), 0.0)])
@pytest.mark.parametrize("support", ["S", "F", ""])
def test_an_answer_given_without_context(contexts: tuple[str, ...], expected: float, support: str) -> None:
    """Nothing but blank chunks is nothing; what the labels say of support plays no part."""
    result = scored("answered_without_context", asked(*contexts), stated(support))
    assert (result.value, result.label) == (expected, "fail" if expected else "pass")
    assert result.higher_is_better is False


def test_statements_are_counted_by_label() -> None:
    """The counts behind the share are published, and faithfulness beside noncontradiction."""
    result = scored("faithfulness_noncontradiction", CALL, stated("SFCPS"))
    counts = {"statements": 5, "supported": 2, "contradicted": 1, "partial": 1, "not_found": 1, "unjudged": 0}
    assert counts.items() <= result.attributes.items()
    assert result.attributes["faithfulness"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("relevant", "expected"), [("ysn", 2 / 3), ("yy", 1.0), ("n", 0.0), ("yyn", 2 / 3), ("ynnn", 0.25)]
)
def test_relevant_statements_and_sentences(relevant: str, expected: float) -> None:
    """What answers and what is useful background both count."""
    judgement = replace(stated("S" * len(relevant), relevant), sentences=sentences(relevant))
    assert outcome("answer_relevancy", CALL, judgement) == pytest.approx(expected, abs=1e-12)
    result = scored("answer_relevancy_sentences", CALL, judgement)
    assert result.value == pytest.approx(expected, abs=1e-12)
    assert result.attributes["sentences"] == len(relevant)


def test_filler_is_no_sentence() -> None:
    """A courtesy neither helps nor harms."""
    judgement = replace(stated("S"), sentences=sentences("fynf"))
    result = scored("answer_relevancy_sentences", CALL, judgement)
    assert result.value == 0.5
    assert {"sentences": 2, "relevant": 1, "filler": 2}.items() <= result.attributes.items()


@pytest.mark.parametrize(("rating", "expected"), [(0, 0.0), (1, 1 / 3), (2, 2 / 3), (3, 1.0)])
def test_the_rating_is_a_third_a_step(rating: int, expected: float) -> None:
    """Four labels on [0, 1]."""
    judgement = replace(stated("S"), answer_rating=rating)
    assert outcome("answer_relevancy_rating", CALL, judgement) == pytest.approx(expected)


def test_relevance_of_unit_scores() -> None:
    """The plain mean, and one in which each rank weighs 0.9 of the one before."""
    scores = [0.9, 0.8, 0.3, 0.2]
    assert discounted_mean(scores) == pytest.approx(0.55, abs=1e-12)
    assert discounted_mean(scores, 0.9) == pytest.approx(2.0088 / 3.439, abs=1e-12)


def test_relevance_of_graded_chunks() -> None:
    """A grade is worth a third a step; relevant from 2 on; umbrela keeps the scale of grades."""
    call, judgement = graded([3, 2, 1, 0])
    assert outcome("context_relevance", call, judgement) == pytest.approx(0.5)
    weighted = (1 + 2 / 3 * 0.9 + 1 / 3 * 0.81) / (1 + 0.9 + 0.81 + 0.729)
    assert outcome("context_relevance_weighted", call, judgement) == pytest.approx(weighted)
    assert outcome("contextual_accuracy", call, judgement) == 0.5
    result = scored("umbrela", call, judgement)
    assert result.value == 1.5
    assert result.attributes["grades"] == (3.0, 2.0, 1.0, 0.0)
    assert {"chunks": 4, "relevant_chunks": 2, "unjudged": 0}.items() <= result.attributes.items()


def test_accuracy_over_four_chunks() -> None:
    """Three of four are relevant."""
    call, judgement = graded([2, 1, 3, 2])
    assert outcome("contextual_accuracy", call, judgement) == 0.75


@pytest.mark.parametrize(
    ("grades", "k", "precision", "average", "reciprocal"),
    [
        ([1, 3, 0], 3, 1 / 3, 0.5, 0.5),
        ([3, 3, 3], 3, 1.0, 1.0, 1.0),
        ([0, 0, 1], 3, 0.0, 0.0, 0.0),
        ([3, 0, 2, 0, 3], 5, 0.6, (1 + 2 / 3 + 3 / 5) / 3, 1.0),
        ([3, 0, 2, 0, 3], 3, 2 / 3, (1 + 2 / 3) / 2, 1.0),
        ([0, 2], 5, 0.2, 0.5, 0.5),
        ([0, 0, 0, 0, 0, 2], 5, 0.0, 0.0, 1 / 6),
        ([], 5, 0.0, 0.0, 0.0),
    ],
)
def test_ranks(grades: list[int], k: int, precision: float, average: float, reciprocal: float) -> None:
    """K divides also where fewer were retrieved; the reciprocal rank looks past K."""
    call, judgement = graded(grades)
    assert outcome(precision_at(k), call, judgement) == pytest.approx(precision, abs=1e-12)
    assert outcome(average_precision_at(k), call, judgement) == pytest.approx(average, abs=1e-12)
    result = scored("reciprocal_rank", call, judgement)
    assert result.value == pytest.approx(reciprocal, abs=1e-12)
    assert result.attributes["retrieved"] == len(grades)


def test_what_ranks_publish() -> None:
    """K, what was retrieved, and what of the first K is relevant."""
    result = scored(precision_at(3), *graded([1, 3, 0, 3]))
    assert {"k": 3, "retrieved": 4, "relevant": 1}.items() <= result.attributes.items()


def test_citations() -> None:
    """Precision is a mean over passages, recall one over parts; an uncited part is 0."""
    judgement = cited({0: "1", 1: "0"}, {0: "h"}, {})
    values = [outcome(name, CALL, judgement) for name in ("citation_precision", "citation_recall", "citation_f1")]
    assert values == pytest.approx([0.375, 1 / 3, 6 / 17], abs=1e-12)
    result = scored("citation_f1", CALL, judgement)
    assert {"parts": 3, "cited_passages": 2, "uncited_parts": 1}.items() <= result.attributes.items()


@pytest.mark.parametrize(
    ("chunk_labels", "support", "evidence", "expected"),
    [
        ([False, False], "S", (), 0.0),
        ([True, False], "S", (), 0.5),
        ([False, False], "C", (1,), 0.5),
        ([True, False], "C", (0,), 0.5),
        ([False, False], "F", (1,), 0.0),
        ([None, True], "C", (0,), 1.0),
    ],
)
def test_contradicted_contexts(
    chunk_labels: list[bool | None], support: str, evidence: tuple[int, ...], expected: float
) -> None:
    """By the chunk's own label, or because a contradicted statement names it as evidence."""
    judgement = stated(support)
    claims = tuple(replace(claim, evidence=evidence) for claim in judgement.claims or ())
    judgement = replace(judgement, claims=claims, chunks=tuple(ChunkLabel(1, label) for label in chunk_labels))
    result = scored("context_contradiction", CALL, judgement)
    assert result.value == expected
    assert result.attributes["contexts"] == "retrieved"
    assert result.attributes["distinct_contexts"] == 2


def component(name: str, value: float | None) -> Metric:
    """A stand-in for a component of quality."""
    result = Unscored("no_contexts") if value is None else Score(value)
    return Formula(name, "1", lambda call, judgement: result, frozenset())


@pytest.mark.parametrize(
    ("values", "weighted", "harmonic", "minimum", "grade"),
    [
        ((0.95, 0.90, 0.85), 0.9, 3 / (1 / 0.95 + 1 / 0.9 + 1 / 0.85), 0.85, "A"),
        ((0.80, 0.20, 0.70), 0.53, 3 / (1 / 0.8 + 1 / 0.2 + 1 / 0.7), 0.20, "F"),
        ((0.0, 1.0, 1.0), 0.7, 0.0, 0.0, "C"),
        ((1.0, 1.0, 1.0), 1.0, 1.0, 1.0, "A"),
        ((1.0, 1.0, -0.5), 0.7, 0.0, 0.0, "C"),
    ],
)
def test_quality(values: tuple[float, ...], weighted: float, harmonic: float, minimum: float, grade: str) -> None:
    """Three means of three components, each brought into [0, 1] first; the letter follows the weighted one."""
    names = ("context_relevance", "faithfulness", "answer_relevancy")
    parts = [component(name, value) for name, value in zip(names, values, strict=True)]
    result = quality_weighted.compute(CALL, Judgement(), parts=parts)
    assert isinstance(result, Score)
    assert result.value == pytest.approx(weighted, abs=1e-9)
    assert result.label == grade
    others = [other.compute(CALL, Judgement(), parts=parts) for other in (quality_harmonic, quality_minimum)]
    assert [other.value for other in others if isinstance(other, Score)] == pytest.approx([harmonic, minimum], abs=1e-9)


def test_quality_of_real_labels() -> None:
    """The components are computed from the same judgement."""
    call, judgement = graded([3, 0])
    judgement = replace(judgement, claims=stated("SF", "yy").claims)
    result = scored("quality_weighted", call, judgement)
    assert result.value == pytest.approx(0.3 * 0.5 + 0.4 * 0.5 + 0.3 * 1.0)
    assert result.attributes["faithfulness"] == 0.5
    assert outcome("quality_minimum", call, judgement) == 0.5


@pytest.mark.parametrize(
    ("value", "letter"),
    [
        (1.0, "A"), (0.9, "A"), (0.9 - 1e-12, "A"), (0.8999, "B"), (0.8, "B"), (0.7, "C"), (0.6, "D"), (0.5999, "F"),
        (0.0, "F"),
    ],
)  # fmt: skip
def test_letters(value: float, letter: str) -> None:
    """The unrounded value decides, with no more slack than arithmetic needs."""
    assert letter_grade(value) == letter


def test_another_relevancy_in_quality() -> None:
    """A metric of a caller's choice stands in the third place; what may lack a score is left out by name only."""
    similarity = component("answer_relevancy_similarity", None)
    call, judgement = graded([3])
    judgement = replace(judgement, claims=stated("S").claims)
    strict = combined_quality("weighted", name="mine", relevancy=similarity)
    assert measure(strict, call, judgement).attributes["missing"] == ("answer_relevancy_similarity",)
    lenient = combined_quality("weighted", name="mine", relevancy=similarity, optional=["answer_relevancy_similarity"])
    result = scored(lenient, call, judgement)
    assert result.value == pytest.approx(1.0)
    assert result.attributes["components"] == ("context_relevance", "faithfulness")

"""What holds between the metrics whatever a judge says, over random calls and labels."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragtrace.core.labels import ChunkLabel, Citation, Claim, Sentence
from ragtrace.core.types import Document, Judgement, RagCall, Score, Unscored
from ragtrace.metrics import precision_at, registry
from tests.support.labelled import (
    CHUNK_METRICS,
    CITATION_METRICS,
    CITED,
    CLAIM_METRICS,
    QUALITY_METRICS,
    RANK_METRICS,
    RELEVANCE,
    RELEVANCY_METRICS,
    SENTENCE,
    SHARE_METRICS,
    SUPPORT,
    measure,
    scored,
)

ALL = (
    *CLAIM_METRICS, *RELEVANCY_METRICS, *CHUNK_METRICS, *RANK_METRICS, *QUALITY_METRICS, *CITATION_METRICS,
    "context_contradiction", "consistency", "answered", "answered_without_context",
)  # fmt: skip
SLACK = 1e-9
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
BLANKS = st.sampled_from(["", " ", "\n\t"])

texts = st.sampled_from(["Where?", "Here.", "A chunk.", "A  chunk.", "Another."])
# All combinations, one of which is drawn at once: drawn field by field, a case takes Hypothesis ten times as long.
EVIDENCE: tuple[tuple[int, ...], ...] = ((), (0,), (6,), (0, 1), (2, 1), (3, 3), (5, 6), (0, 1, 2), (4, 0, 6))
CLAIMS = [
    Claim("claim", 0, 5, support, checkable=checkable, relevant=relevant, evidence=evidence)
    for support, checkable, relevant, evidence in product(SUPPORT.values(), (True, False), RELEVANCE.values(), EVIDENCE)
]
claims = st.sampled_from(CLAIMS)
sentences = st.sampled_from([Sentence("s", 0, 1, relevant) for relevant in SENTENCE.values()])
citations = st.sampled_from(
    [Citation(*each) for each in product(range(5), (None, *range(7)), CITED.values(), ("[1]", "[7]", ""))]
)


@st.composite
def judged(draw: st.DrawFn, *, usual: bool = False) -> tuple[RagCall, Judgement]:
    """A call and labels that fit it; *usual*: with a query, an answer and chunks, and no label missing."""
    contexts = draw(st.lists(texts if usual else texts | BLANKS, min_size=int(usual), max_size=5))
    missing = st.nothing() if usual else st.none()
    grades = st.integers(0, 3) | missing
    chunks = [ChunkLabel(draw(grades), draw(st.booleans() | missing)) for _ in contexts]
    documents = tuple(map(Document, contexts))
    call = RagCall(
        query=draw(texts if usual else texts | BLANKS | st.none()),
        contexts=draw(st.just(documents) | missing),
        answer=draw(texts if usual else texts | BLANKS | st.none()),
    )
    labelled = st.sampled_from([claim for claim in CLAIMS if claim.support and claim.relevant]) if usual else claims
    judgement = Judgement(
        claims=draw(st.lists(labelled, max_size=7).map(tuple) | missing),
        answer_label=draw(st.sampled_from(["answered", "abstained"]) | missing),
        consistency=draw(st.floats() | missing),
        sentences=draw(st.lists(sentences, max_size=5).map(tuple) | missing),
        chunks=draw(st.just(tuple(chunks)) | missing),
        citations=draw(st.lists(citations, max_size=5).map(tuple) | missing),
        parts=draw(st.integers(0, 6) | missing),
        answer_rating=draw(st.integers(0, 3) | missing),
        reasons={} if usual else draw(st.dictionaries(st.sampled_from(["", "claims"]), st.just("refused"), max_size=1)),
    )
    return call, judgement


@relaxed
@given(judged())
def test_every_result_is_a_number_in_range_or_a_reason(case: tuple[RagCall, Judgement]) -> None:
    """No labels make a metric raise, leave its range, or say nothing."""
    for name in ALL:
        metric, result = registry.get(name), measure(name, *case)
        if isinstance(result, Score):
            assert math.isfinite(result.value)
            assert metric.range[0] <= result.value <= metric.range[1], name
        else:
            assert result.status in ("not_applicable", "judge_error")


@relaxed
@given(judged())
def test_complements_sum_to_one(case: tuple[RagCall, Judgement]) -> None:
    """Both have a score, or both have the same reason for none."""
    for one, other in (("faithfulness", "hallucination"), ("faithfulness_noncontradiction", "contradiction")):
        first, second = measure(one, *case), measure(other, *case)
        if isinstance(first, Score) and isinstance(second, Score):
            assert first.value + second.value == pytest.approx(1, abs=1e-12)
        else:
            assert isinstance(first, Unscored)
            assert isinstance(second, Unscored)
            assert first.reason == second.reason


@relaxed
@given(judged())
def test_an_answer_hallucinates_if_any_statement_lacks_support(case: tuple[RagCall, Judgement]) -> None:
    """1 exactly where the share of unsupported statements is above 0; without a share, the same reason."""
    share, any_of_it = measure("hallucination", *case), measure("hallucinated", *case)
    assert share.attributes == any_of_it.attributes
    if isinstance(share, Score) and isinstance(any_of_it, Score):
        assert any_of_it.value == float(share.value > 0)
        assert share.label == any_of_it.label == scored("faithfulness", *case).label
    else:
        assert getattr(share, "reason", "") == getattr(any_of_it, "reason", "")


@relaxed
@given(judged())
def test_an_answer_without_context_is_an_answer(case: tuple[RagCall, Judgement]) -> None:
    """Whatever is scored has an answer, and its value is that no chunk has a text, whatever the labels of support."""
    call, judgement = case
    result = measure("answered_without_context", call, judgement)
    if isinstance(result, Score):
        assert (call.answer or "").strip()
        assert call.contexts is not None
        assert result.value == float(not any(document.text.strip() for document in call.contexts))


@relaxed
@given(judged())
def test_what_is_supported_is_not_contradicted(case: tuple[RagCall, Judgement]) -> None:
    """Faithfulness is at most noncontradiction, contradiction at most hallucination."""
    faithful, noncontradicting, hallucinated, contradicted = (measure(name, *case) for name in SHARE_METRICS)
    if isinstance(noncontradicting, Score) and isinstance(contradicted, Score):
        assert isinstance(faithful, Score)
        assert isinstance(hallucinated, Score)
        assert faithful.value <= noncontradicting.value + SLACK
        assert contradicted.value <= hallucinated.value + SLACK


@relaxed
@given(judged(usual=True))
def test_means_of_quality_are_in_order(case: tuple[RagCall, Judgement]) -> None:
    """The minimum, the harmonic mean and the plain mean, from low to high."""
    minimum, harmonic = measure("quality_minimum", *case), measure("quality_harmonic", *case)
    if isinstance(minimum, Score) and isinstance(harmonic, Score):
        parts = [scored(name, *case).value for name in ("context_relevance", "faithfulness", "answer_relevancy")]
        assert minimum.value <= harmonic.value + SLACK
        assert harmonic.value <= sum(parts) / 3 + SLACK
        assert minimum.value - SLACK <= scored("quality_weighted", *case).value <= max(parts) + SLACK


@relaxed
@given(judged(), st.integers(0, 1))
def test_an_unrelated_chunk_at_the_end_changes_no_reciprocal_rank(case: tuple[RagCall, Judgement], grade: int) -> None:
    """What comes after the first hit, or is no hit, does not move it."""
    call, judgement = case
    if call.contexts is None or judgement.chunks is None:
        return
    longer = replace(call, contexts=(*call.contexts, Document("Something else.")))
    graded = replace(judgement, chunks=(*judgement.chunks, ChunkLabel(grade, False)))
    before, after = measure("reciprocal_rank", call, judgement), measure("reciprocal_rank", longer, graded)
    assert getattr(before, "value", None) == getattr(after, "value", None)
    assert getattr(before, "reason", None) == getattr(after, "reason", None)


@relaxed
@given(judged())
def test_a_first_rank_that_hits_makes_all_of_the_first_place(case: tuple[RagCall, Judgement]) -> None:
    """Precision at 1 and the reciprocal rank agree on whether the first chunk is relevant."""
    precision, reciprocal = measure(precision_at(1), *case), measure("reciprocal_rank", *case)
    if isinstance(precision, Score) and isinstance(reciprocal, Score):
        assert (precision.value == 1) is (reciprocal.value == 1)


@relaxed
@given(judged())
def test_umbrela_is_context_relevance_on_another_scale(case: tuple[RagCall, Judgement]) -> None:
    """One is three times the other, or neither has a score."""
    grade, relevance = measure("umbrela", *case), measure("context_relevance", *case)
    if isinstance(grade, Score) and isinstance(relevance, Score):
        assert grade.value == pytest.approx(3 * relevance.value, abs=SLACK)
    else:
        assert type(grade) is type(relevance)


@relaxed
@given(judged())
def test_f1_lies_between_precision_and_recall(case: tuple[RagCall, Judgement]) -> None:
    """All three of citations have a score, or none has."""
    results = [measure(name, *case) for name in CITATION_METRICS]
    values = [result.value for result in results if isinstance(result, Score)]
    if values:
        precision, recall, f1 = values
        assert min(precision, recall) - SLACK <= f1 <= max(precision, recall) + SLACK


@relaxed
@given(judged())
def test_the_order_of_statements_means_nothing(case: tuple[RagCall, Judgement]) -> None:
    """Shares are of a set."""
    call, judgement = case
    turned = replace(judgement, claims=None if judgement.claims is None else judgement.claims[::-1])
    for name in (*CLAIM_METRICS, "answer_relevancy", "context_contradiction"):
        before, after = measure(name, call, judgement), measure(name, call, turned)
        assert getattr(before, "value", before.attributes) == getattr(after, "value", after.attributes)


@relaxed
@given(judged(usual=True))
def test_one_more_supported_statement_never_harms(case: tuple[RagCall, Judgement]) -> None:
    """Faithfulness rises with what is supported."""
    call, judgement = case
    before = measure("faithfulness", call, judgement)
    more = (*(judgement.claims or ()), Claim("claim", 0, 5, "supported", relevant="yes"))
    after = scored("faithfulness", call, replace(judgement, claims=more))
    if isinstance(before, Score):
        assert after.value >= before.value - SLACK

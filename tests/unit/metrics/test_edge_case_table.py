"""Every metric where a call lacks something: one table, a row a precondition; a number stands for any score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from ragtrace.core.labels import ChunkLabel, Citation, Claim, Entailments, Fact, Intention, Nugget, Turn
from ragtrace.core.types import Document, Judgement, RagCall, Result, Score
from ragtrace.core.unscored_reasons import status_of
from ragtrace.metrics import registry
from tests.support.labelled import (
    CHUNK_METRICS,
    CITATION_METRICS,
    CLAIM_METRICS,
    QUALITY_METRICS,
    RANK_METRICS,
    RELEVANCY_METRICS,
    sentences,
    stated,
)

CALL: Final = RagCall(
    "Where is it?",
    (Document("a chunk"), Document("another chunk")),
    "Here [1].",
    reference="It is here.",
    conversation_id="one",
    turns=(Turn("user", "Where is it?"), Turn("assistant", "Here [1].")),
)
LABELS: Final = Judgement(
    claims=stated("SF").claims,
    answer_label="answered",
    consistency=0.5,
    sentences=sentences("yn"),
    chunks=(ChunkLabel(3, False), ChunkLabel(0, False)),
    citations=(Citation(0, 0, "full", "[1]"),),
    parts=2,
    answer_rating=2,
    questions=("Where?",),
    question_cosines=(0.5,),
    noncommittal=False,
    nuggets=(Nugget("here", "vital", "support"), Nugget("now", "okay", "not_support")),
    intentions=(Intention("where", "satisfied", (0,)),),
    answer_facts=(Fact("here", "entailment"), Fact("now", "neutral")),
    reference_facts=(Fact("here", "entailment"),),
    entailments=Entailments(((True, False), (False, True)), ((True,), (False,))),
    reference_cosine=0.9,
)
"""Labels with which every metric has a score of CALL."""

FAITHFUL: Final = ("faithfulness", "hallucination")
HELD: Final = ("faithfulness_noncontradiction", "contradiction")
SIMILARITY: Final = ("answer_relevancy_similarity",)
RELEVANCY: Final = (*RELEVANCY_METRICS, *SIMILARITY)
OF_CHUNKS: Final = (*CHUNK_METRICS, *RANK_METRICS)
NUGGETS: Final = ("nugget_all", "nugget_vital", "nugget_weighted", "nugget_strict_all", "nugget_strict_vital")
NOISE: Final = ("noise_sensitivity_relevant", "noise_sensitivity_irrelevant")
FACTS: Final = ("factual_correctness_precision", "factual_correctness_recall", "factual_correctness_f1")
REFERENCE: Final = (*NOISE, *FACTS, "semantic_similarity")
ALL: Final = (
    *CLAIM_METRICS, "context_contradiction", "consistency", *RELEVANCY, *OF_CHUNKS, "answered",
    "answered_without_context", *QUALITY_METRICS,
    *CITATION_METRICS, *NUGGETS, *REFERENCE, "completeness",
)  # fmt: skip
SCORED: Final = 0.5
Expected = Mapping[tuple[str, ...], "float | str"]


def of(*groups: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for group in groups for name in group)


def one(*names: str) -> tuple[str, ...]:
    return names


DECLINED: Final = replace(
    LABELS,
    claims=(),
    answer_label="abstained",
    noncommittal=True,
    citations=(),
)
REMARKS: Final = replace(LABELS, claims=stated("", remarks=2).claims)
NO_STATEMENTS: Final = replace(LABELS, claims=())
SUPPORTED_AND_DECLINED: Final = replace(LABELS, answer_label="abstained")
BLANK: Final = (Document(" "), Document("\n"))

ROWS: Final[Mapping[str, tuple[RagCall, Judgement, Expected]]] = {
    "all is there": (CALL, LABELS, {one("hallucinated"): 1.0, one("answered_without_context"): 0.0}),
    "answer absent": (
        replace(CALL, answer=None),
        LABELS,
        {
            of(CLAIM_METRICS, RELEVANCY, CITATION_METRICS, NUGGETS, REFERENCE): "empty_answer",
            one("consistency", "context_contradiction", "answered_without_context"): "empty_answer",
            QUALITY_METRICS: "missing_component",
            one("answered"): 0.0,
        },
    ),
    "query blank": (
        replace(CALL, query=" "),
        LABELS,
        {of(RELEVANCY, OF_CHUNKS, NUGGETS, one("answered")): "empty_query", QUALITY_METRICS: "missing_component"},
    ),
    "contexts None": (
        replace(CALL, contexts=None),
        LABELS,
        {
            of(CLAIM_METRICS, OF_CHUNKS, NUGGETS, CITATION_METRICS, NOISE): "contexts_missing",
            one("consistency", "context_contradiction", "answered_without_context"): "contexts_missing",
            QUALITY_METRICS: "missing_component",
        },
    ),
    "contexts []": (
        replace(CALL, contexts=()),
        LABELS,
        {
            one("faithfulness"): 0.0,
            one("hallucination", "hallucinated", "answered_without_context"): 1.0,
            of(HELD, CHUNK_METRICS, NUGGETS, NOISE): "no_contexts",
            one("consistency", "context_contradiction"): "no_contexts",
            of(RANK_METRICS, CITATION_METRICS): 0.0,
            QUALITY_METRICS: "missing_component",
        },
    ),
    "contexts [], nothing stated": (
        replace(CALL, contexts=()),
        REMARKS,
        {
            CLAIM_METRICS: "no_claims",
            one("answered_without_context"): 1.0,
            of(CHUNK_METRICS, NUGGETS, NOISE): "no_contexts",
            one("consistency", "context_contradiction"): "no_contexts",
            of(RANK_METRICS, CITATION_METRICS): 0.0,
            QUALITY_METRICS: "missing_component",
        },
    ),
    "all chunks blank": (
        replace(CALL, contexts=BLANK),
        replace(LABELS, chunks=None),
        {
            one("faithfulness"): 0.0,
            one("hallucination", "hallucinated", "answered_without_context"): 1.0,
            of(HELD, NUGGETS, NOISE): "no_contexts",
            one("consistency", "context_contradiction"): "no_contexts",
            of(OF_CHUNKS, CITATION_METRICS): 0.0,
        },
    ),
    "no checkable statement": (
        CALL,
        REMARKS,
        {CLAIM_METRICS: "no_claims", QUALITY_METRICS: "missing_component"},
    ),
    "no statement at all": (
        CALL,
        NO_STATEMENTS,
        {CLAIM_METRICS: "no_claims", one("answer_relevancy"): "no_statements", QUALITY_METRICS: "missing_component"},
    ),
    "abstained": (
        CALL,
        DECLINED,
        {
            of(CLAIM_METRICS, RELEVANCY_METRICS, CITATION_METRICS): "abstained",
            one("consistency", "context_contradiction", "answered_without_context"): "abstained",
            of(SIMILARITY, one("answered"), NUGGETS): 0.0,
            QUALITY_METRICS: "missing_component",
        },
    ),
    "abstained, with a statement": (CALL, SUPPORTED_AND_DECLINED, {one("answered"): 0.0}),
    "abstained, with a statement, contexts []": (
        replace(CALL, contexts=()),
        SUPPORTED_AND_DECLINED,
        {
            one("faithfulness", "answered"): 0.0,
            one("hallucination", "hallucinated", "answered_without_context"): 1.0,
            of(HELD, CHUNK_METRICS, NUGGETS, NOISE): "no_contexts",
            one("consistency", "context_contradiction"): "no_contexts",
            of(RANK_METRICS, CITATION_METRICS): 0.0,
            QUALITY_METRICS: "missing_component",
        },
    ),
    "no reference": (
        replace(CALL, reference=None),
        LABELS,
        {REFERENCE: "needs_reference"},
    ),
    "no conversation": (replace(CALL, turns=None), LABELS, {one("completeness"): "needs_conversation"}),
    "no nuggets": (CALL, replace(LABELS, nuggets=()), {NUGGETS: "no_nuggets"}),
    "no vital nuggets": (
        CALL,
        replace(LABELS, nuggets=(Nugget("now", "okay", "support"),)),
        {one("nugget_vital", "nugget_strict_vital"): "no_vital_nuggets"},
    ),
    "no intentions": (CALL, replace(LABELS, intentions=()), {one("completeness"): "no_intentions"}),
    "all intentions withdrawn": (
        CALL,
        replace(LABELS, intentions=(Intention("where", "withdrawn", (0,)),)),
        {one("completeness"): "no_intentions"},
    ),
    "no citations": (CALL, replace(LABELS, citations=()), {CITATION_METRICS: "no_citations"}),
    "no questions": (CALL, replace(LABELS, questions=(), question_cosines=None), {SIMILARITY: "no_questions"}),
    "no embedder": (
        CALL,
        replace(LABELS, question_cosines=None, reference_cosine=None),
        {one(*SIMILARITY, "semantic_similarity"): "no_embedder"},
    ),
    "an embedding of zeros": (
        CALL,
        replace(
            LABELS,
            question_cosines=None,
            reference_cosine=None,
            reasons={"question_cosines": "zero_norm", "reference_cosine": "zero_norm"},
        ),
        {one(*SIMILARITY, "semantic_similarity"): "zero_norm"},
    ),
    "a cosine that is no number": (
        CALL,
        replace(LABELS, question_cosines=(0.5, float("nan")), reference_cosine=float("inf")),
        {one(*SIMILARITY, "semantic_similarity"): "non_finite"},
    ),
    "no scorer": (CALL, replace(LABELS, consistency=None), {one("consistency"): "no_scorer"}),
    "no claims in the reference": (
        CALL,
        replace(LABELS, reference_facts=(), entailments=Entailments(((True, False), (False, True)), ((), ()))),
        {one(*NOISE, "factual_correctness_recall", "factual_correctness_f1"): "no_reference_claims"},
    ),
    "no claims in the answer": (
        CALL,
        replace(LABELS, answer_facts=(), entailments=Entailments(((), ()), ((True,), (False,)))),
        {one(*NOISE, "factual_correctness_precision", "factual_correctness_f1"): "no_claims"},
    ),
    "a control item judged wrongly": (
        CALL,
        Judgement(reasons={"": "control_failed"}),
        {ALL: "control_failed", QUALITY_METRICS: "missing_component"},
    ),
}
_FAILURES: Final = (
    "unparsable", "refused", "content_filter", "truncated", "timeout", "unavailable", "ambiguous",
)  # fmt: skip


def expected(row: Expected, name: str) -> float | str:
    """What stands in the row: of several groups with the name, the last."""
    found = [value for names, value in row.items() if name in names]
    return found[-1] if found else SCORED


def outcome(name: str, call: RagCall, judgement: Judgement) -> Result:
    return registry.get(name)(call, judgement)


@pytest.mark.parametrize("situation", ROWS)
def test_all_metrics_in_a_situation(situation: str) -> None:
    """A score where the row says nothing or names a number; else exactly that reason, with its status."""
    call, judgement, row = ROWS[situation]
    found: dict[str, object] = {}
    asked: dict[str, object] = {}
    for name in ALL:
        wanted, result = expected(row, name), outcome(name, call, judgement)
        found[name] = result.value if isinstance(result, Score) else (result.reason, result.status)
        if isinstance(wanted, str):
            asked[name] = (wanted, status_of(wanted))
        elif any(name in names for names in row):
            asked[name] = wanted
        else:
            asked[name] = found[name] if isinstance(result, Score) else "any score"
    assert found == asked


@pytest.mark.parametrize("reason", _FAILURES)
def test_a_failed_reply_is_never_a_number(reason: str) -> None:
    """The failure of the judge is the reason of all metrics that rest on that reply."""
    for name in ALL:
        result = outcome(name, CALL, Judgement(reasons={"": reason}))
        assert not isinstance(result, Score), name
        assert result.reason == ("missing_component" if name in QUALITY_METRICS else reason), name
        explained = result.explanation or ""
        assert reason in (result.reason, *explained.split(": "), *explained.split()), name


@pytest.mark.parametrize(
    ("field", "touched"),
    [
        ("claims", of(CLAIM_METRICS, one("answer_relevancy"), QUALITY_METRICS)),
        ("chunks", of(OF_CHUNKS, QUALITY_METRICS, one("context_contradiction"))),
        ("citations", CITATION_METRICS),
        ("answer_label", one("answered", "answered_without_context")),
        ("answer_rating", one("answer_relevancy_rating")),
        ("nuggets", NUGGETS),
        ("intentions", one("completeness")),
        ("answer_facts", one(*NOISE, "factual_correctness_precision", "factual_correctness_f1")),
        ("reference_facts", one(*NOISE, "factual_correctness_recall", "factual_correctness_f1")),
        ("entailments", NOISE),
        ("reference_cosine", one("semantic_similarity")),
        ("question_cosines", SIMILARITY),
    ],
)
def test_a_failure_touches_only_the_metrics_of_that_reply(field: str, touched: tuple[str, ...]) -> None:
    """All others keep the score they have."""
    changes: dict[str, Any] = {field: None, "reasons": {field: "refused"}}
    judgement = replace(LABELS, **changes)
    lost = {name for name in ALL if not isinstance(outcome(name, CALL, judgement), Score)}
    assert lost == set(touched)


# --- labels that are missing ------------------------------------------------------------------------------------------

FIVE: Final = tuple(Claim("claim", 0, 5, "supported", relevant="yes") for _ in range(5))


def few(valid: int, of_all: int, good: Any, bad: Any) -> tuple[Any, ...]:
    return (*(good,) * valid, *(bad,) * (of_all - valid))


def lacking(valid: int, of_all: int) -> dict[tuple[str, ...], Judgement]:
    """For groups of metrics, labels of which so many of all are valid."""
    nuggets = few(valid, of_all, Nugget("n", "vital", "support"), Nugget("n", "vital", None))
    facts = few(valid, of_all, Fact("f", "entailment"), Fact("f", None))
    return {
        CLAIM_METRICS: replace(LABELS, claims=stated("S" * valid + "?" * (of_all - valid)).claims),
        one("answer_relevancy"): replace(
            LABELS, claims=stated("S" * of_all, "y" * valid + "?" * (of_all - valid)).claims
        ),
        one("answer_relevancy_sentences"): replace(LABELS, sentences=sentences("y" * valid + "?" * (of_all - valid))),
        NUGGETS: replace(LABELS, nuggets=nuggets),
        one("completeness"): replace(
            LABELS, intentions=few(valid, of_all, Intention("i", "satisfied"), Intention("i", None))
        ),
        FACTS: replace(LABELS, answer_facts=facts, reference_facts=facts),
        CITATION_METRICS: replace(
            LABELS,
            parts=of_all,
            citations=tuple(Citation(part, 0, "full" if part < valid else None, "[1]") for part in range(of_all)),
        ),
    }


@pytest.mark.parametrize("names", lacking(1, 1), ids=lambda names: names[0])
@pytest.mark.parametrize(("valid", "scored"), [(5, True), (4, True), (3, False), (0, False)])
def test_up_to_a_fifth_of_the_items_may_lack_a_label(names: tuple[str, ...], valid: int, scored: bool) -> None:
    """They leave numerator and denominator; over a fifth there is no score, and without any there is none either."""
    judgement = lacking(valid, 5)[names]
    results = [outcome(name, CALL, judgement) for name in names]
    if not scored:
        assert {getattr(result, "reason", "a score") for result in results} == {"too_many_unjudged"}
        return
    for result in results:
        assert isinstance(result, Score), result
        assert result.value == float(result.metric not in ("hallucinated", "hallucination", "contradiction"))

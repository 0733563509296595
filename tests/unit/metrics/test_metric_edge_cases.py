"""When there is no number, and what is never made up: the preconditions of calls, and habits of others not copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ragtrace.core.errors import SettingsError
from ragtrace.core.labels import ChunkLabel, Citation, Claim
from ragtrace.core.types import Document, Judgement, RagCall
from ragtrace.metrics import (
    Registry,
    average_precision_at,
    combined_quality,
    context_relevance_decaying,
    contextual_accuracy_from,
    precision_at,
    reciprocal_rank_from,
    registry,
)
from tests.support.labelled import (
    CHUNK_METRICS,
    CITATION_METRICS,
    CLAIM_METRICS,
    QUALITY_METRICS,
    RANK_METRICS,
    RELEVANCY_METRICS,
    asked,
    cited,
    graded,
    measure,
    outcome,
    scored,
    sentences,
    stated,
    unscored,
)

CALL = asked("a chunk", "another chunk")
MAIN_REPLY = (
    *CLAIM_METRICS, "context_contradiction", *RELEVANCY_METRICS, "answered", *CHUNK_METRICS, *RANK_METRICS,
    *CITATION_METRICS,
)  # fmt: skip
LABELS = Judgement(
    claims=stated("SF").claims,
    answer_label="answered",
    consistency=0.5,
    sentences=sentences("yn"),
    chunks=(ChunkLabel(3, False), ChunkLabel(0, False)),
    citations=(Citation(0, 0, "full", "[1]"),),
    parts=2,
    answer_rating=2,
)
"""Labels with which every metric of the main reply has a score of CALL."""
DECLINED = replace(LABELS, claims=stated("", remarks=1).claims, answer_label="abstained")


def outcomes(names: Sequence[str], call: RagCall, judgement: Judgement = LABELS) -> set[float | str]:
    return {outcome(name, call, judgement) for name in names}


def test_every_metric_has_a_score_of_a_whole_judgement() -> None:
    """With a query, an answer, chunks and all labels nothing is unscored."""
    assert not [name for name in (*MAIN_REPLY, *QUALITY_METRICS) if isinstance(outcome(name, CALL, LABELS), str)]


@pytest.mark.parametrize("answer", [None, "", " \n\u2003"])
def test_without_an_answer(answer: str | None) -> None:
    """What asks of the answer does not apply; what asks of the chunks is scored."""
    call = replace(CALL, answer=answer)
    of_answer = (*CLAIM_METRICS, *RELEVANCY_METRICS, *CITATION_METRICS, "context_contradiction", "consistency")
    assert outcomes(of_answer, call) == {"not_applicable/empty_answer"}
    assert not [name for name in (*CHUNK_METRICS, *RANK_METRICS) if isinstance(outcome(name, call, LABELS), str)]
    assert outcome("answered", call, Judgement()) == 0.0


@pytest.mark.parametrize("query", [None, "", "  "])
def test_without_a_query(query: str | None) -> None:
    """What asks of the query does not apply; what asks of support is scored."""
    call = replace(CALL, query=query)
    of_query = (*RELEVANCY_METRICS, *CHUNK_METRICS, *RANK_METRICS, "answered")
    assert outcomes(of_query, call) == {"not_applicable/empty_query"}
    of_support = (*CLAIM_METRICS, *CITATION_METRICS, "context_contradiction", "consistency")
    assert not [name for name in of_support if isinstance(outcome(name, call, LABELS), str)]


def test_without_a_captured_retrieval() -> None:
    """Nobody knows what was retrieved: that is not the same as nothing."""
    call = replace(CALL, contexts=None)
    of_chunks = (*CLAIM_METRICS, *CHUNK_METRICS, *RANK_METRICS, *CITATION_METRICS, "context_contradiction")
    assert outcomes((*of_chunks, "consistency"), call) == {"not_applicable/contexts_missing"}
    assert not [name for name in (*RELEVANCY_METRICS, "answered") if isinstance(outcome(name, call, LABELS), str)]


@pytest.mark.parametrize("contexts", [(), (Document(" "), Document("\n"))])
def test_claims_without_chunks(contexts: tuple[Document, ...]) -> None:
    """Nothing supports what is stated, whatever a label says; nothing can contradict it either."""
    call, unasked = replace(CALL, contexts=contexts), stated("?S")
    assert outcome("faithfulness", call, unasked) == 0.0
    assert outcome("hallucination", call, unasked) == 1.0
    held = ("faithfulness_noncontradiction", "contradiction")
    assert outcomes(held, call, unasked) == {"not_applicable/no_contexts"}
    assert outcomes(CLAIM_METRICS, call, stated("")) == {"not_applicable/no_claims"}
    assert outcomes(CLAIM_METRICS, call, stated("", label="abstained")) == {"not_applicable/abstained"}
    assert outcomes(("context_contradiction", "consistency"), call) == {"not_applicable/no_contexts"}


def test_chunk_and_rank_metrics_of_nothing_retrieved() -> None:
    """A mean of nothing has no number; a place that was not filled holds nothing relevant."""
    call = replace(CALL, contexts=())
    assert outcomes(CHUNK_METRICS, call, Judgement()) == {"not_applicable/no_contexts"}
    for name in RANK_METRICS:
        result = scored(name, call, Judgement())
        assert result.value == 0.0
        assert result.attributes["retrieved"] == 0


def test_chunk_and_rank_metrics_of_blank_chunks() -> None:
    """Blank chunks are unrelated without being judged, and hold their places."""
    call = replace(CALL, contexts=(Document(" "), Document("")))
    assert outcomes((*CHUNK_METRICS, *RANK_METRICS), call, Judgement()) == {0.0}
    assert scored("reciprocal_rank", call, Judgement()).attributes["retrieved"] == 2


def test_one_blank_chunk() -> None:
    """It is grade 0 whatever its label, keeps its rank, and cannot be contradicted."""
    call = asked("", "a chunk")
    judgement = replace(LABELS, chunks=(ChunkLabel(None, None), ChunkLabel(3, True)))
    assert scored("umbrela", call, judgement).attributes["grades"] == (0.0, 3.0)
    assert outcome("reciprocal_rank", call, judgement) == 0.5
    result = scored("context_contradiction", call, judgement)
    assert result.value == 1.0
    assert result.attributes["distinct_contexts"] == 1


def test_duplicate_chunks() -> None:
    """Each keeps its rank and is counted as one among contradicted contexts."""
    call = asked("a  chunk", "another", "a chunk ")
    labels = (ChunkLabel(3, True), ChunkLabel(0, False), ChunkLabel(3, True))
    judgement = replace(LABELS, chunks=labels)
    assert outcome("umbrela", call, judgement) == 2.0
    assert scored("umbrela", call, judgement).attributes["duplicate_chunks"] == 1
    assert outcome("context_contradiction", call, judgement) == 0.5


def test_evidence_may_name_a_duplicate() -> None:
    """A contradicted statement that points to the copy contradicts the one text."""
    call = asked("a chunk", "another", "a chunk")
    claims = tuple(replace(claim, evidence=(2,)) for claim in stated("C").claims or ())
    judgement = replace(LABELS, claims=claims, chunks=(ChunkLabel(0, False),) * 3)
    assert outcome("context_contradiction", call, judgement) == 0.5


def test_no_checkable_statement() -> None:
    """Claims do not apply; relevancy, chunks and ranks do."""
    judgement = replace(LABELS, claims=stated("", remarks=2).claims)
    assert outcomes(CLAIM_METRICS, CALL, judgement) == {"not_applicable/no_claims"}
    others = (*RELEVANCY_METRICS, *CHUNK_METRICS, *RANK_METRICS, *CITATION_METRICS, "context_contradiction")
    assert not [name for name in others if isinstance(outcome(name, CALL, judgement), str)]
    assert outcome("answer_relevancy", CALL, judgement) == 0.0


def test_no_statement_at_all() -> None:
    """A share of no statements is no number; sentences and the rating are still there."""
    judgement = replace(LABELS, claims=())
    assert outcomes(CLAIM_METRICS, CALL, judgement) == {"not_applicable/no_claims"}
    assert outcome("answer_relevancy", CALL, judgement) == "not_applicable/no_statements"
    assert outcome("answer_relevancy_sentences", CALL, judgement) == 0.5
    assert outcome("answer_relevancy_rating", CALL, judgement) == pytest.approx(2 / 3)


def test_an_abstention() -> None:
    """Nothing was claimed; but where a relevant chunk was at hand, that is said."""
    of_answer = (*CLAIM_METRICS, *RELEVANCY_METRICS, *CITATION_METRICS, "context_contradiction", "consistency")
    assert outcomes(of_answer, CALL, DECLINED) == {"not_applicable/abstained"}
    assert outcome("answered", CALL, DECLINED) == 0.0
    for name in (*CHUNK_METRICS, *RANK_METRICS):
        assert scored(name, CALL, DECLINED).attributes["missed_answer"] is True
    poor = replace(DECLINED, chunks=(ChunkLabel(1, False), ChunkLabel(0, False)))
    assert "missed_answer" not in scored("umbrela", CALL, poor).attributes


def test_an_abstention_that_states_something() -> None:
    """A label does not hide statements: all is scored, and the abstention is marked."""
    judgement = replace(LABELS, answer_label="abstained")
    assert not [name for name in (*MAIN_REPLY, *QUALITY_METRICS) if isinstance(outcome(name, CALL, judgement), str)]
    assert scored("contradiction", CALL, judgement).attributes["abstained"] is True
    assert "missed_answer" not in scored("umbrela", CALL, judgement).attributes


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("unparsable", "judge_error"),
        ("refused", "judge_error"),
        ("content_filter", "judge_error"),
        ("truncated", "judge_error"),
        ("timeout", "judge_error"),
        ("control_failed", "judge_suspect"),
    ],
)
def test_a_failed_judge(reason: str, status: str) -> None:
    """Whatever went wrong with the reply is the reason of every metric of it, never a number."""
    assert outcomes(MAIN_REPLY, CALL, Judgement(reasons={"": reason})) == {f"{status}/{reason}"}


def test_a_label_without_a_reason_is_unparsable() -> None:
    """A judge that gives no label and no reason leaves nothing to say but that."""
    assert outcomes(MAIN_REPLY, CALL, Judgement()) == {"judge_error/unparsable"}


def test_one_field_may_fail_alone() -> None:
    """Metrics of other fields of the same reply have their scores."""
    judgement = replace(LABELS, chunks=None, reasons={"chunks": "coverage"})
    of_chunks = (*CHUNK_METRICS, *RANK_METRICS, "context_contradiction")
    assert outcomes(of_chunks, CALL, judgement) == {"judge_error/coverage"}
    assert outcome("faithfulness", CALL, judgement) == 0.5


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("faithfulness", stated("SSSF?")),
        ("contradiction", stated("SSSC?")),
        ("answer_relevancy", stated("SSSSS", "yyyn?")),
        ("answer_relevancy_sentences", replace(stated("S"), sentences=sentences("yyyn?f"))),
        ("citation_precision", cited({0: "1", 1: "1", 2: "1", 3: "0", 4: "?"})),
    ],
)
def test_up_to_a_fifth_may_be_unjudged(name: str, fits: Judgement) -> None:
    """What has no valid label leaves numerator and denominator, and is counted."""
    result = scored(name, asked(*"abcde"), fits)
    assert result.value in (0.75, 0.25)
    assert result.attributes["unjudged"] == 1


@pytest.mark.parametrize(
    ("name", "judgement"),
    [
        ("faithfulness", stated("SSS?")),
        ("faithfulness_noncontradiction", stated("?")),
        ("answer_relevancy", stated("SSSS", "yyy?")),
        ("answer_relevancy", stated("S", "?")),
        ("answer_relevancy_sentences", replace(stated("S"), sentences=sentences("yyy?ffff"))),
        ("citation_recall", cited({0: "1", 1: "?"})),
        ("citation_f1", cited({0: "?"}, {})),
    ],
)
def test_more_than_a_fifth_unjudged_is_no_score(name: str, judgement: Judgement) -> None:
    """Nor is a single item without a label."""
    assert outcome(name, CALL, judgement) == "judge_error/too_many_unjudged"


@pytest.mark.parametrize("name", CLAIM_METRICS)
def test_statements_that_were_never_verified_have_the_reason_of_that(name: str) -> None:
    """They were extracted, and what should have held them against the chunks failed: that says more than a count."""
    unverified = replace(stated("??"), reasons={"claims": "content_filter"})
    assert outcome(name, CALL, unverified) == "judge_error/content_filter"
    assert outcome("answer_relevancy", CALL, unverified) == 1.0


def test_some_labels_missing_is_a_count() -> None:
    """A reason for all of them is none for a part."""
    partly = replace(stated("S??"), reasons={"claims": "content_filter"})
    assert outcome("faithfulness", CALL, partly) == "judge_error/too_many_unjudged"


def test_the_limit_of_unjudged_items_can_be_set() -> None:
    """To none at all, or to more; a metric without such a limit says so."""
    faithfulness, answered = registry.get("faithfulness"), registry.get("answered")
    strict = faithfulness.tolerating(0.0)  # type: ignore[attr-defined]
    lenient = faithfulness.tolerating(0.5)  # type: ignore[attr-defined]
    assert outcome(strict, CALL, stated("SSSF?")) == "judge_error/too_many_unjudged"
    assert outcome(lenient, CALL, stated("S?")) == 1.0
    assert outcome(lenient, CALL, stated("?")) == "judge_error/too_many_unjudged"
    with pytest.raises(SettingsError, match="'answered' has no limit"):
        answered.tolerating(0.1)  # type: ignore[attr-defined]
    with pytest.raises(SettingsError, match=r"in \[0, 1\), got 20"):
        faithfulness.tolerating(20)  # type: ignore[attr-defined]


def test_unjudged_chunks_of_a_mean() -> None:
    """A chunk without a grade drops out with its weight, keeps its rank, and is named."""
    call, judgement = graded([3, None, 0, 0, 0])
    weighted = scored("context_relevance_weighted", call, judgement)
    assert weighted.value == pytest.approx(1 / (1 + 0.81 + 0.729 + 0.6561))
    assert weighted.attributes["unjudged_ranks"] == (2.0,)
    assert weighted.attributes["unit_scores"] == (1.0, 0.0, 0.0, 0.0)
    assert outcomes(CHUNK_METRICS, *graded([3, None, 0])) == {"judge_error/too_many_unjudged"}


@pytest.mark.parametrize("grade", [4, -1, True, 1.5, "2"])
def test_an_unknown_grade_is_no_grade(grade: int) -> None:
    """Only the four grades count; nothing is clamped or rounded into them."""
    call, judgement = graded([grade])
    assert outcomes(CHUNK_METRICS, call, judgement) == {"judge_error/too_many_unjudged"}


def test_an_unjudged_chunk_inside_the_cut() -> None:
    """A rank metric knows nothing if it does not know the ranks it looks at."""
    call, judgement = graded([0, None, 3, 0])
    assert outcome(precision_at(1), call, judgement) == 0.0
    assert outcome(average_precision_at(2), call, judgement) == "judge_error/unjudged_rank"
    assert outcome(precision_at(4), call, judgement) == "judge_error/unjudged_rank"
    assert outcome("reciprocal_rank", call, judgement) == "judge_error/unjudged_rank"
    assert outcome("reciprocal_rank", *graded([0, 2, None])) == 0.5
    assert outcome("reciprocal_rank", *graded([0, None])) == "judge_error/unjudged_rank"


@pytest.mark.parametrize("count", [1, 3])
def test_labels_that_do_not_match_the_chunks(count: int) -> None:
    """Labels stand for chunks by position: none is padded, none cut off."""
    judgement = replace(LABELS, chunks=(ChunkLabel(3, False),) * count)
    names = (*CHUNK_METRICS, *RANK_METRICS, "context_contradiction")
    assert outcomes(names, CALL, judgement) == {"judge_error/unparsable"}


def test_reference_contexts_take_the_place_of_the_retrieved() -> None:
    """With them the retrieved chunks play no part, not even as evidence, nor do they need to have been captured."""
    references = (Document("right"), Document("also right"), Document(" "), Document("right"))
    judgement = replace(stated("C"), reference_contexts_contradicted=(True, False))
    call = replace(CALL, reference_contexts=references, contexts=None)
    result = scored("context_contradiction", call, judgement)
    assert result.value == 0.5
    assert result.attributes["contexts"] == "reference"
    assert outcome("context_contradiction", call, LABELS) == "judge_error/unparsable"
    surplus = replace(judgement, reference_contexts_contradicted=(True, False, False))
    assert outcome("context_contradiction", call, surplus) == "judge_error/unparsable"
    empty = replace(CALL, reference_contexts=())
    assert outcome("context_contradiction", empty, judgement) == "not_applicable/no_contexts"


def test_an_unjudged_context_that_is_evidence_is_contradicted() -> None:
    """What a contradicted statement points to needs no label of its own."""
    claims = (Claim("c", 0, 1, "contradicted", evidence=(0,)),)
    judgement = replace(LABELS, claims=claims, chunks=(ChunkLabel(0, None), ChunkLabel(0, False)))
    assert outcome("context_contradiction", CALL, judgement) == 0.5
    blind = replace(judgement, claims=())
    assert outcome("context_contradiction", CALL, blind) == "judge_error/too_many_unjudged"


@pytest.mark.parametrize("labels", ["f", "fff", ""])
def test_only_filler(labels: str) -> None:
    """Nothing but courtesies leaves no sentence to be relevant."""
    judgement = replace(stated("S"), sentences=sentences(labels))
    assert outcome("answer_relevancy_sentences", CALL, judgement) == "not_applicable/no_sentences"


@pytest.mark.parametrize("rating", [4, -1])
def test_a_rating_outside_its_labels(rating: int) -> None:
    """It is not brought into the range, and not taken for a half."""
    judgement = replace(stated("S"), answer_rating=rating)
    assert outcome("answer_relevancy_rating", CALL, judgement) == "judge_error/out_of_range"


def test_an_answer_that_cites_nothing() -> None:
    """No citations is not bad citations; the attribute says that it was so."""
    for name in CITATION_METRICS:
        result = unscored(name, CALL, cited({}))
        assert result.reason == "no_citations"
        assert result.attributes["uncited"] is True


def test_an_invented_citation_costs() -> None:
    """An unknown passage is 0 in both directions and counted; each marker is a passage of its own."""
    judgement = cited({0: "1", "9": "1"}, {"9": "?", "x": "?"})
    result = scored("citation_precision", CALL, judgement)
    assert result.value == pytest.approx(1 / 3)
    assert result.attributes["unknown_citations"] == 3
    assert result.attributes["cited_passages"] == 3
    assert outcome("citation_recall", CALL, judgement) == 0.25
    assert outcome("citation_f1", CALL, cited({"9": "?"})) == 0.0


@pytest.mark.parametrize("contexts", [(), (Document(" "),)])
def test_without_passages_every_citation_is_unknown(contexts: tuple[Document, ...]) -> None:
    """What cites one of none cites nothing that exists, whatever its label."""
    call = replace(CALL, contexts=contexts)
    assert outcomes(CITATION_METRICS, call, cited({0: "1"})) == {0.0}
    assert scored("citation_recall", call, cited({0: "1"})).attributes["unknown_citations"] == 1


def test_a_cited_blank_passage_supports_nothing() -> None:
    """A blank passage exists, so it is not unknown; it supports nothing, without any judge."""
    result = scored("citation_precision", asked("a chunk", " "), cited({1: "?"}))
    assert result.value == 0.0
    assert result.attributes["unknown_citations"] == 0


def test_a_passage_cited_twice_in_a_part_counts_once() -> None:
    """Pairs are distinct."""
    twice = replace(cited({0: "1", 1: "0"}), citations=cited({0: "1", 1: "0"}).citations * 2)  # type: ignore[operator]
    assert outcome("citation_recall", CALL, twice) == 0.5


def test_a_part_with_unjudged_citations_only_is_left_out() -> None:
    """It does cite, so it is not counted as uncited."""
    call = asked(*"abcde")
    judgement = cited({0: "1", 1: "1", 2: "1", 3: "1"}, {4: "?"})
    assert outcome("citation_recall", call, judgement) == 1.0


def test_more_parts_cite_than_there_are() -> None:
    """Labels that contradict themselves give no number."""
    broken = replace(cited({0: "1"}, {0: "1"}), parts=1)
    assert outcomes(CITATION_METRICS, CALL, broken) == {"judge_error/unparsable"}


@pytest.mark.parametrize("name", QUALITY_METRICS)
def test_a_missing_component(name: str) -> None:
    """No component is taken for 0: the whole has no number, and says what is missing."""
    result = unscored(name, replace(CALL, contexts=()), LABELS)
    assert (result.status, result.reason) == ("not_applicable", "missing_component")
    assert result.attributes["missing"] == ("context_relevance",)
    assert result.explanation == "context_relevance: no_contexts"


def test_components_that_may_be_missing() -> None:
    """Left out by name, with the other weights counting for more; faithfulness never is."""
    call, judgement = replace(CALL, contexts=()), LABELS
    lenient = combined_quality("weighted", name="mine", optional=["context_relevance"])
    result = scored(lenient, call, judgement)
    assert result.value == pytest.approx((0.4 * 0.0 + 0.3 * 1.0) / 0.7)
    with pytest.raises(SettingsError, match="must not name 'faithfulness'"):
        combined_quality("minimum", name="mine", optional=["faithfulness"])
    with pytest.raises(SettingsError, match="optional= has the unknown components umbrela; known: context_relevance"):
        combined_quality("minimum", name="mine", optional=["umbrela"])
    assert outcome(lenient, replace(CALL, contexts=None), judgement) == "not_applicable/missing_component"


@pytest.mark.parametrize("weights", [(0.3, 0.4), (-0.1, 0.4, 0.7), (0, 0, 0), (float("nan"), 1, 1)])
def test_weights_that_make_no_mean(weights: tuple[float, ...]) -> None:
    """Wrong weights are an error when the metric is made, not a strange score later."""
    with pytest.raises(SettingsError, match="weights must"):
        combined_quality("weighted", name="mine", weights=weights)


def test_weights_that_vanish_with_what_is_left_out() -> None:
    """What remains when the optional components are missing must weigh something."""
    with pytest.raises(SettingsError, match="weights must not be all 0"):
        combined_quality("weighted", name="mine", weights=(1, 0, 0), optional=["context_relevance"])


def test_an_unknown_mean() -> None:
    """The message names the three there are."""
    with pytest.raises(SettingsError, match="how must be one of weighted, harmonic, minimum, got 'median'"):
        combined_quality("median", name="mine")  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3"])
def test_a_wrong_k(k: int) -> None:
    """There is no precision at no place."""
    with pytest.raises(SettingsError, match="k must be a whole number of at least 1"):
        precision_at(k)
    with pytest.raises(SettingsError, match="k must be a whole number of at least 1"):
        average_precision_at(k)


@pytest.mark.parametrize("grade", [0, 4, True, 2.0])
def test_a_wrong_bar_of_relevance(grade: int) -> None:
    """From grade 0 on everything would be relevant."""
    for make in (contextual_accuracy_from, reciprocal_rank_from):
        with pytest.raises(SettingsError, match="must be 1, 2 or 3"):
            make(grade)


def test_a_lower_bar_of_relevance() -> None:
    """From grade 1 on a chunk counts by its topic; the metric has a name of its own."""
    call, judgement = graded([0, 1, 2])
    accuracy = contextual_accuracy_from(1)
    assert accuracy.name == "contextual_accuracy_from_1"
    assert outcome(accuracy, call, judgement) == pytest.approx(2 / 3)
    assert outcome(reciprocal_rank_from(1), call, judgement) == 0.5
    assert outcome(precision_at(2, threshold=1), call, judgement) == 0.5
    assert precision_at(2, threshold=1).name == "precision_at_2_from_1"


@pytest.mark.parametrize("decay", [0, -0.5, 1.1, float("nan")])
def test_a_wrong_decay(decay: float) -> None:
    """Weights that vanish, alternate or grow are an error when the metric is made."""
    with pytest.raises(SettingsError, match="decay must be above 0 and at most 1"):
        context_relevance_decaying(decay, name="mine")


def test_a_decay_of_one_is_the_plain_mean() -> None:
    """All ranks weigh alike."""
    call, judgement = graded([3, 0, 1])
    plain = outcome("context_relevance", call, judgement)
    assert outcome(context_relevance_decaying(1, name="mine"), call, judgement) == plain


def test_perfect_is_one() -> None:
    """No small number in a denominator makes the best answer a little less than best."""
    call, judgement = graded([3, 3])
    judgement = replace(judgement, claims=stated("SS").claims, sentences=sentences("yy"), answer_rating=3)
    best = ("faithfulness", "answer_relevancy", "answer_relevancy_sentences", "answer_relevancy_rating")
    of_chunks = ("context_relevance", "context_relevance_weighted", "contextual_accuracy", "reciprocal_rank")
    assert outcomes((*best, *of_chunks, "average_precision_at_k"), call, judgement) == {1.0}
    assert [outcome(name, call, judgement) for name in QUALITY_METRICS] == pytest.approx([1.0] * 3, abs=1e-15)


@pytest.mark.parametrize("label", ["Supported", "SUPPORTED", "NOT_SUPPORTED", "support", 1, True])
def test_a_label_is_compared_whole(label: str) -> None:
    """What merely contains, begins like or stands for a label is none."""
    judgement = Judgement((Claim("c", 0, 1, label),), "answered")  # type: ignore[arg-type]
    assert outcomes(CLAIM_METRICS, CALL, judgement) == {"judge_error/too_many_unjudged"}


@pytest.mark.parametrize("label", ["Yes", "relevant", "idk", 1])
def test_a_relevance_label_is_compared_whole(label: str) -> None:
    """An unknown one is neither relevant nor irrelevant."""
    judgement = Judgement((Claim("c", 0, 1, "supported", relevant=label),), "answered")  # type: ignore[arg-type]
    assert outcome("answer_relevancy", CALL, judgement) == "judge_error/too_many_unjudged"


def test_a_number_in_a_chunk_or_a_year_is_no_grade() -> None:
    """Grades are labels; a text that holds a digit gives none."""
    call, _ = graded([0])
    judgement = Judgement((), "answered", chunks=(ChunkLabel("final score: 3", None),))  # type: ignore[arg-type]
    assert outcome("umbrela", call, judgement) == "judge_error/too_many_unjudged"


@pytest.mark.parametrize("chunk", ["Where?", "Where", "wher"])
def test_a_chunk_that_stands_in_the_query_is_graded_all_the_same(chunk: str) -> None:
    """That a text repeats the question does not make it irrelevant by rule: the grade counts."""
    judgement = Judgement((), "answered", chunks=(ChunkLabel(3, False),))
    assert outcomes(("context_relevance", "contextual_accuracy"), asked(chunk, query="Where?"), judgement) == {1.0}


def test_an_answer_copied_from_a_chunk_is_judged_all_the_same() -> None:
    """No short cut: being contained in a context, or containing the query, decides nothing."""
    call = asked("Paris is big.", query="Paris", answer="Paris is big.")
    assert outcome("faithfulness", call, stated("F")) == 0.0
    assert outcome("umbrela", call, replace(stated("F"), chunks=(ChunkLabel(3, False),))) == 3.0


def test_noncontradiction_is_never_alone() -> None:
    """Where it is wanted, faithfulness is computed with it."""
    wanted = registry.resolve(["faithfulness_noncontradiction", "umbrela"])
    assert [metric.name for metric in wanted] == ["faithfulness_noncontradiction", "umbrela", "faithfulness"]
    assert [metric.name for metric in registry.resolve(["umbrela"])] == ["umbrela"]


def test_directions_are_metadata() -> None:
    """Lower is better for what counts faults and seconds, and for nothing else of the main reply."""
    down = {metric.name for metric in registry.every() if not metric.higher_is_better}
    faults = {"hallucinated", "hallucination", "contradiction", "context_contradiction", "answered_without_context"}
    assert down == faults | {"time_to_first_token_s", "time_per_output_token_s", "duration_s"}


def test_the_thresholds_of_contradictions_are_strict() -> None:
    """One contradiction fails the answer, none passes it, in both directions."""
    for name in ("contradiction", "faithfulness_noncontradiction"):
        assert scored(name, CALL, stated("SF")).label == "pass"
        assert scored(name, CALL, stated("SSSSC")).label == "fail"


def test_results_say_which_metric_and_version_they_are_of() -> None:
    """Of every metric, scored or not."""
    for metric in Registry(registry.every()).all():
        for call in (CALL, RagCall(None, None, None)):
            result = measure(metric, call, LABELS)
            assert (result.metric, result.metric_version) == (metric.name, metric.version)
            assert result.higher_is_better is metric.higher_is_better

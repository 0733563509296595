"""The arithmetic of metrics with replies of their own: similarity, nuggets, completeness, noise, facts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.core.labels import (
    Claim,
    Entailments,
    Fact,
    FactLabel,
    Importance,
    Intention,
    IntentionState,
    Nugget,
    NuggetSupport,
    Turn,
)
from ragtrace.core.types import Document, Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.metrics import registry

CALL = RagCall(
    "Where is the depot?",
    (Document("The depot is in Ghent."), Document("The port is in Antwerp.")),
    "It is in Ghent.",
    reference="The depot is in Ghent.",
    turns=(Turn("user", "Where is the depot?"), Turn("assistant", "It is in Ghent.")),
)
SUPPORTS: dict[str, NuggetSupport | None] = {
    "s": "support", "p": "partial_support", "n": "not_support", "?": None,
}  # fmt: skip
LABELS: dict[str, FactLabel | None] = {"e": "entailment", "n": "neutral", "c": "contradiction", "?": None}
STATES: dict[str, IntentionState | None] = {
    "s": "satisfied", "u": "unsatisfied", "p": "pending", "b": "blocked", "w": "withdrawn", "?": None,
}  # fmt: skip


def measure(metric: str | Metric, judgement: Judgement, call: RagCall = CALL) -> Result:
    return (registry.get(metric) if isinstance(metric, str) else metric)(call, judgement)


def value(metric: str | Metric, judgement: Judgement, call: RagCall = CALL) -> float:
    result = measure(metric, judgement, call)
    assert isinstance(result, Score), result
    return result.value


def reason(metric: str | Metric, judgement: Judgement, call: RagCall = CALL) -> str:
    result = measure(metric, judgement, call)
    assert isinstance(result, Unscored), result
    return f"{result.status}/{result.reason}"


def nuggets(vital: str, okay: str = "") -> Judgement:
    """A judgement with one nugget a letter."""
    sides: Sequence[tuple[Importance, str]] = (("vital", vital), ("okay", okay))
    return Judgement(
        nuggets=tuple(Nugget(f"{side}{i}", side, SUPPORTS[c]) for side, t in sides for i, c in enumerate(t))
    )


def facts(answer: str, reference: str) -> Judgement:
    """A judgement with one claim a letter."""
    sides = (tuple(Fact(f"f{i}", LABELS[c]) for i, c in enumerate(text)) for text in (answer, reference))
    answers, references = sides
    return Judgement(answer_facts=answers, reference_facts=references)


def wanted(states: str) -> Judgement:
    return Judgement(intentions=tuple(Intention(f"i{i}", STATES[c], (0,)) for i, c in enumerate(states)))


def noisy(answer: str, chunk_answer: Sequence[str], chunk_reference: Sequence[str]) -> Judgement:
    """Labels of the answer's claims, and for each chunk which claims of answer and reference it entails: y, n or ?."""
    truth = {"y": True, "n": False, "?": None}
    matrices = Entailments(
        tuple(tuple(truth[c] for c in row) for row in chunk_answer),
        tuple(tuple(truth[c] for c in row) for row in chunk_reference),
    )
    return replace(facts(answer, "n" * len(chunk_reference[0])), entailments=matrices)


# --- similarity -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("cosines", "expected"),
    [((0.98, 0.99, 0.97), 0.98), ((0.2, 0.1, 0.15), 0.15), ((0.92, 0.91, 0.93), 0.92), ((-0.5,), -0.5)],
)
def test_similarity_is_the_mean_over_the_questions_given(cosines: tuple[float, ...], expected: float) -> None:
    """The sum over as many questions as there are; negative values stay."""
    assert value("answer_relevancy_similarity", Judgement(question_cosines=cosines)) == pytest.approx(
        expected, abs=1e-9
    )


def test_an_abstention_has_a_similarity_of_zero() -> None:
    """Whether the judge of the questions says so or the main reply does."""
    assert value("answer_relevancy_similarity", Judgement(question_cosines=(0.9,), noncommittal=True)) == 0.0
    assert value("answer_relevancy_similarity", Judgement(questions=(), noncommittal=True)) == 0.0
    assert value("answer_relevancy_similarity", Judgement(question_cosines=(0.9,), answer_label="abstained")) == 0.0
    stated = Judgement((Claim("x", 0, 1, "supported"),), "abstained", question_cosines=(0.9,))
    assert value("answer_relevancy_similarity", stated) == 0.9


@pytest.mark.parametrize(
    ("judgement", "expected"),
    [
        (Judgement(question_cosines=()), "judge_error/no_questions"),
        (Judgement(), "not_applicable/no_embedder"),
        (Judgement(reasons={"question_cosines": "zero_norm"}), "judge_error/zero_norm"),
        (Judgement(reasons={"": "refused"}), "judge_error/refused"),
        (Judgement(question_cosines=(0.5, math.nan)), "judge_error/non_finite"),
        (Judgement(question_cosines=(1.1,)), "judge_error/out_of_range"),
    ],
)
def test_similarity_without_questions_or_direction_is_no_score(judgement: Judgement, expected: str) -> None:
    """No questions are not 0, a vector of zeros is not 0 either, and nothing is clamped."""
    assert reason("answer_relevancy_similarity", judgement) == expected


def test_similarity_needs_query_and_answer_but_no_contexts() -> None:
    """The table of situations, in its order."""
    judged = Judgement(question_cosines=(0.5,))
    assert reason("answer_relevancy_similarity", judged, replace(CALL, answer=" ")) == "not_applicable/empty_answer"
    assert reason("answer_relevancy_similarity", judged, replace(CALL, query=None)) == "not_applicable/empty_query"
    assert value("answer_relevancy_similarity", judged, replace(CALL, contexts=None)) == 0.5
    assert value("answer_relevancy_similarity", judged, replace(CALL, contexts=())) == 0.5


def test_semantic_similarity_is_the_cosine_itself() -> None:
    """It may be negative, and every failure has its reason instead of 0."""
    assert value("semantic_similarity", Judgement(reference_cosine=-0.25)) == -0.25
    assert reason("semantic_similarity", Judgement()) == "not_applicable/no_embedder"
    failed = Judgement(reasons={"reference_cosine": "unavailable"})
    assert reason("semantic_similarity", failed) == "judge_error/unavailable"
    assert reason("semantic_similarity", Judgement(reference_cosine=math.inf)) == "judge_error/non_finite"
    judged = Judgement(reference_cosine=0.5)
    assert reason("semantic_similarity", judged, replace(CALL, reference=None)) == "not_applicable/needs_reference"
    assert reason("semantic_similarity", judged, replace(CALL, answer="")) == "not_applicable/empty_answer"


# --- nuggets ----------------------------------------------------------------------------------------------------------
NUGGETS = ("nugget_all", "nugget_vital", "nugget_weighted", "nugget_strict_all", "nugget_strict_vital")


@pytest.mark.parametrize(
    ("vital", "okay", "expected"),
    [
        ("s", "p", (0.75, 1.0, 5 / 6, 0.5, 1.0)),
        ("ss", "", (1.0, 1.0, 1.0, 1.0, 1.0)),
        ("pn", "s", (0.5, 0.25, (0.5 + 0.5) / 2.5, 1 / 3, 0.0)),
    ],
)
def test_nugget_scores(vital: str, okay: str, expected: tuple[float, ...]) -> None:
    """All, vital, weighted and the strict forms; without okay nuggets a perfect answer is perfect."""
    assert [value(name, nuggets(vital, okay)) for name in NUGGETS] == pytest.approx(expected, abs=1e-9)


def test_nuggets_that_are_only_okay() -> None:
    """The vital forms have nothing to say; the others do."""
    assert value("nugget_weighted", nuggets("", "sp")) == 0.75
    assert reason("nugget_vital", nuggets("", "s")) == "not_applicable/no_vital_nuggets"
    assert reason("nugget_strict_vital", nuggets("", "s")) == "not_applicable/no_vital_nuggets"


def test_nugget_counts_are_published() -> None:
    """What the number was made of, and the strict weighted form."""
    result = measure("nugget_weighted", nuggets("s", "p"))
    expected = {"nuggets": 2, "vital_nuggets": 1, "support": 1, "partial_support": 1, "not_support": 0, "unjudged": 0}
    assert expected.items() <= result.attributes.items()
    assert result.attributes["strict_weighted"] == pytest.approx(2 / 3)


def test_unjudged_nuggets_leave_the_denominator() -> None:
    """A failed assignment is not `not_support`; over 20 %, or all vital ones, is no score."""
    assert value("nugget_all", nuggets("ssss?")) == 1.0
    assert reason("nugget_all", nuggets("sss?")) == "judge_error/too_many_unjudged"
    assert reason("nugget_vital", nuggets("?", "sssssssss")) == "judge_error/too_many_unjudged"
    assert reason("nugget_all", Judgement(reasons={"nuggets": "timeout"})) == "judge_error/timeout"


def test_an_abstention_holds_no_nugget() -> None:
    """0 where nuggets exist; a label alone hides no statement."""
    assert value("nugget_all", replace(nuggets("??"), answer_label="abstained")) == 0.0
    assert reason("nugget_all", replace(nuggets(""), answer_label="abstained")) == "not_applicable/no_nuggets"
    claims = (Claim("x", 0, 1, "supported"),)
    assert value("nugget_all", replace(nuggets("s"), answer_label="abstained", claims=claims)) == 1.0


@pytest.mark.parametrize("name", NUGGETS)
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (replace(CALL, answer=" "), "empty_answer"),
        (replace(CALL, query=""), "empty_query"),
        (replace(CALL, contexts=None), "contexts_missing"),
        (replace(CALL, contexts=()), "no_contexts"),
        (replace(CALL, contexts=(Document(" "),)), "no_contexts"),
    ],
)
def test_situations_without_nuggets(name: str, call: RagCall, expected: str) -> None:
    """Each input without meaning has its own reason."""
    assert reason(name, nuggets("s", "s"), call) == f"not_applicable/{expected}"


@given(st.text("spn", max_size=9), st.text("spn", max_size=9))
def test_strict_nuggets_are_at_most_the_plain_ones(vital: str, okay: str) -> None:
    """In every form, and all of them inside [0, 1]."""
    for plain, strict in (("nugget_all", "nugget_strict_all"), ("nugget_vital", "nugget_strict_vital")):
        if vital or (okay and plain == "nugget_all"):
            assert 0 <= value(strict, nuggets(vital, okay)) <= value(plain, nuggets(vital, okay)) <= 1
    if vital or okay:
        weighted = measure("nugget_weighted", nuggets(vital, okay))
        assert isinstance(weighted, Score)
        strict_weighted = weighted.attributes["strict_weighted"]
        assert isinstance(strict_weighted, float)
        assert strict_weighted <= weighted.value + 1e-9


# --- completeness -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("states", "expected"), [("su", 0.5), ("suw", 0.5), ("s", 1.0), ("pbu", 0.0), ("ssss?", 1.0), ("spbu", 0.25)]
)
def test_only_what_is_satisfied_counts(states: str, expected: float) -> None:
    """Pending and blocked are not satisfied; what was withdrawn is not counted."""
    assert value("completeness", wanted(states)) == pytest.approx(expected)


def test_a_conversation_without_intentions_is_not_complete() -> None:
    """Nor is one of which all was withdrawn, nor one that is not known."""
    assert reason("completeness", wanted("")) == "not_applicable/no_intentions"
    assert reason("completeness", wanted("ww")) == "not_applicable/no_intentions"
    assert reason("completeness", wanted("ss?")) == "judge_error/too_many_unjudged"
    assert reason("completeness", Judgement()) == "judge_error/unparsable"
    for turns in (None, (), (Turn("assistant", "Hello."),), (Turn("user", " "),)):
        assert reason("completeness", wanted("s"), replace(CALL, turns=turns)) == "not_applicable/needs_conversation"


def test_counts_of_intentions_are_published() -> None:
    """By state."""
    result = measure("completeness", wanted("suw"))
    expected = {"intentions": 3, "satisfied": 1, "unsatisfied": 1, "withdrawn": 1, "pending": 0, "unjudged": 0}
    assert expected.items() <= result.attributes.items()


# --- factual correctness ----------------------------------------------------------------------------------------------
CORRECTNESS = ("factual_correctness_precision", "factual_correctness_recall", "factual_correctness_f1")


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("ence", "en", (0.5, 0.5, 0.5)),
        ("e", "een", (1.0, 2 / 3, 0.8)),
        ("nc", "n", (0.0, 0.0, 0.0)),
        ("eee?e", "e", (1.0, 1.0, 1.0)),
    ],
)
def test_factual_correctness(answer: str, reference: str, expected: tuple[float, ...]) -> None:
    """Entailed claims over all of a side, unrounded; 0 and 0 have a mean of 0, and perfect is exactly 1."""
    assert [value(name, facts(answer, reference)) for name in CORRECTNESS] == pytest.approx(expected, abs=1e-12)


def test_a_side_without_claims_is_no_score() -> None:
    """Neither 0 nor 1; f1 needs both."""
    precision, recall, f1 = CORRECTNESS
    assert reason(precision, facts("", "e")) == reason(f1, facts("", "e")) == "not_applicable/no_claims"
    assert value(recall, facts("", "e")) == 1.0
    assert reason(recall, facts("e", "")) == reason(f1, facts("e", "")) == "not_applicable/no_reference_claims"
    assert reason(precision, facts("e?", "e")) == reason(f1, facts("e?", "e")) == "judge_error/too_many_unjudged"
    assert reason(recall, Judgement(reasons={"reference_facts": "refused"})) == "judge_error/refused"


@pytest.mark.parametrize("name", [*CORRECTNESS, "noise_sensitivity_relevant", "noise_sensitivity_irrelevant"])
def test_reference_metrics_need_answer_and_reference(name: str) -> None:
    """In the order of the table of situations."""
    judged = noisy("e", ["y", "n"], ["y", "n"])
    assert reason(name, judged, replace(CALL, answer=None, reference=None)) == "not_applicable/empty_answer"
    assert reason(name, judged, replace(CALL, reference=" ")) == "not_applicable/needs_reference"


# --- noise sensitivity ------------------------------------------------------------------------------------------------
NOISE = ("noise_sensitivity_relevant", "noise_sensitivity_irrelevant")
ONE_CHUNK = replace(CALL, contexts=(Document("It was begun in 1503, some say in 1519."),))


@pytest.mark.parametrize(
    ("call", "judgement", "relevant", "irrelevant"),
    [
        (ONE_CHUNK, noisy("en", ["yy"], ["yn"]), 0.5, 0.0),
        (ONE_CHUNK, noisy("en", ["yy"], ["y"]), 0.5, 0.0),
        (CALL, noisy("nn", ["nn", "ny"], ["y", "n"]), 0.0, 0.5),
        (CALL, noisy("cn", ["yn", "yy"], ["y", "n"]), 0.5, 0.5),  # a claim in both kinds of chunk is relevant noise
        (CALL, noisy("ce", ["ny", "ny"], ["y", "n"]), 0.0, 0.0),
    ],
)
def test_noise_sensitivities(call: RagCall, judgement: Judgement, relevant: float, irrelevant: float) -> None:
    """Wrong claims in relevant chunks, and wrong claims in irrelevant ones alone."""
    assert [value(name, judgement, call) for name in NOISE] == [relevant, irrelevant]


def test_by_products_of_noise_sensitivity() -> None:
    """Counts, and what the same labels say of the retrieval."""
    result = measure(NOISE[0], noisy("en", ["nn", "ny"], ["yn", "nn"]))
    expected = {
        "response_claims": 2,
        "incorrect_claims": 1,
        "relevant_chunks": (0,),
        "claim_recall": 0.5,
        "context_precision": 0.5,
        "self_knowledge": 0.5,
    }
    assert expected.items() <= result.attributes.items()


def test_an_unknown_label_leaves_out_only_what_it_decides() -> None:
    """A right claim is right wherever it stands; a wrong one may be known to be noise whatever is unknown."""
    assert [value(name, noisy("en", ["?y", "?n"], ["y", "n"])) for name in NOISE] == [0.5, 0.0]
    assert [value(name, noisy("eeeen", ["nnnn?", "nnnnn"], ["y", "n"])) for name in NOISE] == [0.0, 0.0]
    assert value(NOISE[0], noisy("?c", ["ny", "nn"], ["y", "n"])) == 0.5  # in no chunk: no noise, right or wrong
    assert value(NOISE[0], noisy("c", ["n", "?"], ["y", "n"])) == 0.0  # in no relevant chunk, whatever the other says
    assert reason(NOISE[1], noisy("c", ["n", "?"], ["y", "n"])) == "judge_error/too_many_unjudged"
    assert value(NOISE[1], noisy("c", ["?", "n"], ["y", "n"])) == 0.0
    assert reason(NOISE[0], noisy("en", ["n?", "nn"], ["y", "n"])) == "judge_error/too_many_unjudged"
    assert reason(NOISE[0], noisy("en", ["ny", "nn"], ["?", "n"])) == "judge_error/too_many_unjudged"


@pytest.mark.parametrize(
    ("judgement", "call", "expected"),
    [
        (noisy("", ["", ""], ["y", "n"]), CALL, "not_applicable/no_claims"),
        (noisy("e", ["y", "n"], ["", ""]), CALL, "not_applicable/no_reference_claims"),
        (noisy("e", ["y", "n"], ["y", "n"]), replace(CALL, contexts=None), "not_applicable/contexts_missing"),
        (noisy("e", ["y", "n"], ["y", "n"]), replace(CALL, contexts=()), "not_applicable/no_contexts"),
        (noisy("e", ["y"], ["y"]), CALL, "judge_error/unparsable"),  # ragged: two chunks, one row
        (noisy("ee", ["y", "n"], ["y", "n"]), CALL, "judge_error/unparsable"),
        (facts("e", "e"), CALL, "judge_error/unparsable"),
        (replace(facts("e", "e"), reasons={"entailments": "timeout"}), CALL, "judge_error/timeout"),
    ],
)
def test_noise_that_cannot_be_measured(judgement: Judgement, call: RagCall, expected: str) -> None:
    """Every gap has a reason; a ragged list of verdicts is no crash and no score."""
    for name in NOISE:
        assert reason(name, judgement, call) == expected


def test_duplicate_and_blank_chunks_count_once_and_not_at_all() -> None:
    """A row a distinct chunk, and ranks as they were retrieved."""
    texts = ("a", " ", "a  ", "b")
    call = replace(CALL, contexts=tuple(Document(text) for text in texts))
    result = measure(NOISE[0], noisy("n", ["n", "y"], ["n", "y"]), call)
    assert isinstance(result, Score)
    assert (result.value, result.attributes["relevant_chunks"]) == (1.0, (3,))


@given(
    st.text("enc?", min_size=1, max_size=6).flatmap(
        lambda answer: st.tuples(
            st.just(answer),
            st.lists(st.text("yn?", min_size=len(answer), max_size=len(answer)), min_size=2, max_size=2),
            st.lists(st.text("yn?", min_size=2, max_size=2), min_size=2, max_size=2),
        )
    )
)
def test_the_two_noise_sensitivities_sum_to_at_most_one(drawn: tuple[str, list[str], list[str]]) -> None:
    """And each lies in [0, 1], whatever is known and unknown."""
    results = [measure(name, noisy(*drawn)) for name in NOISE]
    values = [result.value for result in results if isinstance(result, Score)]
    assert all(0 <= number <= 1 for number in values)
    assert sum(values) <= 1 + 1e-9


# --- all of them ------------------------------------------------------------------------------------------------------
OWN = [
    "answer_relevancy_similarity",
    "semantic_similarity",
    *NUGGETS,
    "completeness",
    *NOISE,
    *CORRECTNESS,
]


@pytest.mark.parametrize("name", OWN)
def test_metrics_with_replies_of_their_own_are_asked_for_by_name(name: str) -> None:
    """They cost calls, so none is among the defaults."""
    assert registry.get(name) not in registry.defaults()
    assert registry.get(name).needs


@pytest.mark.parametrize("name", OWN)
def test_results_say_which_metric_and_direction(name: str) -> None:
    """Reasons too."""
    result = measure(name, Judgement(reasons={"": "refused"}, mode="fast", n_calls=3))
    assert (result.metric, result.higher_is_better) == (name, name not in NOISE)
    assert (result.mode, result.n_calls) == ("fast", 3)

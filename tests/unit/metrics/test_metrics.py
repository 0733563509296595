"""The registry, and the arithmetic of faithfulness, hallucination, consistency and answered."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.core.errors import UnknownMetricError
from ragtrace.core.labels import AnswerLabel, Claim, Support
from ragtrace.core.types import Document, Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.metrics import Formula, Registry, registry

LABELS: Mapping[str, Support | None] = {
    "S": "supported", "C": "contradicted", "P": "partial", "F": "not_found", "?": None,
}  # fmt: skip
CALL = RagCall("Where is it?", (Document("It is here."),), "It is here.")


def judged(labels: str, answer_label: AnswerLabel = "answered", remarks: int = 0) -> Judgement:
    """A judgement with one claim for each letter of *labels*, and *remarks* that cannot be checked."""
    claims = [Claim("claim", 0, 5, LABELS[letter]) for letter in labels]
    claims += [Claim("hello", 0, 5, None, checkable=False)] * remarks
    return Judgement(tuple(claims), answer_label)


def measure(name: str, judgement: Judgement, call: RagCall = CALL) -> Result:
    return registry.get(name)(call, judgement)


def value(name: str, judgement: Judgement, call: RagCall = CALL) -> float:
    result = measure(name, judgement, call)
    assert isinstance(result, Score)
    return result.value


def reason(name: str, judgement: Judgement, call: RagCall = CALL) -> str:
    result = measure(name, judgement, call)
    assert isinstance(result, Unscored)
    return f"{result.status}/{result.reason}"


@pytest.mark.parametrize(
    ("labels", "faithful"), [("SC", 0.5), ("C", 0.0), ("SS", 1.0), ("S", 1.0), ("SF", 0.5), ("SFCS", 0.5), ("FF", 0.0)]
)
def test_worked_examples_of_the_specification(labels: str, faithful: float) -> None:
    """Supported over all; whatever else a label says counts against the answer."""
    assert value("faithfulness", judged(labels)) == pytest.approx(faithful, abs=1e-9)
    assert value("hallucination", judged(labels)) == pytest.approx(1 - faithful, abs=1e-9)


@given(st.text("SCPF", min_size=1, max_size=30), st.integers(0, 5))
def test_faithfulness_and_hallucination_sum_to_one(labels: str, remarks: int) -> None:
    """They are complements, inside their range, whatever the labels."""
    faithful = value("faithfulness", judged(labels, remarks=remarks))
    assert 0 <= faithful <= 1
    assert faithful + value("hallucination", judged(labels, remarks=remarks)) == pytest.approx(1, abs=1e-12)


def test_counts_are_published() -> None:
    """The attributes say what the number was made of."""
    result = measure("faithfulness", judged("SSCPFFFFFF?"))
    counts = {"statements": 10, "supported": 2, "contradicted": 1, "partial": 1, "not_found": 6, "unjudged": 1}
    assert counts.items() <= result.attributes.items()


def test_unjudged_statements_leave_numerator_and_denominator() -> None:
    """Up to 20 % without a label are left out and counted."""
    assert value("faithfulness", judged("SSSF?")) == pytest.approx(0.75)


@pytest.mark.parametrize("labels", ["SSS?", "?", "S?"])
def test_too_many_unjudged_statements_are_no_score(labels: str) -> None:
    """More than 20 %, or all of them, make the rest meaningless."""
    assert reason("faithfulness", judged(labels)) == "judge_error/too_many_unjudged"
    assert reason("hallucination", judged(labels)) == "judge_error/too_many_unjudged"


@pytest.mark.parametrize("name", ["hallucinated", "faithfulness", "hallucination"])
def test_edge_cases_of_claim_metrics(name: str) -> None:
    """Each input without meaning has its own reason."""
    blank, missing = RagCall("q", (Document("x"),), "  "), RagCall("q", None, "a")
    assert reason(name, judged("S"), blank) == "not_applicable/empty_answer"
    assert reason(name, judged("S"), missing) == "not_applicable/contexts_missing"
    assert reason(name, judged("")) == "not_applicable/no_claims"
    assert reason(name, judged("", remarks=2)) == "not_applicable/no_claims"
    assert reason(name, judged("", "abstained")) == "not_applicable/abstained"
    assert reason(name, Judgement(reasons={"claims": "unscorable_script"})) == "not_applicable/unscorable_script"
    assert reason(name, Judgement(reasons={"": "refused"})) == "judge_error/refused"
    assert reason(name, Judgement()) == "judge_error/unparsable"


@pytest.mark.parametrize("contexts", [(), (Document("  \n"),)])
def test_without_contexts_every_statement_is_unsupported(contexts: tuple[Document, ...]) -> None:
    """Retrieval that returned nothing supports nothing, whether or not a judge was asked."""
    call = RagCall("q", contexts, "It is here.")
    assert value("faithfulness", judged("??"), call) == 0
    assert value("hallucination", judged("S"), call) == 1
    assert reason("faithfulness", judged("", "abstained"), call) == "not_applicable/abstained"


def test_an_abstention_does_not_hide_statements() -> None:
    """What is said besides declining is scored, and the abstention is marked."""
    result = measure("hallucination", judged("F", "abstained"))
    assert isinstance(result, Score)
    assert result.value == 1
    assert result.attributes["abstained"] is True


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (math.nan, "judge_error/non_finite"),
        (math.inf, "judge_error/non_finite"),
        (1.2, "judge_error/out_of_range"),
        (-0.1, "judge_error/out_of_range"),
        (None, "not_applicable/no_scorer"),
    ],
)
def test_a_broken_consistency_is_no_score(number: float | None, expected: str) -> None:
    """Values are never clamped and never defaulted."""
    assert reason("consistency", Judgement(consistency=number)) == expected


def test_edge_cases_of_consistency() -> None:
    """It needs an answer, contexts, and something said."""
    judgement = Judgement(consistency=0.5)
    assert reason("consistency", judgement, RagCall("q", (Document("x"),), None)) == "not_applicable/empty_answer"
    assert reason("consistency", judgement, RagCall("q", None, "a")) == "not_applicable/contexts_missing"
    assert reason("consistency", judgement, RagCall("q", (), "a")) == "not_applicable/no_contexts"
    assert reason("consistency", judgement, RagCall("q", (Document(" "),), "a")) == "not_applicable/no_contexts"
    assert reason("consistency", judged("", "abstained")) == "not_applicable/abstained"
    assert value("consistency", judgement) == 0.5


@pytest.mark.parametrize(
    ("query", "answer", "label", "expected"),
    [
        ("q", "It is.", "answered", 1.0),
        ("q", "I do not know.", "abstained", 0.0),
        ("q", " ", None, 0.0),
        ("", None, None, 0.0),
        ("  ", "It is.", "answered", "not_applicable/empty_query"),
        ("q", "It is.", None, "judge_error/unparsable"),
    ],
)
def test_answered(query: str, answer: str | None, label: AnswerLabel | None, expected: float | str) -> None:
    """1 for an attempt, 0 for declining or silence; without a query there is nothing to answer."""
    call, judgement = RagCall(query, (), answer), Judgement(answer_label=label)
    found = reason if isinstance(expected, str) else value
    assert found("answered", judgement, call) == expected


@pytest.mark.parametrize(
    ("labels", "label"), [("SF", "fail"), ("SSSSSSSSSP", "fail"), ("SC", "fail"), ("F", "fail"), ("SS", "pass")]
)
def test_one_unsupported_statement_fails_an_answer(labels: str, label: str) -> None:
    """The labels of all three agree: half the statements invented is no pass."""
    for name in ("faithfulness", "hallucination", "hallucinated"):
        result = measure(name, judged(labels))
        assert isinstance(result, Score)
        assert result.label == label


@pytest.mark.parametrize(("number", "label"), [(0.5, "pass"), (0.4, "fail"), (0.6, "pass")])
def test_the_threshold_is_crossed_strictly(number: float, label: str) -> None:
    """Exactly the threshold is a pass, in both directions."""
    for higher, value in ((True, number), (False, 1 - number)):
        metric = Formula(
            "m", "1", lambda call, judgement, value=value: Score(value), frozenset(), higher, threshold=0.5
        )
        result = metric(CALL, Judgement())
        assert isinstance(result, Score)
        assert result.label == label


def test_a_value_within_the_slack_does_not_fail() -> None:
    """Rounding of the arithmetic crosses no threshold."""
    metric = Formula("m", "1", lambda call, judgement: Score(0.3 - 1e-12), frozenset({"claims"}), threshold=0.3)
    result = metric(CALL, Judgement())
    assert isinstance(result, Score)
    assert result.label == "pass"


def test_results_carry_the_judgements_metadata() -> None:
    """Scores and reasons alike say what metric, version, direction, mode and cost they have."""
    judgement = Judgement((Claim("a", 0, 1, "supported"),), mode="fast", n_calls=2, input_tokens=7, output_tokens=3)
    for result in (measure("hallucination", judgement), measure("hallucination", judgement, RagCall("q", None, "a"))):
        assert (result.metric, result.metric_version, result.higher_is_better) == ("hallucination", "1", False)
        assert (result.mode, result.n_calls, result.input_tokens, result.output_tokens) == ("fast", 2, 7, 3)


def test_formulas_are_metrics() -> None:
    """What the registry holds fulfils the protocol, and no name is there twice."""
    assert all(isinstance(metric, Metric) for metric in registry.all())
    assert len(set(registry.names())) == len(registry.all())


def test_an_unknown_metric_is_named_with_near_misses() -> None:
    """A typo is answered with the nearest name and all known ones."""
    with pytest.raises(UnknownMetricError, match=r"'faithfullness'; did you mean 'faithfulness'\? known: hallucinated"):
        registry.get("faithfullness")
    with pytest.raises(UnknownMetricError, match="no metric named 'x'; known: none"):
        Registry().get("x")


def test_a_second_metric_of_a_name_is_an_error() -> None:
    """The same object twice is not."""
    mine = Registry(registry.all())
    mine.add(registry.get("answered"))
    with pytest.raises(ValueError, match="'answered' is already registered; pass another name="):
        mine.add(Formula("answered", "2", lambda call, judgement: Score(1.0), frozenset()))


def test_resolve_takes_names_and_objects_once() -> None:
    """Order is kept, doubles are dropped."""
    answered = registry.get("answered")
    assert registry.resolve(["hallucination", answered, "answered"]) == (registry.get("hallucination"), answered)

"""Ratings along a user's own criteria: the metric, the requests, and the weighting by probability."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.labels import Rating
from ragtrace.core.types import Judgement, Metric, RagCall, Result, Score, Unscored
from ragtrace.judges.llm.completions import read_completion
from ragtrace.judges.llm.ratings import expected_rating, score_token, value_span, weighted_rating
from ragtrace.metrics.g_eval_metrics import g_eval
from tests.support.scripted_chat import (
    CALL,
    RATING,
    Scripted,
    labelled,
    tokens_of,
)

LOG = math.log


def measure(metric: Metric, judgement: Judgement, call: RagCall = CALL) -> Result:
    return metric(call, judgement)


def number(metric: Metric, judgement: Judgement, call: RagCall = CALL) -> float:
    found = measure(metric, judgement, call)
    assert isinstance(found, Score), found
    return found.value


def why(metric: Metric, judgement: Judgement, call: RagCall = CALL) -> str:
    found = measure(metric, judgement, call)
    assert isinstance(found, Unscored), found
    return f"{found.status}/{found.reason}"


# --- the metric -------------------------------------------------------------------------------------------------------
def rating_of(rating: float) -> Judgement:
    return Judgement(ratings={"tone": Rating(rating, "logprobs")})


def test_a_rating_is_brought_to_the_unit_interval() -> None:
    """(x - low) / (high - low); the method is published."""
    metric = g_eval("tone", criteria="Is it kind?")
    assert number(metric, rating_of(5.3264)) == pytest.approx(0.53264, abs=1e-12)
    assert number(g_eval("tone", criteria="Is it kind?", low=1, high=5), rating_of(2)) == 0.25
    assert measure(metric, rating_of(5)).attributes["method"] == "logprobs"


@pytest.mark.parametrize(("up", "number", "label"), [(True, 5, "pass"), (True, 4, "fail"), (False, 6, "fail")])
def test_the_threshold_of_a_rating_is_crossed_strictly(up: bool, number: float, label: str) -> None:
    """In the declared direction, on the score and not on the rating."""
    metric = g_eval("tone", criteria="Is it kind?", higher_is_better=up, threshold=0.5)
    result = measure(metric, rating_of(number))
    assert isinstance(result, Score)
    assert (result.label, result.higher_is_better) == (label, up)
    assert result.attributes["passes_threshold"] is (label == "pass")


def test_fields_that_steps_name_but_nobody_passes_are_published() -> None:
    """Steps about an expected output do not conjure it up."""
    metric = g_eval("tone", steps=["Compare actual output and expected output."], needs=("answer",))
    assert measure(metric, rating_of(5)).attributes["fields_missing"] == ("expected output",)
    complete = g_eval("tone", steps=["Compare it with the expected output."], needs=("answer", "reference"))
    assert "fields_missing" not in measure(complete, rating_of(5)).attributes


@pytest.mark.parametrize(
    ("field", "call", "expected"),
    [
        ("query", replace(CALL, query=" "), "empty_query"),
        ("answer", replace(CALL, answer=None), "empty_answer"),
        ("contexts", replace(CALL, contexts=None), "contexts_missing"),
        ("contexts", replace(CALL, contexts=()), "no_contexts"),
        ("reference", replace(CALL, reference=None), "needs_reference"),
        ("turns", replace(CALL, turns=None), "needs_conversation"),
    ],
)
def test_a_declared_field_must_be_there(field: str, call: RagCall, expected: str) -> None:
    """A call that lacks it is not rated, whatever the judge said; an undeclared one may be absent."""
    metric = g_eval("tone", criteria="Is it kind?", needs=(field,))
    assert why(metric, rating_of(5), call) == f"not_applicable/{expected}"
    other = g_eval("tone", criteria="Is it kind?", needs=("answer" if field != "answer" else "query",))
    assert number(other, rating_of(5), call) == 0.5


@pytest.mark.parametrize(
    ("judgement", "expected"),
    [
        (Judgement(), "unparsable"),
        (Judgement(reasons={"ratings.tone": "truncated"}), "truncated"),
        (rating_of(math.nan), "non_finite"),
        (rating_of(10.5), "out_of_range"),
    ],
)
def test_a_broken_rating_is_no_score(judgement: Judgement, expected: str) -> None:
    """An unparsed reply is not 0."""
    assert why(g_eval("tone", criteria="Is it kind?"), judgement) == f"judge_error/{expected}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "neither criteria= nor steps="),
        ({"criteria": "x", "low": 5, "high": 5}, "low < high"),
        ({"criteria": "x", "low": 0, "high": 1000}, "at most 101 ratings"),
        ({"criteria": "x", "needs": ("expected_output",)}, "needs must name some of query, answer"),
        ({"criteria": "x", "needs": "answer"}, "needs must name"),
        ({"criteria": "x", "method": "guess"}, "method must be one of"),
        ({"criteria": "x", "method": "samples", "samples": 1}, "samples must be 2 to 20"),
        ({"criteria": "x", "threshold": 7}, "for 7 of 0..10 write 0.7"),
        ({"steps": ["look", " "]}, "blank step"),
    ],
)
def test_g_eval_refuses_what_does_not_fit_together(arguments: dict[str, object], message: str) -> None:
    """At the start, with what to write instead."""
    with pytest.raises(SettingsError, match=message):
        g_eval("tone", **arguments)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(SettingsError, match="letters, digits and _"):
        g_eval("my tone", criteria="x")


def test_the_version_of_g_eval_changes_with_what_is_rating_of() -> None:
    """Scores along other criteria are other scores."""
    one, two = g_eval("tone", criteria="Is it kind?"), g_eval("tone", criteria="Is it short?")
    assert one.version != two.version
    assert one == g_eval("tone", criteria="Is it kind?")
    assert isinstance(one, Metric)


# --- the requests -----------------------------------------------------------------------------------------------------
def rated(chat: Scripted, **arguments: Any) -> Judgement:
    given = {"criteria": None, "steps": ["Look at it."], "needs": ("query", "answer")} | arguments
    return labelled(chat, g_eval("kindness", **given))


def test_a_rating_is_weighted_by_the_probabilities_at_the_score() -> None:
    """Not at an equal digit in the reason; improbable candidates and words are left out."""
    judgement = rated(Scripted({"rating": RATING}, tokens=tokens_of))
    rating = judgement.ratings["kindness"]
    assert rating.value == pytest.approx((7 * 0.6 + 8 * 0.3) / 0.9)
    assert (rating.method, rating.reason) == ("logprobs", "It is 9 out of 10.")


def test_without_probabilities_the_rating_is_single_and_says_so() -> None:
    """The method is published with every score."""
    judgement = rated(Scripted({"rating": RATING}))
    assert (judgement.ratings["kindness"].value, judgement.ratings["kindness"].method) == (7.0, "single")


@pytest.mark.parametrize(
    ("top", "rating", "method"),
    [
        ((("7", 0.0004), ("3", LOG(0.0005))), 7.0, "logprobs"),
        ((("7", 0.3), ("3", LOG(0.5))), 7.0, "single"),
        ((("7", LOG(0.6)), ("3", None)), 7.0, "single"),
        ((("3", LOG(0.2)),), 7.0, "single"),
        ((("7", LOG(0.004)), ("3", LOG(0.5))), 7.0, "single"),
        ((), 7.0, "single"),
    ],
    ids=["rounded", "above 0", "not a number", "more than 1 in sum", "another one is likelier", "none"],
)
def test_a_distribution_that_is_none_is_not_used(
    top: Sequence[tuple[str, float | None]], rating: float, method: str
) -> None:
    """A rating by log probabilities of a server that rounds; else the plain rating, which says so."""
    text = json.dumps(RATING)
    own = LOG(0.004) if ("7", LOG(0.004)) in top else LOG(0.99)

    def token(character: str) -> dict[str, object]:
        likely = [{"token": text, "logprob": logprob} for text, logprob in top] if character == "7" else []
        return {"token": character, "logprob": own, "top_logprobs": likely}

    choice = {"message": {"content": text}, "logprobs": {"content": [token(character) for character in text]}}
    tokens = read_completion(json.dumps({"choices": [choice]}).encode()).choices[0].tokens
    assert tokens is not None
    found = rated(Scripted({"rating": RATING}, tokens=lambda _: tokens)).ratings["kindness"]
    assert (found.value, found.method) == (pytest.approx(rating), method)


def test_a_score_of_several_tokens_is_single() -> None:
    """The first digit of 10 is not a rating of 1."""
    judgement = rated(Scripted({"rating": {"reason": "", "score": "10"}}, tokens=tokens_of))
    assert (judgement.ratings["kindness"].value, judgement.ratings["kindness"].method) == (10.0, "single")


def test_samples_are_averaged() -> None:
    """Of one request for several replies, at a temperature at which they may differ."""
    chat = Scripted({"rating": RATING})
    judgement = rated(chat, method="samples", samples=4)
    assert (chat.asked[0].samples, chat.asked[0].temperature, chat.asked[0].logprobs) == (4, 1.0, False)
    rating = judgement.ratings["kindness"]
    assert (rating.value, rating.method, rating.samples) == (7.0, "samples", 4)


def test_steps_are_written_once() -> None:
    """All calls are rated along the same ones."""
    chat = Scripted({"rating": RATING, "steps": {"steps": ["Read it.", "Rate it."]}}, model="writes steps")
    for _ in range(2):
        judgement = rated(chat, criteria="Is it kind?", steps=())
        assert judgement.ratings["kindness"].value == 7.0
    assert chat.kinds() == ["steps", "rating", "rating"]
    assert "1. Read it.\n2. Rate it." in chat.asked[-1].system
    assert "Is it kind?" in chat.asked[0].system
    assert chat.data(0) == {}


def test_only_declared_fields_are_shown() -> None:
    """And the contexts with their ids, as everywhere."""
    chat = Scripted({"rating": RATING})
    rated(chat, needs=("answer", "contexts", "reference", "turns"))
    data = chat.data(0)
    assert list(data) == ["answer", "contexts", "reference", "turns"]
    assert [chunk["id"] for chunk in data["contexts"]] == ["c1", "c2"]
    assert data["turns"][0] == {"role": "user", "text": "Where is the depot?"}


@pytest.mark.parametrize("score", ["11", "7.5", "seven", 7, None, "07", "7 of 10"])
def test_a_score_off_the_scale_is_no_score(score: object) -> None:
    """Only the strings of the scale are read; nothing is parsed out of text or clamped."""
    chat = Scripted({"rating": {"reason": "", "score": score}})
    judgement = rated(chat)
    assert chat.defects[0]
    assert judgement.ratings == {}
    assert g_eval("kindness", steps=["Look at it."])(CALL, judgement).attributes == {"judge_model": "scripted"}
    assert judgement.reasons["ratings.kindness"] == "unparsable"


def test_one_failed_rating_leaves_the_others() -> None:
    """Each has its own reason."""
    chat = Scripted({"rating": [RATING, JudgeError("refused")]})
    kind, short = g_eval("kind", steps=["Kind?"]), g_eval("short", steps=["Short?"])
    judgement = labelled(chat, kind, short)
    assert isinstance(kind(CALL, judgement), Score)
    failed = short(CALL, judgement)
    assert isinstance(failed, Unscored)
    assert failed.reason == "refused"


# --- log probabilities ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidates", "low", "high", "value"),
    [
        ([("7", LOG(0.6)), ("8", LOG(0.4))], 0, 10, 7.4),
        ([("7", LOG(0.6)), ("8", LOG(0.009))], 0, 10, 7.0),
        ([("7", LOG(0.5)), (" 9", LOG(0.3)), ("9", LOG(0.2))], 0, 10, 5.3 / 0.7),
        ([("7", LOG(0.5)), ("99", LOG(0.3)), ("seven", LOG(0.1)), ("7.5", LOG(0.1))], 0, 10, 7.0),
        ([("-1", LOG(0.5)), ("1", LOG(0.5))], -1, 1, 0.0),
        ([("x", LOG(0.9))], 0, 10, None),
        ([("7", math.nan), ("8", LOG(0.5))], 0, 10, None),
        ([("9", 0.0005), ("3", LOG(0.02))], 0, 10, None),
        ([("9", LOG(0.6)), ("1", LOG(0.38)), ("8", LOG(0.02))], 0, 10, None),
        ([("9", LOG(0.6)), ("1", LOG(0.38)), ("8", LOG(0.02))], 0, 9, 5.94),
        ([("9", LOG(0.9)), ("1", LOG(0.005))], 0, 10, 9.0),
        ([("85", LOG(0.6)), ("8", LOG(0.3))], 0, 100, None),
        ([("3", LOG(0.6)), ("-", LOG(0.4))], -5, 5, None),
        ([("9", 0.0), ("0", 0.0), ("1", 0.0)], 0, 9, None),
        ([("9", LOG(0.6)), ("8", LOG(0.405))], 0, 9, (9 * 0.6 + 8 * 0.405) / 1.005),
        ([], 0, 10, None),
    ],
)
def test_candidates_are_weighted_by_their_probability(
    candidates: list[tuple[str, float]], low: int, high: int, value: float | None
) -> None:
    """sum(s p) / sum(p) over exact labels with p >= 0.01.

    None for what is no distribution (a NaN, a logarithm above 0, a sum above 1), and where a candidate is the beginning
    of another label: a tokenizer that splits digits writes "1" for the first half of "10".
    """
    found = weighted_rating(candidates, low, high)
    assert found == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"reason":"score: 3","score":"7"}', "7"),
        ('{"score" : "10", "reason": "x"}', "10"),
        ('{"reason": "say {\\"score\\": \\"1\\"}", "score": "7"}', "7"),
        ('{"a": {"score": "1"}, "score": "7"}', "7"),
        ('Sure: ```json\n{"reason": "", "score": "7"}\n```', "7"),
        ('{"reason": "x"}', None),
        ('{"score": 7}', None),
        ("score: 7", None),
        ("", None),
    ],
)
def test_the_score_is_found_by_its_place_in_the_json(text: str, value: str | None) -> None:
    """Not by equal text in the reason, in a deeper object or in a quoted reply."""
    span = value_span(text, "score")
    assert (None if span is None else text[slice(*span)]) == value


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (['{"score":', '"', "7", '"', "}"], (2, "", "")),
        (['{"score":', '"7', '"}'], (1, '"', "")),
        (['{"score":', '"7"}'], (1, '"', '"}')),
        (["<think>7</think>", '{"score":"', "7", '"}'], (2, "", "")),
        (["other", " text"], None),
    ],
)
def test_the_token_of_the_score(tokens: list[str], found: tuple[int, str, str] | None) -> None:
    """With what it has around the value, as tokenizers cut differently."""
    assert score_token('{"score":"7"}', tokens, "score") == found


def test_a_value_of_several_tokens_has_no_token() -> None:
    """Its first one is another number."""
    assert score_token('{"score":"10"}', ['{"score":"', "1", "0", '"}'], "score") is None


def test_candidates_lose_what_stands_around_the_value() -> None:
    """A quotation mark in front of one must be in front of all."""
    alternatives = [{}, {'"7': LOG(0.5), '"9': LOG(0.25), "9": LOG(0.25)}, {}]
    assert expected_rating('{"score":"7"}', ['{"score":', '"7', '"}'], alternatives, "score", 0, 10) == pytest.approx(
        23 / 3
    )


@settings(deadline=None)
@given(st.text(max_size=40), st.lists(st.text(max_size=6), max_size=8))
def test_no_text_whatsoever_breaks_the_search(text: str, tokens: list[str]) -> None:
    """It is found or it is not."""
    for written in (text, json.dumps({"reason": text, "score": "7"})):
        found = expected_rating(written, tokens or [written], [{"7": -0.1}] * max(1, len(tokens)), "score", 0, 10)
        assert found is None or 0 <= found <= 10

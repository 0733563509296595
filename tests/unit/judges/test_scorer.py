"""Consistency from a scorer of pairs: whole or in windows, with nothing cut and nothing made up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragtrace
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.types import Document, Judge, Judgement, RagCall, Result, Score, Unscored
from ragtrace.evaluation.judge_client import JudgeClient
from ragtrace.judges.local.scorer import ScorerJudge, join_into_windows, judge_consistency
from ragtrace.metrics import registry

CALL = RagCall("q", (Document("The depot is in Ghent."), Document("The port is in Antwerp.")), "It is in Ghent.")


def holds(premise: str, hypothesis: str) -> float:
    """Share of the words of the hypothesis that the premise has."""
    words = hypothesis.casefold().strip(".").split()
    return sum(word in premise.casefold() for word in words) / len(words)


def measured(call: RagCall, judgement: Judgement) -> Result:
    return registry.get("consistency")(call, judgement)


# --- windows ---------------------------------------------------------------------------------------------------------
def under(chars: int) -> Callable[[str], bool]:
    return lambda text: len(text) <= chars


def test_whole_chunks_are_put_together_as_far_as_they_fit() -> None:
    """In their order."""
    assert join_into_windows(["aaa", "bbb", "ccc"], under(8)) == ["aaa\n\nbbb", "ccc"]


def test_a_long_chunk_is_split_at_sentences_with_one_of_overlap() -> None:
    """So that what two neighbours say together stays together."""
    text = "One is one. Two is two. Three is three. Four is four."
    assert join_into_windows([text], under(32)) == [
        "One is one. Two is two.",
        "Two is two. Three is three.",
        "Three is three. Four is four.",
    ]


def test_an_overlap_that_leaves_no_room_is_left_out() -> None:
    """Otherwise it would go round in circles."""
    assert join_into_windows(["One is one. Two is two."], under(12)) == ["One is one.", "Two is two."]


@settings(deadline=None)
@given(st.lists(st.text("ab. \n", max_size=60), max_size=5), st.integers(1, 30))
def test_windows_fit_and_hold_every_word(texts: list[str], chars: int) -> None:
    """Whatever the texts."""
    given_texts = [text.strip() for text in texts if text.strip()]
    found = join_into_windows(given_texts, under(chars))
    assert all(len(window) <= chars for window in found)
    letters = sum(window.count("a") + window.count("b") for window in found)
    assert letters >= sum(text.count("a") + text.count("b") for text in given_texts)


# --- the judge -------------------------------------------------------------------------------------------------------
def test_what_fits_is_one_pair() -> None:
    """All contexts that are not blank, each text once, against the whole answer."""
    pairs: list[tuple[str, str]] = []

    def score(premise: str, hypothesis: str) -> float:
        pairs.append((premise, hypothesis))
        return 0.75

    contexts = (*(CALL.contexts or ()), Document(" "), Document("The port is in Antwerp."))
    result = measured(CALL, ScorerJudge(score).judge(replace(CALL, contexts=contexts)))
    assert isinstance(result, Score)
    assert (result.value, result.attributes["method"]) == (0.75, "whole")
    assert pairs == [("The depot is in Ghent.\n\nThe port is in Antwerp.", "It is in Ghent.")]


def test_what_does_not_fit_is_read_in_windows() -> None:
    """The maximum over the windows, the mean over the sentences."""
    call = replace(CALL, answer="The depot is in Ghent. The port is in Bruges.")
    judgement = ScorerJudge(holds, max_chars=50).judge(call)
    assert judgement.consistency == pytest.approx((1.0 + 0.8) / 2)
    assert judgement.attributes == {"method": "windowed", "windows": 2, "sentences": 2}


def test_support_at_the_far_end_is_found() -> None:
    """Cut sources would turn it into inconsistency."""
    contexts = (*(Document(f"Filler number {i}. " * 40) for i in range(30)), Document("The depot is in Ghent."))
    judgement = ScorerJudge(holds, max_chars=2_000).judge(
        replace(CALL, contexts=contexts, answer="The depot is in Ghent.")
    )
    assert judgement.consistency == 1.0
    assert judgement.attributes["method"] == "windowed"


def test_probabilities_are_not_rounded() -> None:
    """To 0 or 1."""
    assert ScorerJudge(lambda premise, hypothesis: 0.4999).judge(CALL).consistency == 0.4999


@pytest.mark.parametrize(("text", "expected"), [("0.8", 0.8), (" 1.0 \n", 1.0)])
def test_a_rating_in_text_is_read_if_it_is_nothing_else(text: str, expected: float) -> None:
    """The whole text is one number."""
    assert ScorerJudge(lambda premise, hypothesis: text).judge(CALL).consistency == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("85%", "unparsable"),
        ("0.75 - good", "unparsable"),
        ("", "unparsable"),
        ("nan", "non_finite"),
        ("8", "out_of_range"),
        ("-0.2", "out_of_range"),
        (float("nan"), "non_finite"),
        (float("inf"), "non_finite"),
        (1.2, "out_of_range"),
        (None, "unparsable"),
        ([0.5], "unparsable"),
    ],
)
def test_a_value_that_is_no_probability_is_an_error(value: str | float, expected: str) -> None:
    """Never clamped, never a default."""
    with pytest.raises(JudgeError) as raised:
        ScorerJudge(lambda premise, hypothesis: value).judge(CALL)
    assert raised.value.reason == expected


def test_a_sentence_that_leaves_no_room_is_truncated() -> None:
    """It is said, not cut."""
    with pytest.raises(JudgeError) as raised:
        ScorerJudge(holds, max_chars=15).judge(CALL)
    assert raised.value.reason == "truncated"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (replace(CALL, answer=" "), "empty_answer"),
        (replace(CALL, contexts=None), "contexts_missing"),
        (replace(CALL, contexts=()), "no_contexts"),
        (replace(CALL, contexts=(Document(" "),)), "no_contexts"),
    ],
)
def test_without_answer_or_contexts_the_scorer_is_not_asked(call: RagCall, expected: str) -> None:
    """Each has its reason."""

    def never(premise: str, hypothesis: str) -> float:
        raise AssertionError(premise)

    result = measured(call, ScorerJudge(never).judge(call))
    assert isinstance(result, Unscored)
    assert result.reason == expected


def test_a_scorer_is_a_judge_of_consistency_alone() -> None:
    """And of what is computed from it. In a thread, as it is a plain function."""
    judge = ScorerJudge(holds, name="words", version="7")
    assert isinstance(judge, Judge)
    assert (judge.id, judge.version, judge.type) == ("words", "7", "model")
    offered = [metric.name for metric in registry.all() if metric.needs and judge.offers(metric)]
    assert offered == ["consistency", "suspicious"]
    judgement = asyncio.run(JudgeClient(judge, timeout=5.0).ask(CALL))
    assert judgement.consistency == pytest.approx(0.75)
    with pytest.raises(SettingsError, match="max_chars must be at least 2"):
        ScorerJudge(holds, max_chars=1)


def test_a_scorer_serves_a_score_without_tracing() -> None:
    """As the judge of `ragtrace.score`."""
    found = ragtrace.score(
        query="q", contexts=["The depot is in Ghent."], answer="The depot is in Ghent.",
        metrics=["consistency"], judge=ScorerJudge(holds),
    )  # fmt: skip
    result = found["consistency"]
    assert isinstance(result, Score)
    assert (result.value, result.evaluator) == (1.0, "scorer@1")


def test_no_pair_has_more_than_a_model_reads_whatever_is_counted() -> None:
    """The longest sentence has few words: a model that counts words, or tokens, has windows for the others, too."""
    chunk = " ".join(f"The {number} is a fact." for number in range(20))
    answer = f"{'Zebra' * 12} ran. A of a of a of a of a is in it. It is so."
    read: list[int] = []

    def words(premise: str, hypothesis: str) -> int:
        return len(premise.split()) + len(hypothesis.split())

    def scores(pairs: Sequence[tuple[str, str]]) -> list[float]:
        read.extend(words(*pair) for pair in pairs)
        return [0.5] * len(pairs)

    call = replace(CALL, contexts=(Document(chunk),), answer=answer)
    found = judge_consistency(call, scores, lambda premise, hypothesis: words(premise, hypothesis) <= 24)
    assert (found.consistency, found.attributes["sentences"]) == (0.5, 3)
    assert max(read) <= 24

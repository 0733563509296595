"""Which earlier turns of a conversation a judge is shown, and how they are bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.core.labels import Turn
from ragtrace.core.types import Document, RagCall
from ragtrace.evaluation.earlier_turns import (
    CUT,
    DOCUMENT,
    MOST_CHARS,
    MOST_TURN_CHARS,
    latest_turns,
    turns_before,
    with_earlier_turns,
)
from ragtrace.evaluation.judge_client import fingerprint

ASKED, TOLD = Turn("user", "How high is the tower?"), Turn("assistant", "330 m.")
LAST = Turn("user", "And how old?"), Turn("assistant", "Very.")
CALL = RagCall("And how old?", None, "Very.", turns=(ASKED, TOLD, *LAST))
PASSAGE = "The tower was built in 1889 for the world's fair."


@pytest.mark.parametrize(
    ("turns", "before"),
    [
        ((ASKED, TOLD, *LAST), (ASKED, TOLD)),
        ((ASKED, TOLD, Turn("user", "and how  old"), LAST[1]), (ASKED, TOLD)),
        ((ASKED, TOLD, LAST[0]), (ASKED, TOLD)),
        ((ASKED, TOLD), (ASKED, TOLD)),
        (LAST, ()),
        ((), ()),
        (None, ()),
    ],
    ids=["whole", "query in other words", "no answer", "only earlier ones", "first exchange", "none", "not known"],
)
def test_the_query_and_its_answer_are_no_earlier_turns(
    turns: tuple[Turn, ...] | None, before: tuple[Turn, ...]
) -> None:
    """They are at the end of `turns`, if the caller keeps to what the field says."""
    assert turns_before(replace(CALL, turns=turns)) == before


def test_a_call_without_turns_is_left_alone() -> None:
    """Nothing is copied on the way of most calls."""
    call = replace(CALL, turns=None)
    assert with_earlier_turns(call) is call


def test_none_are_shown_where_none_are_wanted() -> None:
    """Neither those of the call nor those that were found for it."""
    assert with_earlier_turns(CALL, 0).earlier_turns is None
    assert with_earlier_turns(replace(CALL, earlier_turns=(ASKED,)), 0).earlier_turns is None


def test_the_newest_turns_are_shown() -> None:
    """Oldest first; blank ones do not count."""
    turns = [Turn("user", str(number)) for number in range(20)] + [Turn("assistant", " ")]
    assert [turn.text for turn in latest_turns(turns, 3)] == ["17", "18", "19"]


def test_a_long_turn_loses_its_middle() -> None:
    """The mark says so; both ends stay."""
    (turn,) = latest_turns([Turn("user", "a" * 5_000 + "b" * 5_000)], 6)
    assert len(turn.text) == MOST_TURN_CHARS
    assert turn.text.startswith("aaa")
    assert turn.text.endswith("bbb")
    assert CUT in turn.text


def test_only_whole_turns_are_shown() -> None:
    """The first that does not fit ends the list, so that there is no gap."""
    turns = [Turn("user", "short"), *[Turn("assistant", "x" * 900)] * 5]
    assert [len(turn.text) for turn in latest_turns(turns, 6)] == [900] * 4


def test_documents_in_a_prompt_are_left_out() -> None:
    """As an application writes them around the question, or before it; the assistant's words stay."""
    prompt = f"Answer from the context.\nContext:\n{PASSAGE}\nQuestion: How high is the tower?"
    turns = [Turn("user", prompt), Turn("user", f"{PASSAGE} Is that so?"), Turn("assistant", PASSAGE)]
    shown = [turn.text for turn in latest_turns(turns, 6, [Document(PASSAGE), Document("tower")])]
    assert shown == ["How high is the tower?", f"{DOCUMENT} Is that so?", PASSAGE]


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=3_000)), max_size=12), st.integers(0, 8)
)
def test_turns_are_bounded_and_bounding_them_again_changes_nothing(said: list[tuple[str, str]], most: int) -> None:
    """In number and characters."""
    shown = latest_turns([Turn("user" if role == "user" else "assistant", text) for role, text in said], most)
    assert len(shown) <= most
    assert sum(len(turn.text) for turn in shown) <= MOST_CHARS
    assert latest_turns(shown, most) == shown


def test_a_judgement_is_not_taken_over_from_another_conversation() -> None:
    """ "Yes." to one question is not "Yes." to another."""
    alone = RagCall("Yes.", None, "Fine.")
    keys = {fingerprint(replace(alone, earlier_turns=turns), "judge@1") for turns in (None, (ASKED,), (ASKED, TOLD))}
    assert len(keys) == 3

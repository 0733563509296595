"""Where the reasoning of a model ends and its answer begins."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace.core.labels import Turn
from ragtrace.core.reasoning import may_have_reasoning, split_reasoning, without_reasoning
from ragtrace.core.types import RagCall
from tests.support.examples import examples
from tests.support.ids import readable

ANSWER = "Rome is old.\nIt has seven hills."
BLOCKS = [
    "<think>Is it? Hm.</think>",
    "\n <think>\nIs it?\n\n</think>\n\n",
    "<THINK>Is it?</Think>",
    "<thinking>Is it <b>old</b>?</thinking> ",
    "<thought>a</thought>",
    "<reasoning>a</reasoning>\n",
    "<seed:think>a</seed:think>",
    "[THINK]Is [1] old?[/THINK]",
    "\u25c1think\u25b7a\u25c1/think\u25b7",
    "<|START_THINKING|>a<|END_THINKING|>",
    "<|channel>thought\na<channel|>",
    "<|channel|>analysis<|message|>It is final.<|end|><|start|>assistant<|channel|>final<|message|>",
    "<|start|>assistant<|channel|>analysis<|message|>a<|end|><|channel|>final <|constrain|>x<|message|>",
    "<|channel|>final<|message|>",
    "analysisWe need to say it.assistantfinal",
    "Here is my thought process:\na\n\nHere is my response:\n",
    "<think>They ask about `</think>` and '</think>'.</think>",
    # Templates that have the first mark in the prompt.
    "Is it old? Yes.\n</think>\n\n",
    "</think>",
    "a[/THINK]",
    "So:\n```html\n<p>\n```\nThat is code. </thinking>",
]


@pytest.mark.parametrize("block", BLOCKS, ids=readable)
def test_reasoning_is_split_from_the_answer(block: str) -> None:
    """Nothing is lost: both are the text."""
    found = split_reasoning(block + ANSWER)
    assert (found.reasoning, found.answer) == (block, ANSWER)
    assert found.reasoning.endswith(found.mark)
    assert found.mark
    assert may_have_reasoning(block + ANSWER)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<answer>", "</answer>"),
        ("\n<answer>\n", "\n</answer>\n"),
        ("<response>", "</response>"),
        ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        ("", "<|return|>"),
    ],
)
def test_marks_around_the_answer_are_none_of_it(before: str, after: str) -> None:
    """If reasoning comes before it: else they may be what was asked for."""
    assert split_reasoning(f"<think>a</think>{before}{ANSWER}{after}").answer == ANSWER
    assert split_reasoning(f"{before}{ANSWER}{after}").answer == f"{before}{ANSWER}{after}"


@pytest.mark.parametrize("text", ["<think>Is it", "<think>", "[THINK]a", "<think>a</think>", "a</think>\n", "</think>"])
def test_a_text_may_be_only_reasoning(text: str) -> None:
    """Whether it was cut off, or nothing follows."""
    assert split_reasoning(text).reasoning == text
    assert split_reasoning(text).answer == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ANSWER,
        "<p>Rome</p>",
        "<thinker>Rome</thinker>",
        "Models write <think>a</think> before they answer.",
        "The block ends with `</think>`, and then the answer begins.",
        'It ends with "</think>".',
        "```\na</think>\n```\nThat is the form.",
        '{"a": "</think>"}',
        "`a</think>`",
        '<analysis lang="en">Rome</analysis> is old.',
        "analysis of the assistantfinal form",
        "analysisOfVariance is a name.",
        "Here is my thought process: I think.",
        "<|start|>",
    ],
    ids=readable,
)
def test_what_is_shown_or_named_is_no_reasoning(text: str) -> None:
    """An answer may be about models, or about markup."""
    assert split_reasoning(text) == ("", "", text)


@given(
    st.lists(
        st.sampled_from(
            [
                *("<think>", "</think>", "a ", "`", "```", "\n", "<answer>", "</answer>", "{", "[THINK]", "[/THINK]"),
                *("analysis", "assistantfinal", "Here is my thought process:", "Here is my response:", " "),
            ]
        ),
        max_size=9,
    )
)
@settings(max_examples=examples(300), deadline=None)
def test_the_two_parts_are_parts_of_the_text(parts: list[str]) -> None:
    """In their order, without anything between them."""
    text = "".join(parts)
    found = split_reasoning(text)
    assert text.startswith(found.reasoning + found.answer)
    assert may_have_reasoning(text) or not found.reasoning


@pytest.mark.parametrize("unit", [" ", "<think>", "</think>", "'</think>'", "```", "<", "[THINK]", "a"])
def test_long_texts_cost_no_more_than_their_length(unit: str) -> None:
    """A hostile answer of two million characters is read in a moment."""
    text = unit * (2_000_000 // len(unit))
    began = process_time()
    split_reasoning(text)
    assert process_time() - began < 5.0


def test_a_call_has_no_reasoning_in_any_text_of_its_model() -> None:
    """Neither in its runs nor in the turns of the conversation; the user's stay."""
    block = "<think>a</think>"
    turns = (Turn("user", f"{block}q"), Turn("assistant", f"{block}r"), Turn("assistant", block), Turn("assistant", ""))
    call = RagCall("q", (), f"{block}{ANSWER}", runs=(f"{block}b", "c"), turns=turns, earlier_turns=turns[:2])
    found = without_reasoning(call)
    assert (found.answer, found.reasoning_chars, found.answer_captured) == (ANSWER, len(block), True)
    assert found.runs == ("b", "c")
    assert found.turns == (turns[0], Turn("assistant", "r"), turns[3])
    assert found.earlier_turns == (turns[0], Turn("assistant", "r"))


def test_a_call_without_reasoning_is_the_same() -> None:
    """And one whose answer is nothing else has no answer that anyone has seen."""
    call = RagCall("q", (), ANSWER)
    assert without_reasoning(call) is call
    found = without_reasoning(RagCall("q", (), "<think>a"))
    assert (found.answer, found.answer_captured, found.reasoning_chars) == (None, False, 8)

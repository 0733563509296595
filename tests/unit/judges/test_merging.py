"""Bringing replies together: batches, groups of chunks; and the gold checks."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.core.labels import Support
from ragtrace.judges.llm.gold_checks import GoldCheck, gold_checks
from ragtrace.judges.llm.label_reply import LabelReply, Verdict
from ragtrace.judges.llm.merging import BEST_FIRST, merge_extractions, merge_verifications
from ragtrace.judges.llm.prompt_input import PromptChunk

SUPPORTS: tuple[Support | None, ...] = ("supported", "contradicted", "partial", "not_found", None)


@given(st.lists(st.sampled_from(BEST_FIRST), min_size=1, max_size=5))
def test_the_best_label_of_several_groups_counts(labels: list[Support]) -> None:
    """A statement that one group of chunks supports is supported, whatever the others say."""
    merged = merge_verifications((), [(0, Verdict(label)) for label in labels])
    assert merged.verdicts[0].support == min(labels, key=BEST_FIRST.index)


@pytest.mark.parametrize(("other", "merged"), [("supported", "supported"), ("not_found", None), ("contradicted", None)])
def test_what_one_group_did_not_judge_only_support_makes_up_for(other: Support, merged: Support | None) -> None:
    """Of all other labels the missing one could have been better."""
    found = merge_verifications((), [(0, Verdict(None)), (0, Verdict(other))])
    assert found.verdicts[0].support == merged


def test_a_chunk_is_contradicted_if_any_batch_says_so() -> None:
    """Each batch held other statements against it; its grade is that of the first."""
    replies = [LabelReply(contradicted={"c1": said}, grades={"c1": grade}) for said, grade in ((False, 2), (True, 0))]
    found = merge_verifications(replies, ())
    assert found.contradicted == {"c1": True}
    assert found.grades == {"c1": 2}


def test_parts_of_an_answer_add_up() -> None:
    """It is answered if any part answers, and as good as its best part."""
    first = LabelReply({"s1": "no"}, [], answer_rating=0, answer_label="abstained")
    second = LabelReply({"s2": "yes"}, [], answer_rating=2, answer_label="answered")
    found = merge_extractions([first, second])
    assert found.sentences == {"s1": "no", "s2": "yes"}
    assert (found.answer_rating, found.answer_label) == (2, "answered")


def test_a_part_that_could_not_be_read_is_not_made_up_for() -> None:
    """The statements of half an answer are not those of the answer."""
    found = merge_extractions([LabelReply({"s1": "no"}, [], answer_label="answered"), LabelReply()])
    assert found.statements is found.sentences is found.answer_label is None


@pytest.mark.parametrize(
    ("supported", "label", "failed"),
    [
        (True, "supported", False),
        (True, "partial", True),
        (True, "not_found", True),
        (True, None, True),
        (False, "supported", True),
        (False, "not_found", False),
        (False, "contradicted", False),
        (False, None, True),
    ],
)
def test_when_a_control_item_fails(supported: bool, label: Support | None, failed: bool) -> None:
    """A wrong label, or none."""
    assert GoldCheck("text", supported).failed(Verdict(label)) is failed


def test_a_control_item_stands_by_itself() -> None:
    """A sentence about "it" is only copied where there is no other."""
    chunk = PromptChunk(
        0, "The tower is 330 metres high today. It stands in the middle of Paris. Is it the highest of all?"
    )
    texts = {gold_checks([chunk], random.Random(n))[0].text for n in range(20)}
    assert texts == {"The tower is 330 metres high today."}
    alone = PromptChunk(0, "It stands in the middle of Paris.")
    assert gold_checks([alone], random.Random(1))[0].text == "It stands in the middle of Paris."


def test_without_a_fit_sentence_one_control_is_left() -> None:
    """A chunk of keywords has nothing to copy; the invented statement is there all the same."""
    (only,) = gold_checks([PromptChunk(0, "tower, Paris, height")], random.Random(1))
    assert not only.supported


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("The tower is 330 metres high today.", r"The tower is (?!330)\d{3} metres high today\."),
        ("The tower was opened in 1889 in Paris.", r"The tower was opened in 18(?!89)\d\d in Paris\."),
        (
            "The overdraft interest is 11.2 percent a year.",
            r"The overdraft interest is (?!11\.2)\d\d\.\d percent a year\.",
        ),
        ("The main depot is in Ghent and old.", r"The main depot is in (?!Ghent)[A-Z][a-z]+ and old\."),
    ],
)
def test_a_false_control_is_a_sentence_of_the_chunk_with_another_number_or_name(text: str, pattern: str) -> None:
    """Its words are those of the documents, so that no list of our sentences tells it."""
    found = {gold_checks([PromptChunk(0, text)], random.Random(n))[1] for n in range(40)}
    assert all(re.fullmatch(pattern, one.text) and not one.supported for one in found)
    assert len(found) > 5


@pytest.mark.parametrize(
    "text",
    [
        "The tower is more than 330 metres high.",
        "The tower was not opened in the year 1889.",
        "Das ist die H\u00f6he und nicht der Preis f\u00fcr ein Haus in der Stadt mit dem Turm.",
        "it is three metres high, or so they say [12].",
    ],
)
def test_a_sentence_that_may_be_true_when_changed_is_not_changed(text: str) -> None:
    """More than 330 is more than 300; in German a capital letter is no name: a made-up sentence is taken instead."""
    word = text.split()[-2]
    assert not any(word in gold_checks([PromptChunk(0, text)], random.Random(n))[-1].text for n in range(20))


def test_a_changed_number_is_in_no_chunk() -> None:
    """It might be true by another one."""
    numbers = " ".join(str(number) for number in range(10, 100) if number != 47)
    chunk = PromptChunk(0, f"There are 47 halls in the building.\n{numbers}")
    assert not any("halls" in gold_checks([chunk], random.Random(n))[-1].text for n in range(20))


def test_invented_names_differ() -> None:
    """No text can be prepared for them."""
    texts = {gold_checks([], random.Random(n))[0].text for n in range(200)}
    assert len(texts) > 190

"""Questions that quote the text that they are about, in plain words, behind the passages in plain text.

Small chat models read this form best: they need not find a part of the answer by its number in JSON. A text that a
question quotes is a JSON string at a fixed place, so that no text can end its own quotation. What is the same for
several questions comes first, and questions with the same state follow each other, so that a server reads it once.
Each subject has a state of its own, with nothing in it that the question does not need.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from ragtrace.core.errors import JudgeError
from ragtrace.judges.decision.questions import (
    ADDRESSES,
    DECLINES,
    FEWEST_CHARS,
    DecisionTexts,
    NumberedText,
    Question,
    Subjects,
    Window,
    chunk_name,
    groups,
    reference_name,
    support_name,
)

VERSION: Final = "2"


def windows(texts: DecisionTexts, subjects: Subjects, most_chars: int) -> Iterator[Window]:
    """Yield the states of a call with their questions: about the passages, each passage, and the answer as a whole."""
    if "support" in subjects and texts.chunks:
        yield from _about_support(texts, most_chars)
    if "chunks" in subjects and texts.chunks:
        yield from _about_passages(texts, most_chars)
    if texts.parts and subjects & {"declines", "relevancy", "reference"}:
        yield from _about_answer(texts, subjects, most_chars)


def _about_support(texts: DecisionTexts, most_chars: int) -> Iterator[Window]:
    questions = [
        Question(
            support_name(part.number),
            f"One sentence of the answer is: {_quoted(part.text)}\n\n"
            "Is everything in this sentence stated in the passages?",
        )
        for part in texts.parts
        if part.asked
    ]
    if not questions:
        return
    asked = f"{_conversation(texts)}{_asked(texts)}"
    room = most_chars - len(asked) - max(len(each.text) for each in questions)
    if room < FEWEST_CHARS:
        longest = max(len(part.text) for part in texts.parts if part.asked)
        detail = f"a statement of {longest} characters leaves no room for any chunk"
        raise JudgeError("truncated", detail, retryable=False)
    found = groups(texts.chunks, room, "the retrieved chunks", _size)
    for passages in found:
        shown = "".join(f"Passage {number}: {each.text}\n\n" for number, each in enumerate(passages, 1))
        yield Window(f"{shown}{asked}", questions, is_part=len(found) > 1)


def _about_passages(texts: DecisionTexts, most_chars: int) -> Iterator[Window]:
    asked = f"{_conversation(texts)}{_asked(texts)}"
    question = "Does this passage help to answer the question?"
    room = most_chars - len(asked) - len(question) - 20
    pieces = [piece for group in groups(texts.chunks, room, "the retrieved chunks", _size) for piece in group]
    found = [Question(chunk_name(each.number), f"Passage: {_quoted(each.text)}\n\n{question}") for each in pieces]
    yield Window(asked, found)


def _about_answer(texts: DecisionTexts, subjects: Subjects, most_chars: int) -> Iterator[Window]:
    asked = f"{_conversation(texts)}{_asked(texts)}\n\n"
    claims = [
        Question(
            reference_name(claim.number),
            f"A claim is: {_quoted(claim.text)}\n\nDoes the answer state or imply everything in this claim?",
        )
        for claim in texts.reference
        if "reference" in subjects
    ]
    questions = [
        *[Question(DECLINES, "Does the answer decline to answer the question?")] * ("declines" in subjects),
        *[Question(ADDRESSES, "Does the answer address the question?")] * ("relevancy" in subjects),
        *claims,
    ]
    if not questions:
        return
    room = most_chars - len(asked) - max(len(each.text) for each in questions) - 40
    whole = NumberedText(1, "\n".join(part.text for part in texts.parts), asked=False)
    pieces = groups([whole], room, "the answer", _size)
    for (piece,) in pieces:
        yield Window(f"{asked}The answer is: {_quoted(piece.text)}", questions, is_part=len(pieces) > 1)


def _conversation(texts: DecisionTexts) -> str:
    turns = "\n".join(f"{turn.role}: {_quoted(turn.text)}" for turn in texts.turns)
    return f"Earlier turns of the conversation:\n{turns}\n\n" if turns else ""


def _asked(texts: DecisionTexts) -> str:
    return f"The question was: {_quoted(texts.query)}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _size(item: NumberedText) -> int:
    """Return the number of characters that *item* takes in a state, quoted or behind its number, at most."""
    return len(_quoted(item.text)) + 16

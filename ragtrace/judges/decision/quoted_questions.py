"""Questions that quote the text that they are about, in plain words, behind the passages in plain text.

Small chat models read this form best: they need not find a part of the answer by its number in JSON, nor its evidence
in the passages: the sentences that share most words with it stand beside it. A text that a
question quotes is a JSON string at a fixed place, so that no text can end its own quotation. What is the same for
several questions comes first, and questions with the same state follow each other, so that a server reads it once.
Each subject has a state of its own, with nothing in it that the question does not need.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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
from ragtrace.judges.lexical.closest_passages import PassageSearch

VERSION: Final = "2"
_SUPPORTED: Final = "Is everything in this sentence stated in the passages?"
_MOST_CLOSEST: Final = 3
_CLOSEST_CHARS: Final = 800
"""Room that is kept for the closest sentences in a request. Those that do not fit are left out."""


def windows(texts: DecisionTexts, subjects: Subjects, most_chars: int) -> Iterator[Window]:
    """Yield the states of a call with their questions: about the passages, each passage, and the answer as a whole."""
    if "support" in subjects and texts.chunks:
        yield from _about_support(texts, most_chars)
    if "chunks" in subjects and texts.chunks:
        yield from _about_passages(texts, most_chars)
    if texts.parts and subjects & {"declines", "relevancy", "reference"}:
        yield from _about_answer(texts, subjects, most_chars)


def _about_support(texts: DecisionTexts, most_chars: int) -> Iterator[Window]:
    parts = [part for part in texts.parts if part.asked]
    if not parts:
        return
    answer = " ".join(part.text for part in texts.parts)
    asked = f"{_conversation(texts)}{_asked(texts)}"
    room = most_chars - len(asked) - max(len(_support(part, ()).text) for part in parts)
    if room < FEWEST_CHARS:
        detail = f"a statement of {max(len(part.text) for part in parts)} characters leaves no room for any chunk"
        raise JudgeError("truncated", detail, retryable=False)
    room -= min(_CLOSEST_CHARS, (room - FEWEST_CHARS) // 4)
    found = groups(texts.chunks, room, "the retrieved chunks", _size)
    for passages in found:
        shown = "".join(f"Passage {number}: {each.text}\n\n" for number, each in enumerate(passages, 1))
        state = f"{shown}{asked}"
        search = PassageSearch([each.text for each in passages], answer)
        questions: list[Question] = []
        for part in parts:
            closest = [each.text for each in search.closest(part.text, _MOST_CLOSEST)]
            question = _support(part, closest)
            while closest and len(state) + len(question.text) > most_chars:
                question = _support(part, closest := closest[:-1])
            questions.append(question)
        yield Window(state, questions, is_part=len(found) > 1)


def _support(part: NumberedText, closest: Sequence[str]) -> Question:
    """Return the question whether the passages support *part*, with the sentences of them that are *closest* to it."""
    beside = "".join(f"\n- {_quoted(text)}" for text in closest)
    beside = f"\n\nThe parts of the passages closest to it are:{beside}" if beside else ""
    text = f"One sentence of the answer is: {_quoted(part.text)}{beside}\n\n{_SUPPORTED}"
    return Question(support_name(part.number), text)


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

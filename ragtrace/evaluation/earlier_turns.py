"""Selection of the earlier conversation turns that a judge is shown to understand a query such as "and its height?"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ragtrace.core.labels import Turn
from ragtrace.core.types import Document, RagCall

MOST_TURNS: Final = 6
"""Default of `JudgeLimits(turns=)`: three questions with three answers."""
MOST_TURN_CHARS: Final = 1_000
"""Most characters of one turn; a longer turn loses the middle, as question and conclusion are at the ends."""
MOST_CHARS: Final = 4_000
"""Largest number of characters of all earlier turns together, about 1,000 tokens of a request."""
CUT: Final = " [...] "
"""Mark that replaces the middle of a long turn."""
DOCUMENT: Final = "[document]"
"""Mark that replaces a retrieved document in a user's turn."""


def with_earlier_turns(call: RagCall, most: int = MOST_TURNS) -> RagCall:
    """Return *call* with the earlier conversation turns to show to a judge: the newest ones, at most *most*.

    They are taken from `earlier_turns`, else from `turns`. Retrieved documents in a user's turn are left out.
    """
    if call.earlier_turns is None and call.turns is None:
        return call
    known = turns_before(call) if call.earlier_turns is None else call.earlier_turns
    shown = latest_turns(known, most, call.contexts or ()) or None
    return call if shown == call.earlier_turns else replace(call, earlier_turns=shown)


def turns_before(call: RagCall) -> tuple[Turn, ...]:
    """Return the turns of the conversation of *call* before the call's own query and answer."""
    turns = call.turns or ()
    if turns and turns[-1].role == "assistant" and _same(turns[-1].text, call.answer):
        turns = turns[:-1]
        return turns[:-1] if turns and turns[-1].role == "user" else turns
    return turns[:-1] if turns and turns[-1].role == "user" and _same(turns[-1].text, call.query) else turns


def latest_turns(turns: Sequence[Turn], most: int, documents: Sequence[Document] = ()) -> tuple[Turn, ...]:
    """Return the newest *turns* of a conversation, oldest first, within limits on their number and total length.

    Blank turns are left out, and *documents* in the turns of the user.
    """
    shown: list[Turn] = []
    room = MOST_CHARS
    for turn in reversed(turns):
        if len(shown) >= most:
            break
        text = turn.text if turn.role == "assistant" else _without_documents(turn.text, documents)
        text = shorten(text.strip(), MOST_TURN_CHARS)
        if len(text) > room:
            break
        if text:
            shown.append(turn if text == turn.text else Turn(turn.role, text))
            room -= len(text)
    return tuple(reversed(shown))


def _same(text: str, other: str | None) -> bool:
    return text.split() == (other or "").split()


def shorten(text: str, most: int) -> str:
    """Return *text* cut in the middle, with a mark there, if it has more than *most* characters."""
    if len(text) <= most:
        return text
    end = (most - len(CUT)) // 2
    return f"{text[: most - len(CUT) - end]}{CUT}{text[-end:]}"


def _without_documents(text: str, documents: Sequence[Document]) -> str:
    """Return the question in a user's turn, without the documents that the application put into the prompt."""
    for document in documents:
        # Least number of characters of a document that is replaced; a shorter one may be a word of the question itself.
        if len(document.text) >= 40:
            text = text.replace(document.text, DOCUMENT)
    text = shorten(text, MOST_CHARS)  # first, as the patterns below take milliseconds for long texts
    if "\n" in text or "<" in text:
        from ragtrace.capture.prompt_parts import split_prompt  # compiling its patterns takes time, mostly for nothing

        parts = split_prompt(text)
        if parts is not None and parts.question:
            return parts.question
    return text

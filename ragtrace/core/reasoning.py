"""Finds the reasoning of a model at the beginning of its answer, which is no statement to the user.

Servers with a parser for the model give it in a field of its own. Without one it is in the text, between marks: the
forms are those that the models' chat templates and the reasoning parsers of vLLM define.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ragtrace.core.labels import Turn

if TYPE_CHECKING:
    from ragtrace.core.types import RagCall

_TAGS: Final = "think|thinking|thought|thoughts|reasoning|reflection|analysis|scratchpad|seed:think"
_MARKS: Final = (
    (re.compile(r"\[THINK\]"), re.compile(r"\[/THINK\]")),
    (re.compile("\u25c1think\u25b7"), re.compile("\u25c1/think\u25b7")),
    (re.compile(r"<\|START_THINKING\|>"), re.compile(r"<\|END_THINKING\|>")),
    (re.compile(r"<\|begin_of_thought\|>"), re.compile(r"<\|end_of_thought\|>")),
    (re.compile(r"<\|channel>"), re.compile(r"<channel\|>")),
    (
        re.compile(r"(?:<\|start\|>assistant)?<\|channel\|>(?=analysis|commentary|final)"),
        re.compile(r"(?:<\|channel\|>)?final(?:[^<]|<\|constrain\|>){0,99}<\|message\|>"),
    ),
)
"""Marks before and after the reasoning, beside tags: of Mistral, Kimi, Cohere, Open Thoughts, Gemma, gpt-oss."""
_TAG: Final = re.compile(rf"<({_TAGS})>", re.IGNORECASE)
_BOTH: Final = (
    (re.compile(r"analysis(?=\S)"), re.compile(r"assistantfinal(?=\S)")),  # gpt-oss without its special tokens
    (re.compile(r"Here(?:'s| is) my thought process:"), re.compile(r"Here(?:'s| is) my response:")),  # Granite
)
"""Words before and after the reasoning, which are marks only together."""
_FIRST_SIGNS: Final = ("<", "[", "\u25c1", "analysis", "Here")
_FIRST_OF_WORDS: Final = "aH"
"""First characters of those that are words; that of an empty text is among them."""
_LONE_SIGNS: Final = ("</", "[/THINK]", "\u25c1/think\u25b7", "<|END_THINKING|>", "<|end_of_thought|>")
_LONE: Final = re.compile(
    rf"</({_TAGS})>|\[/THINK\]|\u25c1/think\u25b7|<\|END_THINKING\|>|<\|end_of_thought\|>", re.IGNORECASE
)
_QUOTES: Final = frozenset("`\"'\u201c\u201d\u2018\u2019\u00ab\u00bb")
_BEFORE: Final = re.compile(r"\s*(?:(<answer>|<response>|<output>|<\|START_RESPONSE\|>|<\|begin_of_solution\|>)\s*)?")
_AFTER: Final = (
    *("</answer>", "</response>", "</output>"),
    *("<|END_RESPONSE|>", "<|end_of_solution|>", "<|return|>", "<|end|>"),
)
"""Marks around an answer that follows its reasoning."""
MARK_ENDS: Final = (">", "]", "\u25b7")
"""Last characters of the marks after reasoning that has one before it."""


class SplitAnswer(NamedTuple):
    """Answer of a model, split into its reasoning and what it says to the user."""

    reasoning: str
    """Text before the answer, with the marks around it and white space; empty: there is none."""
    mark: str
    """End of `reasoning` from the mark that ends it; empty: it has none."""
    answer: str
    """What follows, without marks around it; empty: the text is only reasoning."""


def split_reasoning(text: str) -> SplitAnswer:
    """Split *text*, the answer of a model, into the reasoning at its beginning and the answer.

    Reasoning ends at the first mark that is not in quotation marks. Chat templates may have its first mark in the
    prompt, so that only that at its end is in the text.
    """
    begin = text.lstrip()
    start = len(text) - len(begin)
    found = _block(text, start) if begin.startswith(_FIRST_SIGNS) else None
    # Nearly every answer has no mark. To search for one character is quick, as the application's thread may wait.
    may_end = found is None and ("<" in text or "[" in text or "\u25c1" in text)
    if may_end and any(sign in text for sign in _LONE_SIGNS):
        found = _lone_end(text, start)
    if found is None:
        return SplitAnswer("", "", text)
    mark, end = found
    before = _BEFORE.match(text, end)
    end = end if before is None else before.end()
    return SplitAnswer(text[:end], text[mark:end], without_end_mark(text[end:]))


def may_have_reasoning(text: str) -> bool:
    """Return whether `split_reasoning` may find any in *text*: nearly always False, at less cost."""
    # To search for one character is quick.
    if "<" in text or "[" in text or "\u25c1" in text:
        return True
    return text[:1] in _FIRST_OF_WORDS or text[:1].isspace()


def without_end_mark(answer: str) -> str:
    """Return *answer*, which follows reasoning, without the mark at its end, if it has one."""
    bare = answer.rstrip()
    return bare[: bare.rindex("<")].rstrip() if bare.endswith(_AFTER) else answer


def _block(text: str, start: int) -> tuple[int, int] | None:
    """Return where the mark at the end of the reasoning begins and ends, or None if *text* begins with none."""
    tag = _TAG.match(text, start)
    if tag is not None:
        close = re.compile(f"</{re.escape(tag.group(1))}>", re.IGNORECASE)
        return _first_unquoted(close, text, tag.end()) or (len(text), len(text))
    for begin, close in _MARKS:
        if (first := begin.match(text, start)) is not None:
            return _first_unquoted(close, text, first.end()) or (len(text), len(text))
    for begin, close in _BOTH:
        if (first := begin.match(text, start)) is not None:
            return _first_unquoted(close, text, first.end())
    return None


def _lone_end(text: str, start: int) -> tuple[int, int] | None:
    """Return where a mark without one before it begins and ends, or None: JSON and code may show such marks."""
    found = None if text[start] in "{`" else _first_unquoted(_LONE, text, start)
    if found is None:
        return None
    mark, end = found
    tag = text[mark + 2 : end - 1]
    is_open = text[mark] == "<" and re.search(rf"<{re.escape(tag)}\b", text[:mark], re.IGNORECASE) is not None
    return None if is_open or text.count("```", 0, mark) % 2 else found


def _first_unquoted(mark: re.Pattern[str], text: str, start: int) -> tuple[int, int] | None:
    for found in mark.finditer(text, start):
        before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
        if not (before in _QUOTES and after in _QUOTES):
            return found.span()
    return None


def without_reasoning(call: RagCall) -> RagCall:
    """Return *call* with the reasoning taken out of its answer, runs and turns; one that is nothing else is no answer.

    What is counted from the beginning of the answer, such as the place of a statement, is counted from the end of its
    reasoning (`RagCall.reasoning_chars`).
    """
    changes: dict[str, Any] = {}
    if call.answer and (found := split_reasoning(call.answer)).reasoning:
        is_captured = call.answer_captured and bool(found.answer.strip())
        changes = {"answer": found.answer if is_captured else None, "answer_captured": is_captured}
        changes["reasoning_chars"] = len(found.reasoning)
    if call.runs is not None:
        changes["runs"] = tuple(split_reasoning(run).answer for run in call.runs)
    if call.turns is not None:
        changes["turns"] = _said(call.turns)
    if call.earlier_turns is not None:
        changes["earlier_turns"] = _said(call.earlier_turns)
    return replace(call, **changes) if changes else call


def _said(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    split = [turn if turn.role == "user" else Turn(turn.role, split_reasoning(turn.text).answer) for turn in turns]
    return tuple(new for new, turn in zip(split, turns, strict=True) if new.text.strip() or not turn.text.strip())

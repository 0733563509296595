"""Questions about a RAG call for a decision model: which texts they are about, and how they become requests.

A request has a state, which is text, and questions about that state. `numbered_questions` and `quoted_questions` are
two ways to write both. Which of them a model answers better is found by measuring: docs/judges.md has the figures.

A call that is longer than a request may be is split into windows: of the parts of the answer, of the chunks, or of
both. Nothing is left out. A chunk longer than a window is cut at sentence ends, with one sentence of overlap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Turn
from ragtrace.judges.lexical.statements import Statement
from ragtrace.judges.llm.invisible_chars import without_invisible
from ragtrace.judges.local.scorer import split_at_sentences

Subject: TypeAlias = Literal["support", "chunks", "declines", "relevancy", "reference"]
"""What is asked: about each statement, each chunk, twice about the answer as a whole, or about each reference claim."""
Subjects: TypeAlias = frozenset[Subject]
Answer: TypeAlias = "float | str"
"""Answer to a question: the probability of yes, or the reason why there is none."""
DECLINES: Final = "declines"
ADDRESSES: Final = "addresses"
FEWEST_CHARS: Final = 200
"""Fewest characters of texts in a window. With less room, the rest of a request is too long for the model."""
_MARKER: Final = re.compile(r"[\s\-*+>#_`\u2022]*(?:\(?[0-9A-Za-z]{1,3}[.)\]])?[\s*_`]*")
"""Pattern of what may stand between two statements without being text: white space, a list marker, markup."""


class Question(NamedTuple):
    """Yes-or-no question about the state of a request: its name in request and reply, and its text."""

    name: str
    text: str


class DecisionRequest(NamedTuple):
    """One request to a decision model: the state as text, and the questions about it."""

    state: str
    questions: tuple[Question, ...]
    is_part: bool = False
    """Whether the state has a part of the texts that the questions are about, the rest being in other requests."""


class Window(NamedTuple):
    """State with the texts of a call that fit into a request, and all questions about it."""

    state: str
    questions: Sequence[Question]
    is_part: bool = False
    """Whether the rest of the texts that the questions are about is in other windows."""


class NumberedText(NamedTuple):
    """Text of a call, with the number that is in the names of the questions about it."""

    number: int
    text: str
    asked: bool = True
    """Whether a question is asked about the text; False: a part of the answer that states nothing."""


@dataclass(frozen=True, slots=True)
class DecisionTexts:
    """Texts of one call as a decision model is shown them."""

    query: str
    turns: tuple[Turn, ...]
    chunks: tuple[NumberedText, ...]
    """Distinct chunks that are not blank, numbered by their ranks from 1."""
    parts: tuple[NumberedText, ...]
    """Parts of the answer, which together are the whole answer."""
    reference: tuple[NumberedText, ...] = ()
    """Claims of the reference answer."""

    @property
    def turn_chars(self) -> int:
        """Number of characters of the earlier turns."""
        return sum(len(turn.text) for turn in self.turns)


Windows: TypeAlias = Callable[[DecisionTexts, Subjects, int], Iterator[Window]]
"""A way to ask: from the texts of a call, the subjects and the most characters of a request to its windows.

Raises a `JudgeError` ("truncated") where a single statement is too long for a request. A subject without a text (no
chunk, no claim) is not asked about.
"""


def support_name(number: int) -> str:
    """Return the name of the question whether the chunks support the part of the answer with that *number*."""
    return f"s{number}"


def chunk_name(number: int) -> str:
    """Return the name of the question whether the chunk with that *number* is relevant to the query."""
    return f"c{number}"


def reference_name(number: int) -> str:
    """Return the name of the question whether the answer entails the claim of the reference with that *number*."""
    return f"r{number}"


def answer_parts(answer: str, statements: Sequence[Statement]) -> tuple[tuple[NumberedText, ...], dict[int, int]]:
    """Divide *answer* into its statements and what stands between them, such as tables and code.

    Returns:
        The parts, and the number of the part of each statement by the statement's index. A statement that is not
        checkable is a part that nothing is asked about.
    """
    parts: list[NumberedText] = []
    numbers: dict[int, int] = {}

    def add(text: str, *, asked: bool) -> None:
        shown = without_invisible(text).strip()
        if shown:
            parts.append(NumberedText(len(parts) + 1, shown, asked))

    at = 0
    for index, statement in enumerate(statements):
        between = answer[at : statement.start]
        if not _MARKER.fullmatch(between):
            add(between, asked=False)
        before = len(parts)
        add(answer[statement.start : statement.end], asked=statement.checkable)
        if len(parts) > before:
            numbers[index] = parts[-1].number
        at = statement.end
    if not _MARKER.fullmatch(answer[at:]):
        add(answer[at:], asked=False)
    return tuple(parts), numbers


def plan_requests(windows: Iterable[Window], most_questions: int) -> list[DecisionRequest]:
    """Return the requests that ask the questions of *windows*.

    Args:
        windows: states with their questions.
        most_questions: most questions in a request. Requests with the same state follow each other.
    """
    return [
        DecisionRequest(state, tuple(questions[at : at + most_questions]), is_part)
        for state, questions, is_part in windows
        for at in range(0, len(questions), most_questions)
    ]


def combine(answers: Iterable[tuple[Question, Answer]]) -> dict[str, Answer]:
    """Join the answers that the windows of a call gave to the same questions, by name of the question.

    A statement that the chunks of one window support is supported, so that the highest probability counts; an answer
    declines only if all of its windows do. A question without an answer in one window has none.
    """
    found: dict[str, Answer] = {}
    for (name, _), answer in answers:
        known = found.setdefault(name, answer)
        if isinstance(known, str) or isinstance(answer, str):
            found[name] = known if isinstance(known, str) else answer
        else:
            found[name] = min(known, answer) if name == DECLINES else max(known, answer)
    return found


def groups(
    items: Sequence[NumberedText], room: int, what: str, size: Callable[[NumberedText], int]
) -> list[tuple[NumberedText, ...]]:
    """Divide *items*, in order, into groups of at most *room* characters. A longer item is cut at sentence ends.

    Args:
        items: the texts.
        room: most characters of a group.
        what: name of the texts in an error.
        size: returns the number of characters that a text takes in a state.

    Raises:
        JudgeError: "truncated": there is too little room, or a statement does not fit.
    """
    if items and room < FEWEST_CHARS:
        raise JudgeError("truncated", f"no room for {what} in a request to the decision model", retryable=False)
    found: list[tuple[NumberedText, ...]] = []
    group: list[NumberedText] = []
    used = 0
    for item in _cut(items, room, what, size):
        # A number occurs once in a state, as two pieces of a chunk would have the same one.
        if group and (used + size(item) > room or group[-1].number == item.number):
            found.append(tuple(group))
            group, used = [], 0
        group.append(item)
        used += size(item)
    return [*found, tuple(group)] if group else found


def _cut(
    items: Sequence[NumberedText], room: int, what: str, size: Callable[[NumberedText], int]
) -> Iterator[NumberedText]:
    for item in items:
        if size(item) <= room:
            yield item
        elif what == "the answer" and item.asked:
            detail = f"a statement of {len(item.text)} characters leaves no room for any chunk"
            raise JudgeError("truncated", detail, retryable=False)
        else:
            fits: Callable[[str], bool] = lambda text: size(NumberedText(0, text)) <= room  # noqa: E731
            for piece in split_at_sentences(item.text, fits):
                yield item._replace(text=piece)


def why_unanswered(answers: Mapping[str, Answer], names: Iterable[str]) -> str:
    """Return the first reason why one of the questions *names* has no probability, or "" if all have one."""
    for name in names:
        answer = answers.get(name, "unanswered")
        if isinstance(answer, str):
            return answer
    return ""

"""Finds the citations in an answer: [1], [1,2], [1][2], [2-4], [^1], [doc 3], or the id of a document in brackets."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

_BRACKETS: Final = re.compile(r"[\[\u3010\uff3b]([^\[\]\u3010\u3011\uff3b\uff3d\n]{1,80})[\]\u3011\uff3d]")
_NUMBERED: Final = re.compile(
    r"\s{0,4}\^?(?:(?:doc|document|source|passage|context|chunk|ref|reference|quelle)s?[\s:#.]{0,3}|c|#)?(\d{1,3})"
    r"(?:\s{0,2}[-\u2013]\s{0,2}(\d{1,3}))?\s{0,4}",
    re.IGNORECASE,
)
_BETWEEN: Final = re.compile(r"[,;&]|\band\b")
_CODE: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_LONGEST_RANGE: Final = 50
MOST_MARKS: Final = 1_000
"""Most citations that are read in an answer."""


class CitationMark(NamedTuple):
    """Citation of one retrieved passage, such as [2], at one place in an answer."""

    start: int
    end: int
    """Offset after the closing bracket of the citation."""
    marker: str
    """Text of the citation, as written in the answer."""
    rank: int | None
    """Rank of the cited passage, from 0; None if there is no such passage."""


def citation_marks(answer: str, ids: Sequence[str | None]) -> list[CitationMark]:
    """Return all citations in *answer*, such as [1], in order of appearance. Citations within code are ignored.

    An id of a document goes before a number, and a number counts passages from 1. Brackets with anything else in them
    cite nothing.

    Args:
        ids: ids of the passages, in rank order; None where a passage has no id.
    """
    if "[" not in answer and "\u3010" not in answer and "\uff3b" not in answer:
        return []
    known: dict[str, int] = {}
    for rank, name in enumerate(ids):
        if name:
            known.setdefault(name, rank)
    code = [match.span() for match in _CODE.finditer(answer)] if "`" in answer else []
    found: list[CitationMark] = []
    for match in _BRACKETS.finditer(answer):
        if len(found) >= MOST_MARKS:
            break
        if not any(start <= match.start() < end for start, end in code):
            cited = _citations_in(match[1], known, len(ids))
            found += [CitationMark(match.start(), match.end(), marker, rank) for marker, rank in cited]
    return found[:MOST_MARKS]


def _citations_in(inside: str, known: Mapping[str, int], count: int) -> Iterator[tuple[str, int | None]]:
    """Yield each citation in *inside*, the text between two brackets.

    A citation is its text and the rank of the cited passage, or None if there is no such passage.
    """
    if inside.strip() in known:
        yield f"[{inside.strip()}]", known[inside.strip()]
        return
    found: list[tuple[str, int | None]] = []
    for piece in map(str.strip, _BETWEEN.split(inside)):
        if piece in known:
            found.append((f"[{piece}]", known[piece]))
        elif number := _NUMBERED.fullmatch(piece):
            first, last = int(number[1]), int(number[2] or number[1])
            numbers = range(first, min(last, first + _LONGEST_RANGE) + 1)
            found += [(f"[{one}]", _rank_from_number(one, count)) for one in numbers]
            if not numbers:
                return
        else:  # "[see 1]" and "[sic]" cite nothing
            return
    yield from found


def _rank_from_number(number: int, count: int) -> int | None:
    return number - 1 if 1 <= number <= count else None


def cited_rank(cited: str, ids: Sequence[str | None]) -> int | None:
    """Return the rank, from 0, of the retrieved passage to which a citation refers.

    *cited* is the id of the passage or its number, from 1. The rank is None if there is no such passage.
    """
    for rank, name in enumerate(ids):
        if name == cited:
            return rank
    number = _NUMBERED.fullmatch(cited)
    return _rank_from_number(int(number[1]), len(ids)) if number and not number[2] else None


def attach_trailing_citations(
    answer: str, ranges: Sequence[tuple[int, int]], found: Sequence[CitationMark]
) -> list[tuple[int, int]]:
    """Return sentence *ranges*, each extended over the citations that follow the sentence's full stop.

    "It is high. [1] It is old.[2] It is brown." is three sentences, of which the first cites 1 and the second 2.
    """
    ends = {mark.start: mark.end for mark in found}
    starts = sorted(ends)
    result: list[tuple[int, int]] = []
    for start, end in ranges:
        after = _end_of_citations(answer, start, end, ends)
        if after > start and result and "\n" not in answer[result[-1][1] : start]:
            result[-1] = (result[-1][0], after)
            start = _skip_space(answer, after, end)
        if start < end:
            inside = starts[bisect_right(starts, start) : bisect_left(starts, end)]
            result += _split_after_citations(answer, start, end, ends, inside)
    return result


def _split_after_citations(
    answer: str, start: int, end: int, ends: Mapping[int, int], inside: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Split a sentence range after each citation that follows a full stop, and yield the parts.

    The range goes from *start* to *end*.

    Args:
        inside: offsets where citations begin.
    """
    for at in inside:
        if start < at and answer[at - 1] in ".!?\u3002":
            after = _end_of_citations(answer, at, end, ends)
            if after < end and answer[after].isspace():
                yield start, after
                start = _skip_space(answer, after, end)
    if start < end:
        yield start, end


def _end_of_citations(answer: str, at: int, end: int, ends: Mapping[int, int]) -> int:
    """Return the offset after the run of citations that begins at *at*, or *at* if no citation begins there.

    There may be space between the citations.
    """
    after = at
    while at < end and at in ends:
        after = ends[at]
        at = _skip_space(answer, after, end)
    return after


def _skip_space(answer: str, at: int, end: int) -> int:
    while at < end and answer[at] in " \t":
        at += 1
    return at

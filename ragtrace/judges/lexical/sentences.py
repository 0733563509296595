"""Splits text into sentences, deterministically, and gives their offsets.

Decimals, abbreviations, initials and URLs stay whole; every list item is a sentence, without its marker; the full stops
of Chinese, Japanese, Arabic, Urdu and Hindi are known. A sentence is never longer than `MAX_SENTENCE_CHARS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ragtrace.core.text import LazyPattern

MAX_SENTENCE_CHARS: Final = 600
"""Longer sentences are cut at white space, so that no step on a sentence can take long."""

# A full stop ends a sentence only before white space; the stops of scripts without spaces end one anywhere.
# The pattern begins with the set of all first characters, as the search is fast only then.
_SPACED_STOPS: Final = ".!?\u2026"
_UNSPACED_STOPS: Final = "\u3002\uff01\uff1f\uff61\u061f\u06d4\u0964\u0965"
_STOP = LazyPattern(
    rf"[{_SPACED_STOPS}{_UNSPACED_STOPS}\n](?:"
    rf"(?<=[{_SPACED_STOPS}])[{_SPACED_STOPS}]{{0,15}}[\"'\u201d\u2019)\]*_]{{0,4}}(?=\s|\Z)"
    rf"|(?<=[{_UNSPACED_STOPS}])[{_UNSPACED_STOPS}]{{0,15}}[\"'\u201d\u2019)\]\u300d\u300f\uff09]{{0,4}}|(?<=\n))"
)
# "J. Smith" is no list.
_MARKER = LazyPattern(
    r"[ \t]{0,32}(?:[-*+\u2022\u2023\u25cf\u25e6\u2013\u2014]|#{1,6}|\(?(?:\d{1,3}[.)]|[A-Za-z]\)|[a-z]\.))[ \t]{1,8}"
)
_SOURCES: Final = (
    r"\W{0,6}(?:sources?|references?|citations?|quellen?|quellenangaben?|fuentes?|referencias?|fontes?|referências?|fonti"
    r"|références?|bron(?:nen)?|источники?|المصادر|المراجع|参考资料|参考文献|来源|出典|参照|स्रोत)\W{0,4}(?:[:\uff1a]|\Z)"
)
SOURCES: Final = LazyPattern(_SOURCES, re.IGNORECASE)
"""The beginning of a list of sources, as a line or a sentence of its own."""
# Only where one of these is found are lines looked at one by one.
_LAID_OUT = LazyPattern(rf"```|~~~|^[ \t]{{0,8}}(?:\||#{{1,6}} |\*\*|{_SOURCES})", re.MULTILINE | re.IGNORECASE)
_HEADING = LazyPattern(r"#{1,6} .{1,200}|\*\*[^*]{1,80}[^*.!?]\*\*:?")
_LIST_ITEM = LazyPattern(r"[ \t]{0,8}(?:[-*+\u2022]|\(?\[?\d{1,3}[.)\]]|https?://)")
_TEXT_FENCES: Final = frozenset("markdown md text txt".split())
_SPACE = LazyPattern(r"\s{1,256}")
_NEXT_WORD = LazyPattern(r"\s{0,64}[\"'(\[\u201c\u2018*_]{0,4}([^\s]{0,32})")
# Never the end of a sentence.
_INNER: Final = frozenset(
    "mr mrs ms dr prof st mt vs cf fig figs nos vol pp eg e.g i.e ie approx ca gen col sgt rev hon".split()
)
# May end one: it does when the next word is one that starts sentences.
_OUTER: Final = frozenset(
    "etc inc ltd co corp jr sr dept est u.s u.k u.n a.m p.m b.c a.d ph.d al jan feb apr jun jul aug sept oct nov"
    " dec".split()
)
_STARTERS: Final = frozenset(
    "the a an it he she they we you i this that these those there in on at for from by as if when while after before"
    " however but and so to its his her their our your what who how why where".split()
)


def prose_and_code(text: str, end: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the ranges of ``text[:end]`` in order, and whether each is code; without tables, headings, source lists."""
    if not _LAID_OUT.search(text, 0, end):
        yield 0, end, False
        return
    begin = at = 0
    while at < end:
        fence = _fenced_code(text, at, end)
        stop = fence[1] if fence else _end_of_layout(text, at, end)
        if stop > at:
            if at > begin:
                yield begin, at, False
            if fence:
                yield _next_line(text, at, end), fence[0], True
            begin = at = stop
        else:
            at = _next_line(text, at, end)
    if begin < end:
        yield begin, end, False


def _next_line(text: str, at: int, end: int) -> int:
    stop = text.find("\n", at, end)
    return end if stop < 0 else stop + 1


def _fenced_code(text: str, at: int, end: int) -> tuple[int, int] | None:
    """Return where the code behind the fence in the line at *at* ends, and where its closing fence ends.

    None if the line is no such fence: text that is fenced as text is no code, nor is that behind a fence without end.
    """
    stop = _next_line(text, at, end)
    line = text[at:stop].strip()
    if not line.startswith(("```", "~~~")) or line[3:].strip().lower() in _TEXT_FENCES:
        return None
    closed = text.find(line[:3], stop, end)
    return None if closed < 0 else (closed, _next_line(text, closed, end))


def _end_of_layout(text: str, at: int, end: int) -> int:
    """Return where the table, heading or list of sources ends that begins with the line at *at*; *at* if it is none."""
    stop = _next_line(text, at, end)
    line = text[at:stop].strip()
    if line.startswith(("```", "~~~")):
        return stop
    if (line.startswith("|") and line.count("|") > 1) or _HEADING.fullmatch(line):
        return stop
    if not SOURCES.match(line):
        return at
    while stop < end and (_LIST_ITEM.match(text, stop, end) or text[stop] == "\n"):
        stop = _next_line(text, stop, end)
    return stop


def sentences(text: str, end: int | None = None, begin: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the sentences of ``text[begin:end]``, in order, without white space and list markers."""
    end = len(text) if end is None else min(end, len(text))
    start = _next_start(text, begin, end)
    while start < end:
        stop = _end_of_sentence(text, start, end)
        last = stop
        while last > start and text[last - 1].isspace():
            last -= 1
        if last > start:
            yield start, last
        start = _next_start(text, stop, end)


def _next_start(text: str, at: int, end: int) -> int:
    """Return the offset behind white space at *at*, and behind a list marker if a line starts there."""
    fresh = at == 0 or text[at - 1] == "\n"
    while at < end and text[at].isspace() and (space := _SPACE.match(text, at, end)):
        fresh = fresh or "\n" in space[0]
        at = space.end()
    if (marker := _marker(text, at, end)) and (fresh or text[at].isdigit()):
        return marker
    return at


def _marker(text: str, at: int, end: int) -> int:
    """Return the offset after the list marker at *at*, 0 if there is none."""
    if text[at : at + 2].isalpha():  # a word, as nearly always
        return 0
    found = _MARKER.match(text, at, end)
    return found.end() if found and found.end() < end else 0


def _end_of_sentence(text: str, start: int, end: int) -> int:
    """Return the offset after the sentence of ``text[:end]`` that starts at *start*."""
    limit = min(start + MAX_SENTENCE_CHARS, end)
    for match in _STOP.finditer(text, start, limit):
        # `\Z` also matches at the limit, where the text goes on.
        if match.end() == limit < end and not text[limit].isspace():
            break
        if _is_end(text, start, match, end):
            return match.end()
    if limit == end:
        return end
    space = max(text.rfind(" ", start, limit), text.rfind("\n", start, limit))
    return space + 1 if space > start else limit


def _is_end(text: str, start: int, match: re.Match[str], end: int) -> bool:
    """Return whether the stop *match* ends the sentence that starts at *start*."""
    mark = match[0]
    if mark == "\n":
        return _line_is_end(text, start, match.start(), end)
    if mark[0] != ".":
        return not _continues(text, match.end(), end) or mark[0] not in "\u2026"
    before = _last_word(text, start, match.start())
    last = before.lower()
    if last in _INNER or (len(before) == 1 and before.isupper()):
        return False
    if last in _OUTER and mark == ".":
        following = _next_word(text, match.end(), end)
        return not following or following.lower() in _STARTERS or text.startswith("\n", match.end())
    return not _continues(text, match.end(), end)


def _line_is_end(text: str, start: int, at: int, end: int) -> bool:
    """Return whether the line break at *at* ends a sentence: not if the next line goes on in lower case."""
    if not text[start:at].strip():
        return False
    if text.startswith("\n", at + 1) or _marker(text, at + 1, end):
        return True
    return not _continues(text, at, end)


def _continues(text: str, at: int, end: int) -> bool:
    """Return whether the text at *at* goes on in lower case, as within a sentence."""
    if text[at : at + 1] == " " and text[at + 1 : min(at + 2, end)].isupper():  # as nearly always
        return False
    following = _next_word(text, at, end)
    return bool(following) and following[0].islower()


def _last_word(text: str, start: int, at: int) -> str:
    words = text[max(start, at - 32) : at].rsplit(None, 1)
    return words[-1].lstrip("([\"'\u201c\u2018*_") if words else ""


def _next_word(text: str, at: int, end: int) -> str:
    found = _NEXT_WORD.match(text, at, end)
    return found[1] if found else ""

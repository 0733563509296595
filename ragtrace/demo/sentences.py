"""Plain sentences out of docstrings and text files, and the grammar that turns them into statements."""

from __future__ import annotations

import re
from collections.abc import Iterator

FEWEST_WORDS = 3
MOST_CHARS = 320

_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+[.)])\s)")
_END = re.compile(r"(?<=[.!?])[)\"'`]*\s+(?=[A-Z\"'`(*])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|approx|[A-Z])\.)$")
_NOT_PROSE = re.compile(r"^\s*(?:>>>|\.\.\.|[|+=~#^-]{3,}|[$%]\s|:\w+)|[{}<>|]{2}|=\s*\w+\(|\w\(.*\)\s*->")
_PARAMETER = re.compile(r"[a-z_]\w* [A-Z]")
"""A parameter's name above its description, run together: not a sentence."""
_AND_RETURN = re.compile(r"\band return\b")
_BULLET = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")

VERBS = frozenset(
    "accept acquire add append apply arrange assert build calculate call cancel change check clear close compare"
    " compile compute configure connect construct convert copy count create decode define delete describe"
    " determine disable display dump emit enable encode ensure escape execute expand extend extract feed fetch"
    " fill find flush force format generate get guess handle import indicate insert install invoke iterate join"
    " kill list load lock log look make manage map mark match merge move normalize obtain open override pack parse"
    " partition perform pop prepare print process produce provide push put quote raise read receive register"
    " release remove rename render replace report represent request reset resolve retrieve return reverse rotate"
    " round run save scan schedule search select send serialize set show shuffle signal skip sleep sort split"
    " start stop store strip submit support swap take terminate test transform translate truncate try turn unpack"
    " unregister update validate verify wait walk wake warn wrap write yield".split()
)
"""Verbs that open a docstring in the imperative mood."""


def sentences(text: str) -> Iterator[str]:
    """Complete sentences of *text* on one line each; code, tables and fragments are left out."""
    for paragraph in _PARAGRAPH.split(text):
        lines = [line for line in paragraph.splitlines() if line.strip()]
        if lines and not any(_NOT_PROSE.search(line) for line in lines):
            yield from filter(_is_sentence, _split(_BULLET.sub("", " ".join(" ".join(lines).split()))))


def _split(line: str) -> Iterator[str]:
    start = 0
    for match in _END.finditer(line):
        if not _ABBREVIATION.search(line[start : match.start()]):
            yield line[start : match.end()].strip()
            start = match.end()
    yield line[start:].strip()


def _is_sentence(line: str) -> bool:
    if _PARAMETER.match(line):
        return False
    words = line.split()
    letters = sum(character.isalpha() or character.isspace() for character in line)
    return len(words) >= FEWEST_WORDS and len(line) <= MOST_CHARS and letters >= 0.8 * len(line) and line[-1] in ".!?)"


def is_imperative(sentence: str) -> bool:
    """Whether it opens with a verb that tells what the documented thing does: "Copy data from src to dst."."""
    first, _, rest = sentence.partition(" ")
    return bool(rest) and first.lower() in VERBS


def third_person(sentence: str) -> str:
    """ "Copy data from src to dst." as "copies data from src to dst."; anything not imperative with a small initial."""
    first, _, rest = sentence.partition(" ")
    if not is_imperative(sentence):
        return sentence
    return f"{_conjugated(first.lower())} {_AND_RETURN.sub('and returns', rest)}"


def finished(sentence: str) -> str:
    """*sentence* with a full stop if it ends without one."""
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def _conjugated(verb: str) -> str:
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return f"{verb}es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}s"

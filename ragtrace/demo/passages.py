"""The units the demo's application works on: documented things, and the passages that are retrieved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

PASSAGE_CHARS = 1_200
"""Longest text of one passage, without its title."""

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+")


class DemoError(Exception):
    """The demo cannot run: says what was wrong, what was seen and what to do."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a documented function."""

    name: str
    default: str | None = None
    """Its default as source text; None if it has none."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One documented thing: a function, class, method or module, or a section of the user's own documents."""

    name: str
    """Dotted name, "shutil.copyfile"; for a section, its heading."""
    kind: str
    """function, class, method, module or section."""
    title: str
    """What its passages are headed with: the signature, or file and heading."""
    doc: str
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """What retrieval returns: at most `PASSAGE_CHARS` of an entry's text under its title."""

    id: str
    name: str
    """Name of the entry it was cut from."""
    title: str
    body: str

    @property
    def text(self) -> str:
        """The passage as a model reads it."""
        return f"{self.title}\n{self.body}"


def passages_of(entry: Entry) -> Iterator[Passage]:
    """Cut *entry* into passages at paragraph ends, numbering their ids from the second on."""
    for number, body in enumerate(chunks(entry.doc), start=1):
        identity = entry.title if entry.kind == "section" else entry.name
        yield Passage(identity if number == 1 else f"{identity}#{number}", entry.name, entry.title, body)


def chunks(text: str, limit: int = PASSAGE_CHARS) -> Iterator[str]:
    """Cut *text* into pieces of at most *limit* characters, at paragraph ends where they fit."""
    held = ""
    for piece in _pieces(text, limit):
        if held and len(held) + 2 + len(piece) > limit:
            yield held
            held = piece
        else:
            held = f"{held}\n\n{piece}" if held else piece
    if held:
        yield held


def _pieces(text: str, limit: int) -> Iterator[str]:
    """Paragraphs; one that is too long falls apart into sentences, and a too long sentence into plain cuts."""
    for paragraph in _PARAGRAPH.split(text.strip()):
        if len(paragraph) <= limit:
            if paragraph:
                yield paragraph
            continue
        for sentence in _SENTENCE_END.split(paragraph):
            for start in range(0, len(sentence), limit):
                yield sentence[start : start + limit]

"""Streams made at random have the text that was meant, or none that is known: never a part, never a text twice."""

from __future__ import annotations

from collections import Counter

import pytest

from ragtrace.capture import AnswerStream
from tests.support.examples import examples
from tests.support.made_streams import made_stream

SEEDS = range(examples(2_000))
"""400,000 others were read once, with the same result."""


def test_a_stream_has_the_text_that_was_meant_or_none_that_is_known() -> None:
    """White space around it aside. What comes as new, piece by piece, is the same text."""
    for seed in SEEDS:
        made, stream = made_stream(seed), AnswerStream()
        told = [stream.add(piece) or "" for piece in made.pieces] + [stream.rest()]
        found = stream.answer()
        if found is None:
            continue
        text = (found.text or "").strip()
        assert text in {each.strip() for each in made.expected}, (seed, made)
        if made.mode != "states" and stream.unknown is None:  # else the text is that of a state or a result
            assert "".join(told).strip() == text, (seed, made)


def test_a_stream_that_nobody_would_doubt_is_read() -> None:
    """Of a hundred at most one is taken for one of another kind: its first pieces are alike."""
    doubted, certain = Counter[str](), Counter[str]()
    for seed in SEEDS:
        made, stream = made_stream(seed), AnswerStream()
        for piece in made.pieces:
            stream.add(piece)
        certain[made.mode] += made.is_certain
        doubted[made.mode] += made.is_certain and stream.answer() is None
    assert doubted.total() <= certain.total() / 100, doubted
    assert certain.total() > len(SEEDS) / 6


@pytest.mark.parametrize(
    "pieces",
    [
        ["*", "*", "B", "o", "l", "d"],
        ["\n", "**", "Bold", "**"],
        ["-", " ", "-", " a"],
        ["```", "json\n{...}\n", "```"],
        ["``", "`json\n", "{...}", "\n", "```"],
        ["`", "``text\n", "330 metres", "\n```"],
        ["``", "`\n330\n```"],
        ["```\n---", "\n```"],
        ["--", "-\ntitle: ", "a tower\n---\n", "It is tall."],
    ],
)
def test_marks_at_the_beginning_are_a_part_of_the_text(pieces: list[str]) -> None:
    """They show nothing about what the pieces are, so that the first words decide."""
    stream = AnswerStream()
    told = [stream.add(piece) or "" for piece in pieces] + [stream.rest()]
    found = stream.answer()
    assert found is not None
    assert found.text == "".join(told) == "".join(pieces)


@pytest.mark.parametrize("text", ["```\n\n```", "###\n###\nA title", "- - a", "| - | - |\n|---|---|\n| 1 | 2 |"])
@pytest.mark.parametrize("cursor", ["", "\u258c", "..."])
def test_whole_texts_of_marks_are_not_joined(text: str, cursor: str) -> None:
    """The text of pieces that hold all of it so far is found, or it is not known."""
    stream = AnswerStream()
    for end in range(1, len(text)):
        stream.add(text[:end] + cursor)
    stream.add(text)
    found = stream.answer()
    assert found is None or found.text == text


@pytest.mark.parametrize(
    "pieces",
    [
        ["\u258c", "The\u258c", "The tower\u258c", "The tower is\u258c", "The tower is tall"],
        ["The |", "The t |", "The tower |", "The tower is tall"],
        ["The...", "The tower...", "The tower is...", "The tower is tall"],
        ["The towe\u258c", "The towe\u258c", "The tower is tall"],
        ["The towe\u258c", "The tower is tal\u258c", "The tower is tall"],
    ],
)
def test_a_mark_at_the_end_is_no_part_of_the_text(pieces: list[str]) -> None:
    """Neither of the answer, nor of what a guard sees of it, whose sentences it would end."""
    stream = AnswerStream()
    told = [stream.add(piece) or "" for piece in pieces] + [stream.rest()]
    found = stream.answer()
    assert found is not None
    assert found.text == "".join(told) == "The tower is tall"


def test_a_copy_is_found_whatever_white_space_it_lacks() -> None:
    """At its beginning and its end."""
    stream = AnswerStream()
    for piece in ["\n", "The tower ", "is tall.", "\n", "\n ", "\n \n", "The tower is tall."]:
        stream.add(piece)
    found = stream.answer()
    assert found is not None
    assert found.text == "\nThe tower is tall.\n\n \n \n"

"""Texts beside an answer that break off: what was retrieved tells previews from texts that end in three dots."""

from __future__ import annotations

import pytest

from ragtrace.core.previews import breaks_off, contexts_beside
from ragtrace.core.types import Document, DocumentsInPart

LONG = "The **tower** is 330 metres\ntall. It was built in 1889, by the company of Gustave Eiffel, and is in Paris."
OTHER = "The pyramid of Cheops is 147 metres tall, and was the tallest building for a very long time."
FOUND = (Document(LONG, "a"), Document(OTHER, "b"))


def contexts(*texts: str, found: tuple[Document, ...] | None = FOUND) -> tuple[list[str] | None, str, bool]:
    """Return the texts of the contexts, their source, and whether they were read in part."""
    made, source = contexts_beside(tuple(map(Document, texts)), found, "retriever")
    return None if made is None else [each.text for each in made], source, isinstance(made, DocumentsInPart)


@pytest.mark.parametrize(
    "texts",
    [
        ["The tower is 330 m\u2026"],
        ["The tower is 330 m..."],
        ["the tower is 330 metres tall. It was [...]"],
        ['"It was built in 1889..."'],
        ["\u2026built in 1889, by \u2026 and is in Paris\u2026"],
        ["The tower is...", "The pyramid of Cheops is..."],
        ["The tower is 330...", OTHER],
        ["The tower is 330...", f"{OTHER}..."],
        ["The tower is 330...", "..."],
    ],
)
def test_previews_of_what_was_found_are_no_contexts(texts: list[str]) -> None:
    """From the beginning or the middle, in several stretches, with a short document as a whole beside them."""
    assert contexts(*texts) == ([LONG, OTHER], "retriever", False)


def test_a_text_beside_previews_that_was_not_found_is_a_context() -> None:
    """What was found stays; a text that breaks off among previews was cut, and is read in part."""
    more = "The wall of China is long."
    assert contexts("The tower is 330...", more) == ([LONG, OTHER, more], "retriever+result", False)
    cut = "The wall of China..."
    assert contexts("The tower is 330...", cut) == ([LONG, OTHER, cut], "retriever+result", True)


@pytest.mark.parametrize("found", [None, ()])
def test_texts_that_break_off_are_contexts_where_nothing_was_found(found: tuple[Document, ...] | None) -> None:
    """Authors write three dots, so that these alone are no sign of a cut; without a word there is nothing to judge."""
    assert contexts("Once upon a time...", found=found) == (["Once upon a time..."], "result", False)
    assert contexts("Once upon...", "The end.", found=found) == (["Once upon...", "The end."], "result", False)
    assert contexts("...", "\u2026", found=found) == (None if found is None else [], "retriever", False)


def test_what_was_found_stays_where_all_texts_break_off() -> None:
    """They may be previews in other words, or of documents that no retrieval has shown."""
    assert contexts("Once upon a time...") == ([LONG, OTHER, "Once upon a time..."], "retriever+result", False)


def test_the_documents_that_an_answer_rests_on_may_end_in_three_dots() -> None:
    """As a whole they are no previews: chosen from what was found, or made of it."""
    tale = "Once upon a time there was a tower..."
    found = (*FOUND, Document(tale))
    assert contexts(OTHER, tale, found=found) == ([OTHER, tale], "result", False)
    assert contexts("The tower is tall.", tale) == (["The tower is tall.", tale], "result", False)


@pytest.mark.parametrize(
    ("texts", "is_cut"),
    [
        ([LONG[:50] + "...", OTHER[:50] + "..."], True),
        ([LONG[:50] + "\u2026", OTHER[:50] + "\u2026"], True),
        ([LONG[:47] + "...", OTHER[:47] + "..."], True),  # 50 characters with the dots
        ([LONG[:50] + "...", OTHER[:50] + "...", "Short."], True),
        ([LONG[:50] + "..."], False),
        ([LONG[:50] + "...", LONG[:50] + "..."], False),  # a duplicate
        ([LONG[:51] + "...", OTHER[:52] + "..."], False),
        ([LONG[:51] + "...", OTHER[:51] + "..."], False),
        ([LONG[:50] + "...", OTHER[:50] + "...", LONG], False),  # nothing cuts at that length
        ([LONG[:20] + "...", OTHER[:20] + "..."], False),  # by chance
    ],
)
def test_texts_that_a_program_cut_are_read_in_part(texts: list[str], is_cut: bool) -> None:
    """Several of one round length, which is the greatest: that is certain, and nothing else is."""
    assert contexts(*texts, found=None) == (texts, "result", is_cut)


def test_documents_in_part_stay_so() -> None:
    """Previews say nothing of those that were not read."""
    assert contexts("The tower is...", found=DocumentsInPart(FOUND)) == ([LONG, OTHER], "retriever", True)
    assert contexts("The tower is...", "Wall.", found=DocumentsInPart(FOUND))[2]


@pytest.mark.parametrize(
    ("text", "breaks"),
    [
        ("a...", True), ("a\u2026 \n", True), ("a [...]", True), ("'a\u2026'", True), ("a (\u2026)", True),
        ("a..", False), ("a.", False), ("...a", False), ("", False), ("a...b", False),
    ],
)  # fmt: skip
def test_a_text_breaks_off_with_an_ellipsis_at_its_end(text: str, breaks: bool) -> None:
    """Also in brackets or quotation marks, and before white space."""
    assert breaks_off(text) is breaks

"""The index of the retrieved chunks: what it knows of the words of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from ragtrace.judges.lexical.chunk_index import MAX_QUOTE_CHARS, WINDOW, ChunkIndex
from ragtrace.judges.lexical.lexicon import Lexicon
from ragtrace.judges.lexical.statements import statements


def positions(text: str, *cuts: int) -> Iterator[tuple[int, int]]:
    """The steps in which *text* is read, cut at *cuts*."""
    return pairwise((0, *cuts, len(text)))


def indexed(answer: str, *chunks: str) -> tuple[list[Sequence[int]], ChunkIndex]:
    lexicon = Lexicon("en")
    index = ChunkIndex(lexicon)
    terms = [index.add_statement(each) for each in statements(answer, len(answer), lexicon)]
    for rank, chunk in enumerate(chunks):
        list(index.add_chunk(rank, chunk, positions(chunk)))
    return terms, index


def test_a_word_has_one_number_in_all_statements() -> None:
    """From 1 on, in order of appearance, whatever its ending."""
    terms, index = indexed("The pump burns oil. Oil cleans pumps.")
    assert [list(each) for each in terms] == [[1, 2, 3], [3, 4, 1]]
    assert len(index.ranks) == 5


def test_each_chunk_removes_the_pairs_of_neighbours_that_it_has() -> None:
    """What is left is in no chunk; pairs of a statement that states nothing are not looked for."""
    _, index = indexed("The red pump burns warm oil. Thank you very much!")
    assert index.apart == {1: {2, 3}, 2: {3, 4}, 3: {4, 5}, 4: {5}}
    _, index = indexed("The red pump burns warm oil. Thank you very much!", "A red pump.", "It burns oil, warm oil.")
    assert index.apart == {1: {3}, 2: {3, 4}, 3: set(), 4: set()}


FILLING = "copper zinc iron tin lead nickel cobalt silver gold".split()


@pytest.mark.parametrize(("between", "apart"), [(WINDOW - 2, set()), (WINDOW - 1, {2})])
@pytest.mark.parametrize("in_steps", [False, True])
def test_words_occur_together_within_a_window(between: int, apart: set[int], in_steps: bool) -> None:
    """Of eight words, both counted, in either order, and wherever the text is cut."""
    _, index = indexed("Pumps leak.")
    assert index.apart == {1: {2}}
    text = f"A leak, {' '.join(FILLING[:between])} pump."
    cuts = [at + 1 for at, character in enumerate(text) if character == " "] if in_steps else []
    list(index.add_chunk(0, text, positions(text, *cuts)))
    assert index.apart == {1: apart}


def test_of_many_chunks_the_first_are_known_to_have_a_word() -> None:
    """32 of them, so that memory does not grow with the chunks; all of them count for what is found together."""
    _, index = indexed("Pumps leak.", *["The pump is red."] * 40, "A pump may leak.")
    assert index.ranks[1] == list(range(32))
    assert (index.ranks[2], index.apart) == ([40], {1: set()})


def test_a_quote_is_the_best_excerpt_by_sentences() -> None:
    """It begins with a sentence and is no longer than its limit; of chunks of one sentence it is the whole."""
    chunk = (
        "The mill grinds corn for seven villages. " * 12 + "The red pump burns oil. " + "Bread is baked at night. " * 20
    )
    (terms,), index = indexed("The red pump burns oil.", chunk, "A  pump\nis red.")
    wanted = dict.fromkeys(terms, 1.0)
    quote = index.quote(0, chunk, wanted)
    assert "The red pump burns oil." in quote
    assert quote.startswith("The mill grinds")
    assert quote.endswith(".")
    assert (len(quote) <= MAX_QUOTE_CHARS, quote in chunk) == (True, True)
    assert index.quote(1, "A  pump\nis red.", wanted) == "A pump is red."

"""The index of the retrieved chunks: what it knows of the words of an answer."""

from __future__ import annotations

from collections.abc import Sequence

from ragtrace.judges.lexical.chunk_index import ChunkIndex
from ragtrace.judges.lexical.lexicon import Lexicon
from ragtrace.judges.lexical.statements import statements


def indexed(answer: str, *chunks: str) -> tuple[list[Sequence[int]], ChunkIndex]:
    lexicon = Lexicon("en")
    index = ChunkIndex(lexicon)
    terms = [index.add_statement(each) for each in statements(answer, len(answer), lexicon)]
    for rank, chunk in enumerate(chunks):
        list(index.add_chunk(rank, chunk, iter([(0, len(chunk))])))
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

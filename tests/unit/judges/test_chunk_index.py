"""The index of the retrieved chunks: what it knows of the words of an answer, and that comparing changes nothing."""

from __future__ import annotations

from ragtrace.judges.lexical.chunk_index import ChunkIndex
from ragtrace.judges.lexical.embedded import Finding, NumberedStatement, compare_statement
from ragtrace.judges.lexical.lexicon import Lexicon
from ragtrace.judges.lexical.statements import statements

TOWER = "The Eiffel Tower is in Paris, France. It was finished in 1889 and is 330 metres tall."
PUMP = "The pump does not need oil. It must be cleaned with warm water every 6 weeks, or the warranty is lost."


def indexed(answer: str, *chunks: str) -> tuple[list[NumberedStatement], ChunkIndex]:
    lexicon = Lexicon("en")
    index = ChunkIndex(lexicon)
    numbered = [NumberedStatement(each, index.add_statement(each)) for each in statements(answer, len(answer), lexicon)]
    for rank, chunk in enumerate(chunks):
        list(index.add_chunk(rank, chunk, iter([(0, len(chunk))])))
    return numbered, index


def test_a_word_has_one_number_in_all_statements() -> None:
    """From 1 on, in order of appearance, whatever its ending."""
    numbered, index = indexed("The pump burns oil. Oil cleans pumps.")
    assert [list(each.terms) for each in numbered] == [[1, 2, 3], [3, 4, 1]]
    assert len(index.ranks) == 5


def test_each_chunk_removes_the_pairs_of_neighbours_that_it_has() -> None:
    """What is left is in no chunk; pairs of a statement that states nothing are not looked for."""
    _, index = indexed("The red pump burns warm oil. Thank you very much!")
    assert index.apart == {1: {2, 3}, 2: {3, 4}, 3: {4, 5}, 4: {5}}
    _, index = indexed("The red pump burns warm oil. Thank you very much!", "A red pump.", "It burns oil, warm oil.")
    assert index.apart == {1: {3}, 2: {3, 4}, 3: set(), 4: set()}


def test_the_order_of_the_chunks_does_not_matter_to_a_finding() -> None:
    """A statement is compared with all of them, once all have been added."""
    findings: set[Finding] = set()
    for chunks in ((TOWER, PUMP), (PUMP, TOWER)):
        numbered, index = indexed("The tower in Paris needs oil every 6 weeks.", *chunks)
        findings.add(compare_statement(numbered[0], index, frozenset()))
    assert len(findings) == 1


def test_comparing_changes_nothing_in_the_index() -> None:
    """So statements may be compared in any order."""
    numbered, index = indexed("The pump needs warm oil. It is cleaned every 6 weeks.", PUMP)
    first = [compare_statement(each, index, frozenset()) for each in numbered]
    again = [compare_statement(each, index, frozenset()) for each in reversed(numbered)]
    assert first == again[::-1]

"""A statement is compared with the chunks: the deficits worked out by hand, and that comparing changes nothing."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from ragtrace.judges.lexical.chunk_index import ChunkIndex
from ragtrace.judges.lexical.lexicon import Lexicon, tokens
from ragtrace.judges.lexical.statement_comparison import (
    FEW_WORDS,
    Finding,
    NumberedStatement,
    compare_statement,
    compare_statements,
    consistency,
)
from ragtrace.judges.lexical.statements import statements

TOWER = "The Eiffel Tower is in Paris, France. It was finished in 1889 and is 330 metres tall."
PUMP = "The pump does not need oil. It must be cleaned with warm water every 6 weeks, or the warranty is lost."
RED_PUMP = "The red pump burns warm oil."


def indexed(answer: str, *chunks: str) -> tuple[list[NumberedStatement], ChunkIndex]:
    lexicon = Lexicon("en")
    index = ChunkIndex(lexicon)
    numbered = [NumberedStatement(each, index.add_statement(each)) for each in statements(answer, len(answer), lexicon)]
    for rank, chunk in enumerate(chunks):
        list(index.add_chunk(rank, chunk, iter([(0, len(chunk))])))
    return numbered, index


def compared(answer: str, *chunks: str, query: str = "") -> Finding:
    """The finding for an answer of one statement."""
    (numbered,), index = indexed(answer, *chunks)
    return compare_statement(numbered, index, frozenset(word.stem for _, _, word in tokens(query, Lexicon("en"))))


def marked(answer: str, finding: Finding) -> list[str]:
    return [answer[start:end] for start, end in finding.unsupported]


# --- one statement ---------------------------------------------------------------------------------------------------


def test_the_deficit_is_the_mean_of_absent_words_and_missed_pairs() -> None:
    """Of red, pump, burns, warm, oil one is absent (1/5), and of the 7 pairs the 3 with it are missed."""
    finding = compared("The red pump burns cold oil.", RED_PUMP)
    assert finding == Finding(5.0, pytest.approx((1 / 5 + 3 / 7) / 2), "supported", ())


def test_a_statement_is_supported_up_to_a_deficit_of_a_paraphrase() -> None:
    """A word in the middle takes 4 of 7 pairs along: (1/5 + 4/7) / 2 is .386, above .35, where .314 above was not."""
    answer = "The red pump drinks warm oil."
    finding = compared(answer, RED_PUMP)
    assert (finding.deficit, finding.support) == (pytest.approx((1 / 5 + 4 / 7) / 2), "partial")
    assert marked(answer, finding) == ["drinks"]


@pytest.mark.parametrize(
    ("answer", "deficit", "support"),
    [
        ("The red pump drinks tea.", (2 / 4 + 4 / 5) / 2, "partial"),
        ("The red pump drinks cold tea.", (3 / 5 + 6 / 7) / 2, "not_found"),
    ],
)
def test_a_statement_is_not_found_from_a_deficit_of_seven_tenths_on(answer: str, deficit: float, support: str) -> None:
    """Of .65 it is partial, of .73 not found; only red and pump are there, with their pair."""
    finding = compared(answer, RED_PUMP)
    assert (finding.deficit, finding.support) == (pytest.approx(deficit), support)


def test_a_statement_whose_words_are_elsewhere_is_not_found() -> None:
    """All words and pairs are missing: 1, above .7."""
    answer = "Green frogs sing."
    finding = compared(answer, RED_PUMP)
    assert finding == Finding(3.0, 1.0, "not_found", ((0, 16),))


def test_words_of_two_sentences_far_apart_are_missed_as_pairs_alone() -> None:
    """Of three pairs two, then the only one. If no word is absent, those near none of their neighbours are marked."""
    far = (
        "Anna paints bees. "
        + "The mill by the stream grinds corn for seven villages and three towns. " * 2
        + "Clocks tick."
    )
    answer = "Anna paints clocks."
    assert compared(answer, far).deficit == pytest.approx((0 + 2 / 3) / 2)
    finding = compared("Bees tick.", far)
    assert (finding.deficit, finding.support) == (pytest.approx(1 / 2), "partial")
    assert marked("Bees tick.", finding) == ["Bees tick"]


def test_a_missing_number_takes_half_of_the_remaining_support() -> None:
    """Of weighs and 90 one is absent, with their one pair: (1/2 + 1) / 2 is 3/4, and half of the rest is 1/8."""
    assert compared("It weighs 90.", "It weighs 80.").deficit == pytest.approx(3 / 4 + 1 / 8)
    assert compared("It burns oil.", "It burns coal.").deficit == pytest.approx(3 / 4)


def test_a_number_that_is_near_none_of_its_neighbours_is_missing() -> None:
    """Whatever else it counts in the chunk."""
    chunk = (
        "It weighs 80. " + "The mill by the stream grinds corn for seven villages and three towns. " * 2 + "90 came."
    )
    answer = "It weighs 90."
    finding = compared(answer, chunk)
    assert (finding.support, marked(answer, finding)) == ("not_found", ["90"])


def test_a_name_that_only_the_query_has_counts_half() -> None:
    """And another word of the query counts as given: asking for it does not make it true."""
    answer = "The tower stands in Berlin."
    unasked, asked = compared(answer, TOWER), compared(answer, TOWER, query="Does it stand in Berlin?")
    # tower, stands, Berlin: two absent and all pairs missed; asked for, stands is given and Berlin half absent.
    assert unasked.deficit == pytest.approx((1 + (2 / 3 + 1) / 2) / 2)
    assert asked.deficit == pytest.approx((1 + (0.5 / 3 + 1) / 2) / 2)
    assert marked(answer, asked) == ["Berlin"]


def test_a_word_is_absent_where_its_negation_differs() -> None:
    """Either way, one of three; its pairs are there. With the same negation, or none, it is there."""
    answer, denied = "The pump burns oil.", "The pump does not burn oil."
    assert compared(answer, denied).deficit == compared(denied, answer).deficit == pytest.approx(1 / 6)
    assert compared(denied, denied).deficit == compared(answer, answer).deficit == 0.0


def test_a_framing_word_counts_a_quarter() -> None:
    """Absent or not, and in the weight of the statement."""
    finding = compared("A certain pump burns oil.", RED_PUMP)
    assert finding.weight == 3.25
    assert (finding.support, finding.unsupported) == ("supported", ())


def test_overlapping_pairs_of_characters_between_two_words_are_left_out() -> None:
    """Of 高塔, 塔在, 在柏 and 柏林 the third stands between two words, of which the second is absent."""
    finding = compared("高塔在柏林", "高塔在巴黎。")
    assert finding.weight == 2.25
    assert compared("高塔在巴黎", "高塔在巴黎。").weight == 2.5


# --- all statements --------------------------------------------------------------------------------------------------


def test_only_checkable_statements_are_compared() -> None:
    """Each is a step of as many characters as it has."""
    numbered, index = indexed("Hello! The pump burns oil. It is red.", RED_PUMP)
    found: dict[int, Finding] = {}

    def run() -> Generator[int, None, None]:
        found.update((yield from compare_statements(numbered, index, frozenset())))

    read = list(run())
    assert [each.statement.checkable for each in numbered] == [False, True, True]
    assert list(found) == [each.statement.start for each in numbered[1:]]
    assert read == [each.statement.end - each.statement.start for each in numbered[1:]]


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


def words(number: float, deficit: float) -> Finding:
    return Finding(number, deficit, "partial", ())


def test_one_invented_sentence_of_five_halves_consistency() -> None:
    """Of ten words each: 10 / 50 * sqrt(50) is sqrt(2)."""
    assert consistency([words(10, 0.0)] * 4 + [words(10, 1.0)]) == pytest.approx(0.5)


def test_a_short_answer_counts_as_one_of_25_words() -> None:
    """Five wrong words of five, or of 25, have a strength of 5; of 100 wrong ones it is 10."""
    assert FEW_WORDS == 25
    assert consistency([words(5, 1.0)]) == consistency([words(25, 1.0)]) == pytest.approx(2 ** -(5 / 2**0.5))
    assert consistency([words(100, 1.0)]) == pytest.approx(2 ** -(10 / 2**0.5))


def test_deficits_count_squared() -> None:
    """Two statements of half a deficit weigh as much as half of one that is missing as a whole."""
    assert consistency([words(25, 0.5), words(25, 0.5)]) == pytest.approx(
        consistency([words(25, 0.5**0.5), words(25, 0)])
    )


def test_a_supported_answer_is_consistent() -> None:
    """However long."""
    assert consistency([words(3, 0.0)]) == consistency([words(300, 0.0)] * 3) == 1.0

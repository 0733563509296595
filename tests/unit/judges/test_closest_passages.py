"""The passages of chunks that are closest to a statement."""

from __future__ import annotations

from ragtrace.judges.lexical.closest_passages import Passage, PassageSearch

CHUNKS = (
    "Our shops are open from nine. Worn shoes may be returned within 14 days of delivery. Bags may be returned, too.",
    "Refunds are paid to the card that was used. Vouchers expire after two years.",
)


def closest(statement: str, chunks: tuple[str, ...] = CHUNKS) -> list[Passage]:
    return PassageSearch(chunks, statement).closest(statement)


def test_the_closest_passage_shares_the_rarest_words() -> None:
    """A word that many passages have, such as "returned", says less than one that a single passage has."""
    assert closest("Shoes can be returned.") == [Passage(1, "Worn shoes may be returned within 14 days of delivery.")]


def test_a_second_passage_has_the_other_words() -> None:
    """Both are in the order of the chunks, whichever is closer."""
    found = closest("The refund for worn shoes is paid to the card within 14 days.")
    assert found == [
        Passage(1, "Worn shoes may be returned within 14 days of delivery."),
        Passage(2, "Refunds are paid to the card that was used."),
    ]


def test_a_passage_that_adds_little_is_left_out() -> None:
    said = "Worn shoes may be returned within 14 days of delivery after work."
    assert [passage.rank for passage in closest(said)] == [1]


def test_without_a_common_word_there_is_no_passage() -> None:
    assert closest("Whales sing.") == []
    assert closest("Whales sing.", ()) == []
    assert closest("", CHUNKS) == []


def test_only_the_beginning_of_very_long_chunks_is_searched() -> None:
    """So that a page does not take long; the chunk itself is shown whole."""
    filler = "The shop has shelves. " * 10_000
    assert closest("Whales sing.", (filler, "Whales sing.")) == []
    assert closest("Whales sing.", ("Whales sing.", filler)) == [Passage(1, "Whales sing.")]
    assert not PassageSearch((filler, "Whales sing."), "Whales sing.").is_whole
    assert PassageSearch(CHUNKS, "Whales sing.").is_whole


def test_words_are_compared_in_the_language_of_the_answer() -> None:
    found = closest(
        "Die Erstattung erfolgt auf die Karte, mit der bezahlt wurde.",
        ("Wir haben ab neun Uhr offen.", "Erstattungen gehen auf die Karte, mit der die Ware bezahlt wurde."),
    )
    assert [passage.rank for passage in found] == [2]

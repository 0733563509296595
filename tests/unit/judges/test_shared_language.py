"""Whether an answer and its chunks are in one script and language: each number at its edge."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest

from ragtrace.judges.lexical.shared_language import (
    ENOUGH_WORDS,
    FEWEST_WORDS,
    FOREIGN_SHARE,
    SAMPLED_CHUNKS,
    SHARED_SCRIPT,
    choose_language,
    shares_language,
    shares_script,
)
from ragtrace.judges.lexical.statement_comparison import Finding

ENGLISH = "The tower is in Paris, and it was finished in 1889 by the company of an engineer."
GERMAN = "Der Turm steht in Paris und wurde von der Firma eines Ingenieurs im Jahr 1889 gebaut."
KEYWORDS = "copper zinc iron tin lead nickel cobalt silver gold bronze steel brass glass stone sand clay".split()
MISSING = [Finding(5.0, 1.0, "not_found", ((0, 1),))]


def same_language(answer: str, *chunks: str, findings: Sequence[Finding] = MISSING) -> bool:
    return shares_language(answer, chunks, findings)


def same_script(answer: str, *chunks: str, has_words: bool = True) -> bool:
    found: list[bool] = []

    def run() -> Generator[int, None, None]:
        found.append((yield from shares_script(answer, chunks, has_words=has_words)))

    list(run())
    return found[0]


def test_words_that_are_found_are_in_one_language() -> None:
    """Whatever the function words say; half of them suffice, weighted by the words of the statements."""
    assert not same_language(GERMAN, ENGLISH)
    found, half = Finding(5.0, 0.0, "supported", ()), Finding(5.0, 0.5, "partial", ((0, 1),))
    assert same_language(GERMAN, ENGLISH, findings=[found])
    assert not same_language(GERMAN, ENGLISH, findings=[half])
    assert same_language(GERMAN, ENGLISH, findings=[half, found])


def test_chunks_of_no_known_language_say_nothing() -> None:
    """As a table of numbers; an answer about it is judged."""
    assert same_language(GERMAN, "1889 330 42", "AX-7")


def test_the_language_of_the_chunks_is_looked_for_in_the_first_three() -> None:
    """Not in a fourth."""
    tables = ["1889 330 42"] * SAMPLED_CHUNKS
    assert SAMPLED_CHUNKS == 3
    assert not same_language(GERMAN, *tables[1:], ENGLISH)
    assert same_language(GERMAN, *tables, ENGLISH)


def test_twelve_words_must_have_a_function_word() -> None:
    """Of the language of the chunks; eleven keywords are judged, and a function word excuses twelve."""
    assert ENOUGH_WORDS == 12
    assert same_language(" ".join(KEYWORDS[:11]), ENGLISH)
    assert not same_language(" ".join(KEYWORDS[:12]), ENGLISH)
    assert same_language(" ".join([*KEYWORDS[:11], "the"]), ENGLISH)


def test_more_than_a_twenty_fifth_must_be_function_words() -> None:
    """One of 24 words is, one of 25 is not."""
    assert FOREIGN_SHARE == 0.04
    many = (KEYWORDS * 2)[:23]
    assert same_language(" ".join([*many, "the"]), ENGLISH)
    assert not same_language(" ".join([*many, "salt", "the"]), ENGLISH)


def test_two_words_say_no_language() -> None:
    """Three do, where another language has function words among them."""
    assert FEWEST_WORDS == 3
    assert same_language("la casa", ENGLISH)
    assert not same_language("la casa roja", ENGLISH)


def test_six_letters_of_ten_in_a_script_of_the_chunks_suffice() -> None:
    """Fewer do not: names alone may be written in it."""
    assert SHARED_SCRIPT == 0.6
    assert same_script("abcdef фыва", ENGLISH)
    assert not same_script("abcde фывап", ENGLISH)
    assert same_script("abcde фывап", ENGLISH, "Башня построена.")


def test_a_text_without_letters_has_no_script() -> None:
    """Digits alone have none that differs, and an answer of marks has no word at all."""
    assert same_script("1889", ENGLISH)
    assert not same_script("!!!", ENGLISH, has_words=False)


@pytest.mark.parametrize(
    ("answer", "spoken", "chunk", "chosen"),
    [
        (ENGLISH, "en", GERMAN, "en"),
        ("24 Monate.", "", GERMAN, "de"),
        ("Sie gilt.", "de", "1889 330", "de"),
        ("24", "", "330", ""),
        ("El precio es de 24 euros en la tienda.", "es", GERMAN, "es"),
    ],
)
def test_the_language_is_that_of_the_answer_or_else_of_the_chunk(
    answer: str, spoken: str, chunk: str, chosen: str
) -> None:
    """That of the chunk counts where the answer has at least as many of its function words as of others."""
    assert choose_language(answer, spoken=spoken, chunk=chunk) == chosen

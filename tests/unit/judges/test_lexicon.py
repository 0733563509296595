"""Splitting text into sentences and words: offsets, abbreviations, lists, scripts, hostile input."""

# ruff: noqa: RUF001  (other alphabets are meant)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.judges.lexical.lexicon import (
    ASCII_TOKEN,
    NEGATION,
    Lexicon,
    content_tokens,
    count_scripts,
    detect_language,
    normalize_number,
    normalize_word,
    one_line,
    spellings,
    stems,
    tokens,
)
from ragtrace.judges.lexical.statements import MAX_SENTENCE_CHARS, sentences

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=400)  # lone surrogates and controls included
PROSE = st.text(st.sampled_from("aB1. !?,\n-*()[]\"'…。？今あ٣é\u200b"), max_size=400)


# Where a run of characters between spaces is not simply one word.
RUNS = st.lists(
    st.sampled_from(["a", "B", "1", "not", "n't", "'s", "'Re", "don’t", "é", *" .,'’“…\n\u00a0-_"]), max_size=40
).map("".join)


def split(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It costs 3.50 a day. Pay at the desk.", ["It costs 3.50 a day.", "Pay at the desk."]),
        ("Dr. Lee met Prof. Ito. They spoke.", ["Dr. Lee met Prof. Ito.", "They spoke."]),
        ("J. R. Smith wrote it, e.g. at night.", ["J. R. Smith wrote it, e.g. at night."]),
        ("The U.S. Government paid. Twice.", ["The U.S. Government paid.", "Twice."]),
        ("We sell nails, screws, etc. The shop is shut.", ["We sell nails, screws, etc.", "The shop is shut."]),
        ("See www.example.org/a.b?c=d. Then go.", ["See www.example.org/a.b?c=d.", "Then go."]),
        ("Really?! Yes.", ["Really?!", "Yes."]),
        ('He said "stop." Then left.', ['He said "stop."', "Then left."]),
        ("It began in 1998. It ended soon.", ["It began in 1998.", "It ended soon."]),
        ("Wait... and see", ["Wait... and see"]),
    ],
)
def test_full_stops_inside_a_sentence_do_not_end_it(text: str, expected: list[str]) -> None:
    """Decimals, titles, initials, abbreviations and URLs stay whole."""
    assert split(text) == expected


def test_every_list_item_is_a_sentence_without_its_marker() -> None:
    """Numbers, letters, dashes, stars and bullets in front of an item are not part of it."""
    text = "Do this:\n1. Open it\n2) Close it\n- look\n* listen\n• smell\n(a) taste"
    assert split(text) == ["Do this:", "Open it", "Close it", "look", "listen", "smell", "taste"]


def test_a_wrapped_line_goes_on() -> None:
    """A line break before a small letter is no end, before a heading or after a blank line it is."""
    assert split("A long\nline here\n\nHeading\nText") == ["A long\nline here", "Heading", "Text"]


def test_stops_of_other_scripts_end_sentences_without_a_space() -> None:
    """Chinese, Japanese, Arabic and Hindi full stops are known."""
    assert split("塔在巴黎。高三百三十米！是吗？") == ["塔在巴黎。", "高三百三十米！", "是吗？"]
    assert split("यह एक है। वह दो है।") == ["यह एक है।", "वह दो है।"]
    assert split("هل هذا صحيح؟ نعم.") == ["هل هذا صحيح؟", "نعم."]


def test_an_endless_sentence_is_cut() -> None:
    """No sentence is longer than the limit, and nothing is lost."""
    text = "word " * 1_000
    found = split(text)
    assert max(map(len, found)) <= MAX_SENTENCE_CHARS
    assert sum(piece.count("word") for piece in found) == 1_000


@given(ANY_TEXT | PROSE)
def test_sentences_are_slices_in_order(text: str) -> None:
    """Ranges are within the text, disjoint, in order and not blank, for any Unicode."""
    last = 0
    for start, end in sentences(text):
        assert last <= start < end <= len(text)
        assert text[start:end].strip()
        last = end


@given(PROSE)
def test_sentences_lose_no_word(text: str) -> None:
    """What lies between two sentences is white space and list markers only: no word of two letters or more."""
    covered = set[int]()
    for start, end in sentences(text):
        covered.update(range(start, end))
    left = "".join(" " if at in covered else character for at, character in enumerate(text))
    assert not any(len(word) > 4 for word in left.split()), left


@given(ANY_TEXT | PROSE)
def test_tokens_are_slices_of_the_text(text: str) -> None:
    """Offsets of words always slice back to the spelling."""
    lexicon = Lexicon()
    found = tokens(text, lexicon)
    assert all(0 <= start < end <= len(text) for start, end, _ in found)
    assert all(word == lexicon[text[start:end]] for start, end, word in found)


@given(ANY_TEXT | PROSE | RUNS, st.sampled_from(["en", "es"]))
def test_both_ways_of_reading_find_the_same_words(text: str, code: str) -> None:
    """Run by run or by a pattern: the same words at the same places, whatever the text."""
    lexicon = Lexicon(code)
    found = tokens(text, lexicon)
    telling = [(start, end, word) for start, end, word in found if word.weight or word.signal]
    counted = [word.stem if word.weight else NEGATION for _, _, word in found if word.weight or word.negation]
    assert content_tokens(text, lexicon, 0, len(text)) == telling
    assert list(stems(text, lexicon, 0, len(text))) == counted


@given(PROSE | RUNS | st.text("ab'1", min_size=60, max_size=90))
def test_spellings_are_those_a_pattern_finds(text: str) -> None:
    """All of them, in some order, also of words that are too long."""
    ascii_only = text.encode("ascii", "ignore").decode()
    assert sorted(spellings(ascii_only)) == sorted(ASCII_TOKEN.findall(ascii_only))


@given(st.text(st.sampled_from("ab \n\t\r\x1c\x85\u00a0\u2028\u3000\u200b"), max_size=40))
def test_one_line_is_a_split_and_a_join(text: str) -> None:
    """Every kind of white space becomes one space, none is left at the ends."""
    assert one_line(text) == " ".join(text.split())


@pytest.mark.parametrize(
    ("one", "other"),
    [("Café", "CAFE"), ("Ｔｏｗｅｒ", "tower"), ("naïve", "naive"), ("Ber\u200blin", "Berlin"), ("كِتَاب", "كتاب")],
)
def test_spellings_fold_together(one: str, other: str) -> None:
    """Case, accents, width, hidden characters and optional vowel signs do not tell words apart."""
    assert normalize_word(one) == normalize_word(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("1,000", "1000"), ("3.50", "3.5"), ("007", "7"), ("٣", "3"), ("2,5", "2.5"), ("1,234,567", "1234567")],
)
def test_spellings_of_one_number_agree(one: str, other: str) -> None:
    """Separators, zeros and other digits do not change a number."""
    assert normalize_number(one) == normalize_number(other)


def test_numbers_that_differ_stay_apart() -> None:
    """A decimal point is not dropped."""
    assert len({normalize_number(n) for n in ("15", "1.5", "150", "1.05")}) == 4


@pytest.mark.parametrize("comma", [True, False])
def test_a_part_of_one_is_no_whole_number(comma: bool) -> None:
    """A dose of 0,125 mg is not one of 125 mg, in whatever language."""
    assert normalize_number("0,125", comma=comma) == normalize_number("0.125", comma=False)
    assert len({normalize_number(n, comma=comma) for n in ("0,125", "125", "0,25", "0,5")}) == 4
    assert normalize_number("1,250", comma=False) == "1250"


def test_scripts_without_spaces_are_read_as_pairs() -> None:
    """Each two neighbouring characters of Chinese, Japanese, Thai and Korean make a word."""
    assert [text.stem for _, _, text in tokens("东京塔", Lexicon())] == ["东京", "京塔"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The tower is in the city and it is old.", "en"),
        ("La torre está en la ciudad y no es muy vieja, pero se puede visitar.", "es"),
        ("La tour est dans la ville et elle a été construite par un roi.", "fr"),
        ("Der Turm steht in der Stadt und ist nicht sehr alt.", "de"),
        ("json.dumps", ""),
        ("", ""),
    ],
)
def test_language_is_recognised_by_function_words(text: str, expected: str) -> None:
    """A few words suffice, and too few say nothing."""
    assert detect_language(text) == expected


def test_scripts_are_counted() -> None:
    """A mixed text names its scripts; one without letters none."""
    assert set(count_scripts("Paris 巴黎 Париж")) == {"latin", "han", "cyrillic"}
    assert count_scripts("123 !?") == {}


def test_the_word_cache_is_bounded() -> None:
    """A million different words do not stay in memory."""
    lexicon = Lexicon()
    for at in range(45_000):
        lexicon[f"w{at}"]
        lexicon.stems[f"w{at}"]
        lexicon.content[f"w{at}"]
    assert max(len(lexicon), len(lexicon.stems), len(lexicon.content)) <= 20_000

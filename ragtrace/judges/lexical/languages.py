"""Tells whether an answer is in a language in which the embedded judge recognises that an answer declines."""

# ruff: noqa: RUF001  (other alphabets are meant)

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final, NamedTuple

from ragtrace.core.text import LazyPattern
from ragtrace.judges.lexical.lexicon import TOKEN, lower_case
from ragtrace.judges.lexical.words import FUNCTION_WORDS, OTHER_FUNCTION_WORDS

KNOWN: Final = frozenset("en de fr es pt it nl ru ar hi".split())
"""Languages whose refusals are recognised, without Chinese and Japanese, which their script tells."""
CLEAR: Final = 2
"""Difference in words that decides for or against a known language: one word may be a name or a loan."""
LEAST_SHARE: Final = 0.1
"""Least share of function words in a text of a known language."""
ENOUGH_WORDS: Final = 12
"""Number of words among which every known language has a function word, but for lists and headings."""
RUN_CHARS: Final = 16
"""Number of characters for which a longer word counts once more: Thai and other scripts write whole clauses as one."""
# Letters of the alphabets of the known languages, and of Chinese and Japanese; \u03bc and \u00b5 are units.
_FOREIGN = LazyPattern(
    "[^\\W\\d_a-zA-Zàáâãäæçèéêëìíîïñòóôõöœùúûüýÿßªº\u00b5\u03bcа-яА-ЯёЁ"
    "\u0621-\u063a\u0640-\u064a\u0671\ufb50-\ufdff\ufe70-\ufeff\u0900-\u0932\u0934-\u097f"
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff10-\uff9f\U00020000-\U0003134f]"
)
_EAST_ASIAN = LazyPattern("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003134f]")


class _Votes(NamedTuple):
    words: int
    known: int
    """Function words of the known language that has most of them here."""
    other: int
    """Words of another language: of the one with most function words here, and those with a letter that is foreign."""

    @property
    def enough(self) -> bool:
        return self.known >= LEAST_SHARE * self.words

    def is_known(self, margin: int) -> bool | None:
        """Return whether the language is known, or None if less than *margin* words speak for either."""
        if self.other - self.known >= margin:
            return False
        return True if self.known - self.other >= margin and self.enough else None


def is_known_language(answer: Sequence[str], *, query: str, chunk: str) -> bool:
    """Return whether an answer is in a language in which it is recognised that an answer declines.

    Function words of the known languages speak for them; frequent words of other languages, letters that no known
    language has, and other scripts speak against them. Names (words with a capital inside a sentence) and numbers say
    nothing. What is asked, in this order, until `CLEAR` words more speak for one side than for the other:

    1. the answer alone: without a letter it is known, and a text of `ENOUGH_WORDS` words with next to no function word
       of a known language is in another one;
    2. answer and query together, so that "Paris", "42 km" and "AX-7" are read in the language of the question;
    3. answer, query and the start of the first chunk together, where one word decides. If nothing does, the language
       counts as known unless all this has `ENOUGH_WORDS` words.

    Args:
        answer: sentences of the answer.
        query: the query, or its start.
        chunk: start of the first chunk.
    """
    if not any(character.isalpha() for sentence in answer for character in sentence):
        return True
    votes = _count_votes(answer)
    known = votes.is_known(CLEAR)
    if known is None and votes.words >= ENOUGH_WORDS and not votes.enough:
        return False
    if known is None:
        known = _count_votes([*answer, query]).is_known(CLEAR)
    if known is None:
        votes = _count_votes([*answer, query, chunk])
        known = votes.is_known(1)
        if known is None:
            known = votes.words < ENOUGH_WORDS
    return known


def _count_votes(sentences: Iterable[str]) -> _Votes:
    known = dict.fromkeys(KNOWN, 0)
    other = dict.fromkeys(OTHER_FUNCTION_WORDS, 0)
    words = east_asian = foreign = 0
    for word, named in _words(sentences):
        if _EAST_ASIAN.match(word):
            words += 1
            east_asian += 1
            continue
        if named or len(word) < 2:
            continue
        words += 1
        is_foreign = _FOREIGN.search(word) is not None
        foreign += is_foreign * (1 + len(word) // RUN_CHARS)
        for code in _languages_of().get(word, ()):
            if code in known:
                known[code] += 1
            elif not is_foreign:
                other[code] += 1
    return _Votes(words, max(known.values()) + east_asian, max(other.values()) + foreign)


def _words(sentences: Iterable[str]) -> Iterable[tuple[str, bool]]:
    """Yield the words of *sentences* in lower case, each with whether it is taken for a name."""
    for sentence in sentences:
        text = sentence if sentence.isascii() else unicodedata.normalize("NFC", sentence)
        shouted = text.isupper()
        for at, word in enumerate(TOKEN.findall(text)):
            if word[0].isdecimal():
                continue
            lower = lower_case(word)
            capital = word != lower and not shouted
            yield lower, capital and (at > 0 or lower not in _languages_of())


@cache
def _languages_of() -> dict[str, tuple[str, ...]]:
    """Return for each function word the codes of the languages that have it."""
    found: dict[str, list[str]] = {}
    for code, words in (*((code, FUNCTION_WORDS[code]) for code in KNOWN), *OTHER_FUNCTION_WORDS.items()):
        for word in words:
            found.setdefault(word, []).append(code)
    return {word: tuple(codes) for word, codes in found.items()}

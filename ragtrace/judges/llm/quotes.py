"""Checks whether an LLM judge's quotes occur in the chunks, and have the words and numbers of the statement."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence, Set
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final

_QUOTES: Final = '"\u00b4\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2039\u203a\u00ab\u00bb\u2032\u2033'
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\ufe58\ufe63\uff0d"
_MARKS: Final = (
    {ord(mark): "'" for mark in _QUOTES}
    | {ord(dash): "-" for dash in _DASHES}
    | dict.fromkeys(map(ord, "*_`~"))  # emphasis and code
    | {ord("|"): " "}  # cells of a table
)
_ESCAPES: Final = re.compile(r"\\[nrt]|\\(?=[\"'])")
"""Escape sequences in text that was encoded as JSON twice."""
_ELLIPSIS: Final = re.compile(r"[\[(]?(?:\.{3,}|\u2026)[\])]?")
_EDGES: Final = " .,;:'-"
_QUOTE_CHARS: Final = 1_000
_FEWEST_WORDS: Final = 3
_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
"""Characters of scripts without spaces, each of which counts as a word."""
_WORDS: Final = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_STEM_CHARS: Final = 4
_NAME_CHARS: Final = 3
"""Number of leading characters in which names must be equal: Italy is where Italian wines come from."""

_NO_CONTENT: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,15}://\S+|\[[^\]]{0,80}\]|\((?:sources?|see|cf|refs?|quellen?|siehe|doc\w*)\b[^)]{0,80}\)|\A\W*\d{1,3}[.)]\s",
    re.IGNORECASE,
)
"""Parts of a text without content: addresses, citations, numbers of list items."""
_NUMBER: Final = re.compile(r"\d+(?:[.,'\u2019\u00a0\u202f]\d+)*")
_NAME: Final = re.compile(r"(?:(?<=[\w,;)] )|(?<= \())[^\W\d_a-z][^\W\d_]{3,}")


def normalize_quote(text: str) -> str:
    """Normalize *text* for comparison: lower case, no markup, single spaces, one form of quotation mark and dash.

    Characters are normalized by NFKC.
    """
    # A quote is compared with every chunk that the model names.
    return _folded_before(text) if len(text) <= _QUOTE_CHARS else _folded(text)


def _folded(text: str) -> str:
    if "\\" in text:
        text = _ESCAPES.sub(lambda found: "" if found[0] == "\\" else "\n", text)
    # Before NFKC, which takes some marks apart into a space and an accent.
    folded = unicodedata.normalize("NFKC", text.translate(_MARKS)).casefold()
    # A word without letter or digit is a bullet, the mark of a heading or the rule of a table.
    return " ".join([word for word in folded.split() if word[0].isalnum() or any(map(str.isalnum, word))])


_folded_before = lru_cache(maxsize=128)(_folded)


def quote_occurs(quote: str, folded: str) -> bool:
    """Return whether *quote* occurs in *folded*, a text normalized by `normalize_quote`.

    Parts around an ellipsis must do so in order. Punctuation at the ends of a part does not count. A quote without any
    letter or digit occurs nowhere.
    """
    parts = [part for part in (normalize_quote(part).strip(_EDGES) for part in _ELLIPSIS.split(quote)) if part]
    at = 0
    for part in parts:
        at = folded.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return bool(parts)


def quote_nearly_occurs(quote: str, folded: str) -> bool:
    """Return whether at least half of the pairs of neighbouring words of *quote* occur in *folded*.

    True for a quote that leaves out, adds or changes a word, or joins two passages. *folded* is the text of a chunk,
    normalized by `normalize_quote`.
    """
    words = _WORDS.findall(normalize_quote(quote))
    pairs = [f" {first} {second} " for first, second in pairwise(words)]
    text = f" {' '.join(_WORDS.findall(folded))} " if pairs else ""
    return bool(pairs) and 2 * sum(pair in text for pair in pairs) >= len(pairs)


def quote_too_short(quote: str, folded: str) -> bool:
    """Return whether *quote* has fewer than three words and is not the whole text of its chunk.

    *folded* is the text of the chunk, normalized by `normalize_quote`.
    """
    return len(_WORDS.findall(quote)) < _FEWEST_WORDS and normalize_quote(quote).strip(_EDGES) != folded.strip(_EDGES)


def shares_word(quote: str, statement: str) -> bool:
    """Return whether *quote* and *statement* have a word in common, in any inflected form.

    True if *statement* has no word that counts.
    """
    wanted = _stems(statement)
    return not wanted or not wanted.isdisjoint(_stems(quote))


def _stems(text: str) -> set[str]:
    words = _WORDS.findall(normalize_quote(text))
    return {word[:_STEM_CHARS] for word in words if len(word) >= _STEM_CHARS or not word.isascii() or word.isdigit()}


class TextTerms:
    """Numbers and word beginnings in a text, with which the numbers and names in a statement are compared.

    Each is found on first use.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def numbers(self) -> frozenset[str]:
        """Numbers in the text, as digits without separators."""
        return frozenset([key for found in set(_NUMBER.findall(self._text)) for key in _digits(found)])

    @cached_property
    def stems(self) -> frozenset[str]:
        """First three letters of each word in the text, in lower case, so that inflected forms of names match."""
        return frozenset([word[:_NAME_CHARS] for word in _WORDS.findall(self._text.casefold())])


def absent_terms(text: str, evidence: Sequence[TextTerms], *, with_names: bool = True) -> list[str]:
    """Return the numbers and names in *text* that occur in none of the texts of *evidence*.

    Numbers of one digit do not count: they may be written as words. Names are words with a capital letter within a
    sentence; abbreviations do not count.

    Args:
        with_names: whether capitals tell names; they do not in German.
    """
    if not text[:1].isalpha() or "[" in text or "(" in text or "://" in text:
        text = _NO_CONTENT.sub(" ", text)
    absent: list[str] = _NUMBER.findall(text)
    if absent:
        known = frozenset[str]().union(*(terms.numbers for terms in evidence))
        absent = [found for found in absent if not _occurs_in(known, _digits(found))]
    if with_names and not text.istitle():
        keys = {name: name.casefold()[:_NAME_CHARS] for name in find_names(text)}
        absent += [name for name, key in keys.items() if not any(key in terms.stems for terms in evidence)]
    return list(dict.fromkeys(absent))


def find_names(text: str) -> list[str]:
    """Return the words of *text* that look like names: capitalized within a sentence, and no abbreviations."""
    return [name for name in _NAME.findall(text) if name[0].isupper() and not name.isupper()]


def _occurs_in(known: Set[str], digits: Sequence[str]) -> bool:
    return not digits or digits[0] in known or (len(digits) > 1 and known >= set(digits[1:]))


def _digits(number: str) -> list[str]:
    """Return the digits of *number* without separators, followed by the digits of each part between separators.

    Zeros at the ends are dropped. What has only one digit is left out.
    """
    if number.isascii() and number.isdigit():  # as nearly always
        whole = [number]
    else:
        parts = re.findall(r"\d+", number)
        whole = ["".join(parts), *(parts if len(parts) > 1 else ())]
        whole = ["".join([str(int(digit)) for digit in part]) for part in whole]
    plain = [part.lstrip("0") for part in whole]
    return [part.rstrip("0") for part in plain if len(part) > 1]


def find_numbers(text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of numbers of at least two digits in *text*, except in URLs, citations and list numbers."""
    apart = [found.span() for found in _NO_CONTENT.finditer(text)]
    found = (one for one in _NUMBER.finditer(text) if _digits(one[0]))
    return (one for one in found if not any(start <= one.start() < end for start, end in apart))

"""ROUGE of two texts: the overlap of their n-grams, or their longest common subsequence of tokens."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Final, Literal, NamedTuple

from ragtrace.core.errors import SettingsError

Variant = Literal["rouge1", "rouge2", "rougeL"]
Tokens = Literal["unicode", "ascii", "stemmed"]
VARIANTS: Final[tuple[Variant, ...]] = ("rouge1", "rouge2", "rougeL")
TOKENS: Final[tuple[Tokens, ...]] = ("unicode", "ascii", "stemmed")
# Scripts written without spaces: each character is a token (Han, Hiragana, Katakana; Hangul has spaces).
_CJK: Final = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_ASCII_TOKEN: Final = re.compile(r"[a-z0-9]+")


class Overlap(NamedTuple):
    """ROUGE overlap of a candidate text with a reference text: precision, recall and F1, each in [0, 1]."""

    precision: float
    """Share of the candidate's n-grams or tokens that match."""
    recall: float
    """Share of the reference's n-grams or tokens that match."""
    f1: float


def tokens_of(text: str, kind: Tokens = "unicode") -> list[str]:
    """Split *text* into the tokens that ROUGE compares.

    Args:
        kind: `unicode`: NFKC, case folded, runs of letters and digits of any script, one token a Chinese or Japanese
            character. `ascii`: lower case, runs of a-z and 0-9, as the rouge-score package has them without stemming.
            `stemmed`: those of the rouge-score package with its stemming (the extra `rouge`).

    Raises:
        SettingsError: `stemmed` without the extra.
    """
    if kind == "unicode":
        return _unicode_token().findall(unicodedata.normalize("NFKC", text).casefold())
    if kind == "ascii":
        return _ASCII_TOKEN.findall(text.lower())
    return _stemmed(text)


@cache
def _unicode_token() -> re.Pattern[str]:
    """Return the pattern of a token in any script: a word or number, or one Chinese or Japanese character.

    Vowel signs of Indic scripts, no letters to `\\w`, are part of a token.
    """
    marks = "".join(chr(code) for code in range(0x300, 0x1E950) if unicodedata.category(chr(code)).startswith("M"))
    letter = rf"[^\W_{_CJK}]"
    return re.compile(rf"[{_CJK}]|{letter}(?:{letter}|[{marks}])*")


def rouge(candidate: Sequence[str], reference: Sequence[str], variant: Variant = "rouge1") -> Overlap:
    """Return the ROUGE overlap of two lists of tokens: precision, recall and F1.

    It is 0 without n-grams on one side or both (two lists of one token have no bigram), as in the rouge-score package.

    Source: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", sections 2 and 3.
    """
    if variant == "rougeL":
        return _overlap(_common_subsequence(candidate, reference), len(candidate), len(reference))
    n = 1 if variant == "rouge1" else 2
    ours, theirs = _ngrams(candidate, n), _ngrams(reference, n)
    return _overlap((ours & theirs).total(), ours.total(), theirs.total())


def _ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def _overlap(common: int, candidate: int, reference: int) -> Overlap:
    if not common:
        return Overlap(0.0, 0.0, 0.0)
    precision, recall = common / candidate, common / reference
    return Overlap(precision, recall, 2 * precision * recall / (precision + recall))


def _common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the longest common subsequence of two lists of tokens.

    Each row of the usual table is held in the bits of one integer.

    Source: Hyyro 2004, "Bit-parallel LCS-length computation revisited": for 10,000 tokens a side the plain table
    would take a hundred million steps.
    """
    places: dict[str, int] = {}
    for i, token in enumerate(a):
        places[token] = places.get(token, 0) | 1 << i
    everything = row = (1 << len(a)) - 1
    for token in b:
        matched = row & places.get(token, 0)
        row = ((row + matched) | (row - matched)) & everything
    return len(a) - row.bit_count()


def _stemmed(text: str) -> list[str]:
    try:
        tokenizers = import_module("rouge_score.tokenizers")
    except ImportError as error:
        raise SettingsError(
            "tokens='stemmed' needs the rouge-score package; pip install 'ragtrace-otel[rouge]', or use tokens='ascii'"
        ) from error
    found: list[str] = tokenizers.DefaultTokenizer(use_stemmer=True).tokenize(text)
    return found

"""Search index of the demo, which ranks passages by BM25, a standard weighting of search terms.

Source: Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond", section 3.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from heapq import nsmallest
from math import log1p

from ragtrace.demo.library import Passage

K1 = 1.2
B = 0.75
"""BM25 parameters (b, and k1 above) that the source calls reasonable (section 3.5); not tuned on the demo."""

STOP_WORDS = frozenset(
    "a an and any are as at be been but by can could did do does for from had has have how i if in into is it its"
    " me my of on or our should so such than that the their them then there these they this to was we were what"
    " when where which who why will with would you your tell about explain please need want find out whether get"
    " compute make way several some few given everything documentation know say used work".split()
)
_WORD = re.compile(r"\w+(?:\.\w+)+|\w+")
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SUFFIXES = ("ings", "ing", "ies", "ied", "es", "ed", "s")


def tokens(text: str) -> list[str]:
    """Split *text* into search terms: the stems of the words, and each identifier together with its parts.

    "shutil.copyFile" gives "shutil.copyfile", "shutil", "copyfile", "copy", "file".
    """
    return [term for word in _WORD.findall(text) if word.lower() not in STOP_WORDS for term in _terms(word)]


@lru_cache(maxsize=50_000)
def _terms(word: str) -> tuple[str, ...]:
    if word.isalpha() and (word.islower() or word.istitle()):
        return (_stem(word.lower()),)
    humps = (_stem(hump.lower()) for piece in word.split(".") for hump in _HUMPS.findall(piece))
    return tuple(dict.fromkeys((word.lower(), *word.lower().split("."), *humps)))


def _stem(word: str) -> str:
    """Return the stem of *word*, without a plural or verb ending and without a final e."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not word.endswith("ss"):
            word = word[: -len(suffix)] + ("y" if suffix in ("ies", "ied") else "")
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


class Index:
    """Search index over passages, with the BM25 weight of every term in every passage."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages
        # The name of a passage counts twice; section 3.6 of the source weights fields before the saturation.
        counts = [Counter(tokens(passage.text) + tokens(passage.entry.name)) for passage in passages]
        lengths = [count.total() for count in counts]
        mean_length = max(sum(lengths) / max(len(lengths), 1), 1.0)
        self._holders = Counter(term for count in counts for term in count)
        self._weights: dict[str, list[tuple[int, float]]] = {}
        for row, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            norm = K1 * (1 - B + B * length / mean_length)
            for term, frequency in count.items():
                weight = self.rarity(term) * frequency * (K1 + 1) / (frequency + norm)
                self._weights.setdefault(term, []).append((row, weight))

    def search(self, query: str, k: int) -> list[tuple[Passage, float]]:
        """Return the *k* passages that match *query* best, each with its BM25 weight, best first."""
        scores: dict[int, float] = {}
        for term in sorted(set(tokens(query))):  # sorted, as sums of floats depend on the order
            for row, weight in self._weights.get(term, ()):
                scores[row] = scores.get(row, 0.0) + weight
        best = nsmallest(k, scores, key=lambda row: (-scores[row], row))
        return [(self.passages[row], scores[row]) for row in best]

    def rarity(self, term: str) -> float:
        """Return the inverse document frequency of a search term, or 0.0 if no passage contains the term."""
        holders = self._holders[term]
        return log1p((len(self.passages) - holders + 0.5) / (holders + 0.5)) if holders else 0.0

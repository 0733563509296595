"""Retrieval: BM25 over passages, in numpy.

Source: Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond", section 3.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ragtrace.demo.passages import Passage

K1 = 1.2
B = 0.75
"""The values the source names as reasonable in many circumstances (section 3.5); nothing here was tuned."""

Floats: TypeAlias = npt.NDArray[np.float32]
Indices: TypeAlias = npt.NDArray[np.int32]

STOP_WORDS = frozenset(
    "a an and any are as at be been but by can could did do does for from had has have how i if in into is it its"
    " me my of on or our should so such than that the their them then there these they this to was we were what"
    " when where which who why will with would you your tell about explain please need want find out whether get"
    " compute make way several some few given everything".split()
)
_WORD = re.compile(r"\w+(?:\.\w+)+|\w+")
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SUFFIXES = ("ings", "ing", "ies", "ied", "es", "ed", "s")


def tokens(text: str) -> list[str]:
    """Search terms of *text*: words without inflection; an identifier gives itself and its parts.

    "shutil.copyFile" gives "shutil.copyfile", "shutil", "copyfile", "copy", "file".
    """
    found: list[str] = []
    for match in _WORD.finditer(text):
        word = match.group()
        lower = word.lower()
        if lower not in STOP_WORDS:
            found += _parts(word, lower)
    return found


def _parts(word: str, lower: str) -> list[str]:
    if word.isalpha() and (word.islower() or word.istitle()):  # by far the most frequent case
        return [_stem(lower)]
    terms = [lower]
    for piece in word.split("."):
        if piece.lower() not in terms:
            terms.append(piece.lower())
        terms += [hump for hump in map(_stem, map(str.lower, _HUMPS.findall(piece))) if hump not in terms]
    return terms


def _stem(word: str) -> str:
    """*word* without a plural or verb ending and without a final e, where at least three letters remain."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not word.endswith("ss"):
            word = word[: -len(suffix)] + ("y" if suffix in ("ies", "ied") else "")
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


class Index:
    """An inverted index with ready-made BM25 weights."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages
        # What a passage is called counts twice: fields weighted before the saturation, section 3.6 of the source.
        counts = [Counter(tokens(passage.text) + tokens(passage.name)) for passage in passages]
        lengths = np.array([count.total() for count in counts], dtype=np.float32)
        norm = K1 * (1 - B + B * lengths / max(float(lengths.mean()) if len(counts) else 1.0, 1.0))
        rows: dict[str, tuple[list[int], list[int]]] = {}
        for row, count in enumerate(counts):
            for term, frequency in count.items():
                where, frequencies = rows.setdefault(term, ([], []))
                where.append(row)
                frequencies.append(frequency)
        self._postings = {
            term: _weighted(np.array(where, dtype=np.int32), np.array(found, dtype=np.float32), norm, len(counts))
            for term, (where, found) in rows.items()
        }

    def search(self, query: str, k: int) -> list[tuple[Passage, float]]:
        """The *k* best passages with their BM25 weight, best first; fewer if fewer share a term with *query*."""
        scores: Floats = np.zeros(len(self.passages), dtype=np.float32)
        for term in set(tokens(query)):
            if term in self._postings:
                where, weights = self._postings[term]
                scores[where] += weights
        order = np.argsort(-scores, kind="stable")[:k]  # stable: equal weights keep the documents' order
        return [(self.passages[row], float(scores[row])) for row in order if scores[row] > 0]

    def rarity(self, term: str) -> float:
        """Inverse document frequency of one search term; 0.0 if no passage has it."""
        posting = self._postings.get(term)
        return _rarity(len(posting[0]), len(self.passages)) if posting else 0.0


def _weighted(where: Indices, frequencies: Floats, norm: Floats, total: int) -> tuple[Indices, Floats]:
    """Rows that hold one term and what each gains from it."""
    gain = frequencies * (K1 + 1) / (frequencies + norm[where])
    return where, (gain * np.float32(_rarity(len(where), total))).astype(np.float32)


def _rarity(holders: int, total: int) -> float:
    return float(np.log1p((total - holders + 0.5) / (holders + 0.5)))

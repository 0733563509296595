"""What words mean to the embedded judge, worked out once for each spelling, and how text is read into them.

ASCII text is read by its *runs*, the stretches between spaces after `spaced`: a run is nearly always one word, so that
one look-up tells all about it. Other text is read by a pattern. Both find the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ragtrace.judges.lexical.text import (
    ASCII_TOKEN,
    IS_UNSPACED,
    MAX_WORD_CHARS,
    TOKEN,
    fold,
    fold_light,
    light_stem,
    number,
    plain,
    spaced,
    stem,
)
from ragtrace.judges.lexical.words import (
    CHINESE_FUNCTION,
    CONTEXT_NOUNS,
    DENIALS,
    ENGLISH,
    FRAMING,
    FUNCTION_WORDS,
    GENERIC,
    NEGATIONS,
    NUMBER_WORDS,
    UNITS,
)

_T = TypeVar("_T")

GENERIC_WEIGHT: Final = 0.25
"""What a framing word ("certain", "process") counts, against 1 for any other content word."""
NEGATION: Final = "\0"
"""Stands for a negation among the stems that `stems` returns. No folding yields it; even "not " is one word's stem."""
_SIGNALS: Final = DENIALS | NEGATIONS | CONTEXT_NOUNS
_PARTICULAR: Final = _SIGNALS | ENGLISH | FRAMING | NUMBER_WORDS.keys() | UNITS.keys()
"""English words of which more is to be said than their stem and weight."""
_CACHED_WORDS: Final = 20_000
_CACHED_CHARS: Final = 64
_PREFIX_CHARS: Final = 6
_ARABIC_AND: Final = "\u0648"


class Word(NamedTuple):
    """What one spelling means to the judge."""

    stem: str
    weight: float
    """0 for function words, `GENERIC_WEIGHT` for framing words, 1 for the rest."""
    number: bool = False
    name: bool = False
    """It starts with a capital: a name, unless it merely starts its sentence."""
    negation: bool = False
    denial: bool = False
    """It may belong to a sentence that declines to answer."""
    source: bool = False
    """It may refer to the chunks: "passage", "document"."""
    signal: bool = False
    """It is one of the last three."""


Token: TypeAlias = tuple[int, int, Word]
"""One word of a text: the offset of its first character, the one after its last, and what it means. (A plain tuple: a
named one takes longer to make than all else that is done with a word.)"""


class Lexicon(dict[str, Word]):
    """Spelling to `Word`, worked out at first sight and remembered for one language; bounded."""

    def __init__(self, language: str = "en") -> None:
        super().__init__()
        self.english = language in ("", "en")
        self._language = language
        self.telling = _Runs(self, _telling)
        self.stems = _Runs(self, _stems)
        self._stop = ENGLISH if self.english else FUNCTION_WORDS.get(language, ENGLISH)
        self._empty = self._stop | FRAMING

    def __missing__(self, spelling: str) -> Word:
        if len(self) >= _CACHED_WORDS:
            self.clear()
        word = self[spelling] = self._read(spelling)
        return word

    def _read(self, spelling: str) -> Word:
        lower = spelling.lower()
        if self.english and spelling.isalpha() and spelling.isascii() and lower not in _PARTICULAR:
            # A shorter way to what is said below, for nearly all new words.
            root = stem(lower)
            return Word(root, _content_weight(lower, root), False, spelling[0] != lower[0])
        if spelling[0].isdecimal():
            return Word(number(spelling, comma=not self.english), 1.0, number=True)
        if spelling[0] == _ARABIC_AND and spelling[1:].isdecimal():
            return Word(number(spelling[1:]), 1.0, number=True)
        if spelling[0] >= "\u0e00" and IS_UNSPACED.match(spelling):
            folded = fold(spelling)
            return Word(folded, self._unspaced_weight(folded))
        light = fold_light(spelling)
        base = fold(spelling).removesuffix("'s").replace("'", "")
        if self.english and base in NUMBER_WORDS:
            return Word(NUMBER_WORDS[base], 1.0, number=True)
        root = self._stem(UNITS.get(base, base) if self.english else base)
        weight = self._weight(light, base, root)
        # German writes every noun with a capital.
        capital = spelling[0].isupper() and self._language != "de"
        if light not in _SIGNALS:
            return Word(root, weight, False, capital)
        return Word(root, weight, False, capital, light in NEGATIONS, light in DENIALS, light in CONTEXT_NOUNS, True)

    def _weight(self, light: str, base: str, root: str) -> float:
        if light in self._stop or not base:
            return 0.0
        if not self.english:
            return 1.0 if len(base) > 1 else 0.0
        if base in self._empty:
            return 0.0
        return _content_weight(base, root)

    def _unspaced_weight(self, pair: str) -> float:
        # Hiragana writes endings and particles, and what joins a word with its neighbour says little of the subject.
        joins = any("\u3040" <= c <= "\u309f" or c in CHINESE_FUNCTION for c in pair)
        return GENERIC_WEIGHT if joins else 1.0

    def _stem(self, base: str) -> str:
        if self.english and base.isascii():
            return stem(base)
        # The first letters are a stemmer for any alphabet, once endings are off that differ within them.
        return light_stem(base, self._language)[:_PREFIX_CHARS]


class _Runs(dict[str, _T]):
    """What *read* makes of the words of a run, remembered; bounded."""

    def __init__(self, lexicon: Lexicon, read: Callable[[Iterable[Token]], _T]) -> None:
        super().__init__()
        self._lexicon, self._read = lexicon, read

    def __missing__(self, run: str) -> _T:
        if len(self) >= _CACHED_WORDS:
            self.clear()
        if run.isalpha() and len(run) <= MAX_WORD_CHARS:
            found = self[run] = self._read(((0, len(run), self._lexicon[run]),))
            return found
        found = self._read(tokens(run, self._lexicon))
        return self.setdefault(run, found) if len(run) <= _CACHED_CHARS else found


def _telling(found: Iterable[Token]) -> tuple[Token, ...]:
    return tuple([token for token in found if token[2].weight or token[2].signal])


def _stems(found: Iterable[Token]) -> tuple[str, ...]:
    return tuple([word.stem if word.weight else NEGATION for _, _, word in found if word.weight or word.negation])


def _content_weight(base: str, root: str) -> float:
    return GENERIC_WEIGHT if len(base) == 1 or root in _generic_stems() else 1.0


_GENERIC_STEMS: set[str] = set()


def _generic_stems() -> set[str]:
    if not _GENERIC_STEMS:
        _GENERIC_STEMS.update(stem(word) for word in GENERIC | CONTEXT_NOUNS)
    return _GENERIC_STEMS


def tokens(text: str, lexicon: Lexicon, start: int = 0, end: int | None = None) -> list[Token]:
    """The words of ``text[start:end]`` with their offsets in *text*; unspaced scripts as overlapping pairs."""
    end = len(text) if end is None else end
    if text.isascii():
        return [(m.start(), m.end(), lexicon[m[0]]) for m in ASCII_TOKEN.finditer(text, start, end)]
    found: list[Token] = []
    for match in TOKEN.finditer(text, start, end):
        first, last = match.span()
        spelling = match[0]
        if spelling[0] < "\u0e00" or not IS_UNSPACED.match(spelling):
            found.append((first, last, lexicon[spelling]))
            continue
        ends = range(min(first + 2, last), last + 1)
        found.extend((max(end - 2, first), end, lexicon[text[max(end - 2, first) : end]]) for end in ends)
    return found


def telling_tokens(text: str, lexicon: Lexicon, start: int, end: int) -> list[Token]:
    """As `tokens`, without mere function words."""
    part = text[start:end]
    part = part if part.isascii() else plain(part)
    if not part.isascii():
        return list(_telling(tokens(text, lexicon, start, end)))
    found: list[Token] = []
    known = lexicon.telling
    for run in spaced(part).split(" "):
        if telling := known[run]:
            for first, last, word in telling:
                found.append((start + first, start + last, word))
        start += len(run) + 1
    return found


def stems(text: str, lexicon: Lexicon, start: int, end: int) -> Iterable[str]:
    """The stems of the content words of ``text[start:end]``, and `NEGATION` for each negation, in order."""
    part = text[start:end]
    part = part if part.isascii() else plain(part)
    if part.isascii():
        # The inner loop of the judge: no step of it runs in the interpreter.
        return chain.from_iterable(map(lexicon.stems.__getitem__, spaced(part).split()))
    return _stems(tokens(part, lexicon))

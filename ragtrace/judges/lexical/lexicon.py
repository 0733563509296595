"""`Lexicon`: what each spelling means to the embedded judge, worked out once; and the splitting of text into words.

ASCII text is split into *runs*, the stretches between spaces after `spaced`: a run is nearly always one word, so that
one look-up gives all about it. Other text is split by a pattern. Both find the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ragtrace.judges.lexical.text import (
    ASCII_TOKEN,
    IS_UNSPACED,
    MAX_WORD_CHARS,
    TOKEN,
    ascii_punctuation,
    fold,
    fold_light,
    light_stem,
    number,
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
"""Weight of a framing word ("certain", "process"), against 1 for any other content word."""
NEGATION: Final = "\0"
"""Stands for a negation among the stems that `stems` returns; no word has this stem."""
_SIGNALS: Final = DENIALS | NEGATIONS | CONTEXT_NOUNS
_PARTICULAR: Final = _SIGNALS | ENGLISH | FRAMING | NUMBER_WORDS.keys() | UNITS.keys()
"""English words that have a meaning beyond their stem and weight."""
_CACHED_WORDS: Final = 20_000
_CACHED_CHARS: Final = 64
_PREFIX_CHARS: Final = 6
_ARABIC_AND: Final = "\u0648"


class Word(NamedTuple):
    """Meaning of one spelling to the judge."""

    stem: str
    weight: float
    """0 for function words, `GENERIC_WEIGHT` for framing words, 1 for the rest."""
    number: bool = False
    name: bool = False
    """Starts with a capital: a name, unless it merely starts its sentence."""
    negation: bool = False
    denial: bool = False
    """May belong to a sentence that declines to answer."""
    source: bool = False
    """May refer to the chunks: "passage", "document"."""
    signal: bool = False
    """Negation, denial or source."""


Token: TypeAlias = tuple[int, int, Word]
"""One word of a text: the offsets of its first character and after its last, and its meaning. (A plain tuple: a named
one takes longer to make than all else that is done with a word.)"""


class Lexicon(dict[str, Word]):
    """Bounded cache of the `Word` for each spelling in one language, made at the first look-up."""

    def __init__(self, language: str = "en") -> None:
        super().__init__()
        self.english = language in ("", "en")
        self._language = language
        self.content = _Runs(self, _content_tokens)
        self.stems = _Runs(self, _stems)
        self._stop = ENGLISH if self.english else FUNCTION_WORDS.get(language, ENGLISH)
        self._empty = self._stop | FRAMING if self.english else frozenset[str]()

    def __missing__(self, spelling: str) -> Word:
        if len(self) >= _CACHED_WORDS:
            self.clear()
        word = self[spelling] = self._read(spelling)
        return word

    def _read(self, spelling: str) -> Word:
        lower = spelling.lower()
        if self.english and spelling.isalpha() and spelling.isascii() and lower not in _PARTICULAR:
            # A shorter way to the result of the code below, for nearly all new words.
            root = stem(lower)
            return Word(root, _content_weight(lower, root), False, spelling[0] != lower[0])
        if spelling[0].isdecimal():
            return Word(number(spelling, comma=not self.english), 1.0, number=True)
        if spelling[0] == _ARABIC_AND and spelling[1:].isdecimal():
            return Word(number(spelling[1:]), 1.0, number=True)
        if spelling[0] >= "\u0e00" and IS_UNSPACED.match(spelling):
            folded = fold(spelling)
            # Hiragana writes endings and particles, and a character that joins words says little of the subject.
            joins = any("\u3040" <= c <= "\u309f" or c in CHINESE_FUNCTION for c in folded)
            return Word(folded, GENERIC_WEIGHT if joins else 1.0)
        light = fold_light(spelling)
        base = fold(spelling).removesuffix("'s").replace("'", "")
        if self.english and base in NUMBER_WORDS:
            return Word(NUMBER_WORDS[base], 1.0, number=True)
        unit = UNITS.get(base, base) if self.english else base
        # The first letters are a stemmer for any alphabet, once endings are off that differ within them.
        by_suffix = self.english and unit.isascii()
        root = stem(unit) if by_suffix else light_stem(unit, self._language)[:_PREFIX_CHARS]
        if light in self._stop or not base or base in self._empty:
            weight = 0.0
        elif self.english:
            weight = _content_weight(base, root)
        else:
            weight = 1.0 if len(base) > 1 else 0.0
        # German writes every noun with a capital.
        capital = spelling[0].isupper() and self._language != "de"
        if light not in _SIGNALS:
            return Word(root, weight, False, capital)
        return Word(root, weight, False, capital, light in NEGATIONS, light in DENIALS, light in CONTEXT_NOUNS, True)


class _Runs(dict[str, _T]):
    """Bounded cache of the result of *read* for the words of each run."""

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


def _content_tokens(found: Iterable[Token]) -> tuple[Token, ...]:
    return tuple([token for token in found if token[2].weight or token[2].signal])


def _stems(found: Iterable[Token]) -> tuple[str, ...]:
    return tuple([word.stem if word.weight else NEGATION for _, _, word in found if word.weight or word.negation])


def _content_weight(base: str, root: str) -> float:
    return GENERIC_WEIGHT if len(base) == 1 or root in _generic_stems() else 1.0


@cache
def _generic_stems() -> frozenset[str]:
    return frozenset(stem(word) for word in GENERIC | CONTEXT_NOUNS)


def tokens(text: str, lexicon: Lexicon, start: int = 0, end: int | None = None) -> list[Token]:
    """Return the words of ``text[start:end]`` with their offsets in *text*; unspaced scripts as overlapping pairs."""
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


def content_tokens(text: str, lexicon: Lexicon, start: int, end: int) -> list[Token]:
    """Return the words of ``text[start:end]`` as `tokens` does, without mere function words."""
    part = text[start:end]
    part = part if part.isascii() else ascii_punctuation(part)
    if not part.isascii():
        return list(_content_tokens(tokens(text, lexicon, start, end)))
    found: list[Token] = []
    known = lexicon.content
    for run in spaced(part).split(" "):
        if content := known[run]:
            for first, last, word in content:
                found.append((start + first, start + last, word))
        start += len(run) + 1
    return found


def stems(text: str, lexicon: Lexicon, start: int, end: int) -> Iterable[str]:
    """Return the stems of the content words of ``text[start:end]``, and `NEGATION` for each negation, in order."""
    part = text[start:end]
    part = part if part.isascii() else ascii_punctuation(part)
    if part.isascii():
        # The inner loop of the judge: all of it runs in C.
        return chain.from_iterable(map(lexicon.stems.__getitem__, spaced(part).split()))
    return _stems(tokens(part, lexicon))

"""Text analysis in any script: splits text into words, stems words, and detects script and language.

`Lexicon` caches what each spelling means to the embedded judge. ASCII text is split into *runs*, the stretches between
spaces after `blank_punctuation`: a run is nearly always one word, so that one look-up gives all about it. Other text
is split by a pattern; both find the same words.

No function here looks at more than a bounded piece of text in one go, and no pattern can backtrack: the text is
untrusted output of a user's application.

**Invariants**, and their tests in `tests/unit/judges/test_lexicon.py`, unless a file is named:
    both ways of reading find the same words     `test_both_ways_of_reading_find_the_same_words`
    words are slices of the text                 `test_tokens_are_slices_of_the_text`
    the cache is bounded                         `test_the_word_cache_is_bounded`
    hostile text takes time in proportion        `test_long_hostile_text_is_dealt_with_in_small_steps`
                                                 (`test_embedded.py`)

**Changing it.** A word that is read, weighted or stemmed otherwise changes scores, and raises `EmbeddedJudge.version`.
`stems`, with `blank_punctuation` and the two caches, is the inner loop of the judge: compare the CPU time that
`tests/benchmarks/accuracy.py` prints with that of the commit before. The closest passages are found by `stems`, too.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from itertools import chain, filterfalse
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ragtrace.core.text import LazyPattern
from ragtrace.judges.lexical.words import (
    ARABIC_ENDINGS,
    ARABIC_PREFIXES,
    CHINESE_FUNCTION,
    CONTEXT_NOUNS,
    DENIALS,
    ENGLISH,
    FRAMING,
    FUNCTION_WORDS,
    GENERIC,
    INFLECTION,
    NEGATIONS,
    NUMBER_WORDS,
    UNITS,
)

_T = TypeVar("_T")

MAX_WORD_CHARS: Final = 64
"""Most characters of a word. A longer run of letters is read as several words, which bounds the cost of each."""
SAMPLE_CHARS: Final = 400
"""Number of characters at the start of a text that language and script are recognised from."""

# Soft hyphen and zero-width characters, which hide in words of copied text; `normalize_word` removes them.
_HIDDEN = "\u00ad\u200b-\u200d\u2060\ufeff"
# Letters and their vowel signs: `\w` leaves out combining marks, which would cut words of these scripts into pieces.
_MARKED = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff"
)
# Scripts without spaces (and Hangul, whose particles stick to the noun): read as overlapping pairs of characters.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003134f"
)
_TAIL = r"(?:['\u2019](?:[sStTdDmM]|re|ve|ll|RE|VE|LL)(?![^\W_]))?"
_NUMBER = r"\d{1,32}(?:[.,]\d{1,32}){0,8}"
_LAST = MAX_WORD_CHARS - 1
ASCII_TOKEN: Final = LazyPattern(
    rf"[A-Za-z][A-Za-z0-9]{{0,{_LAST}}}(?:'(?:[sStTdDmM]|re|ve|ll|RE|VE|LL)(?![A-Za-z0-9]))?|{_NUMBER}"
)
# Every part ends only where its class of characters ends, and nothing has to follow: the search never backtracks.
TOKEN: Final = LazyPattern(
    rf"[{_UNSPACED}]{{1,{MAX_WORD_CHARS}}}|{_NUMBER}"
    rf"|[^\W\d_{_UNSPACED}][^\W_{_UNSPACED}]{{0,{_LAST}}}"
    rf"(?:[{_MARKED}{_HIDDEN}]{{1,8}}[^\W_{_UNSPACED}]{{0,{_LAST}}}){{0,16}}{_TAIL}"
)
IS_UNSPACED: Final = LazyPattern(f"[{_UNSPACED}]")
# A dot, a comma and an apostrophe may stand inside a word or number.
_SPACED: Final = bytes(code if chr(code).isalnum() or chr(code) in "'.," else 32 for code in range(256))
# Typographic marks and their ASCII forms: the apostrophe may be part of a word, the other marks never are.
_TYPOGRAPHY: Final = (("\u2019", "'"), *((mark, " ") for mark in "\u2018\u201c\u201d\u2013\u2014\u2022\u2026\u00a0"))
_LETTER = LazyPattern(r"[^\W\d_]")
_BEYOND_LATIN = LazyPattern(r"[\u0370-\u1dff\u1f00-\u1fff\u2c80-\ua71f\ua800-\ufaff\ufb1d-\U000fffff]")
_ENDINGS: Final = (
    ("ational", "ate", 9), ("ization", "ize", 9), ("isation", "ise", 9), ("ations", "", 8), ("ation", "", 7),
    ("ments", "", 8), ("ment", "", 7), ("ness", "", 7), ("ingly", "", 8), ("edly", "", 7), ("ities", "", 7),
    ("ity", "", 6), ("ings", "", 6), ("ing", "", 6), ("ies", "y", 5), ("ied", "y", 5), ("ers", "", 6), ("er", "", 5),
    ("ed", "", 5), ("ions", "", 7), ("ion", "", 6), ("ally", "", 7), ("ly", "", 5), ("al", "", 6), ("es", "", 5),
    ("s", "", 4),
)  # fmt: skip
# Endings by the last two letters, which leaves one to four to try, in order; "s" has those of all other words in -s.
_SUFFIXES: Final = {
    last: tuple(ending for ending in _ENDINGS if ending[0][-2:] == last or last.endswith(ending[0]))
    for last in {ending[0][-2:] for ending in _ENDINGS}
}
_LEAST_STEM: Final = 3
_LEAST_ARABIC_STEM: Final = 2
# First code points of blocks; a letter belongs to the last block that starts at or before it.
_SCRIPTS: Final = (
    (0x0041, "latin"), (0x0370, "greek"), (0x0400, "cyrillic"), (0x0530, "armenian"), (0x0590, "hebrew"),
    (0x0600, "arabic"), (0x0700, "syriac"), (0x0750, "arabic"), (0x0780, "other"), (0x08A0, "arabic"),
    (0x0900, "devanagari"), (0x0980, "bengali"), (0x0A00, "gurmukhi"), (0x0A80, "gujarati"), (0x0B00, "oriya"),
    (0x0B80, "tamil"), (0x0C00, "telugu"), (0x0C80, "kannada"), (0x0D00, "malayalam"), (0x0D80, "sinhala"),
    (0x0E00, "thai"), (0x0E80, "lao"), (0x0F00, "tibetan"), (0x1000, "myanmar"), (0x10A0, "georgian"),
    (0x1100, "hangul"), (0x1200, "ethiopic"), (0x13A0, "other"), (0x1780, "khmer"), (0x1800, "other"),
    (0x1C80, "cyrillic"), (0x1D00, "latin"), (0x1F00, "greek"), (0x2000, "other"), (0x2C60, "latin"),
    (0x2C80, "other"), (0x2DE0, "cyrillic"), (0x2E00, "other"), (0x3040, "kana"), (0x3100, "other"), (0x3400, "han"),
    (0xA000, "other"), (0xA640, "cyrillic"), (0xA6A0, "other"), (0xA720, "latin"), (0xA800, "other"),
    (0xAC00, "hangul"), (0xD7B0, "other"), (0xF900, "han"), (0xFB00, "latin"), (0xFB1D, "hebrew"), (0xFB50, "arabic"),
    (0xFE00, "other"), (0xFE70, "arabic"), (0xFF00, "latin"), (0xFF66, "kana"), (0xFFA0, "other"), (0x20000, "han"),
    (0x32000, "other"),
)  # fmt: skip
GENERIC_WEIGHT: Final = 0.25
"""Weight of a framing word ("certain", "process"), against 1 for any other content word."""
NEGATION: Final = "\0"
"""Stem that `stems` returns for a negation; no word has this stem."""
_SIGNALS: Final = DENIALS | NEGATIONS | CONTEXT_NOUNS
_PARTICULAR: Final = _SIGNALS | ENGLISH | FRAMING | NUMBER_WORDS.keys() | UNITS.keys()
"""English words with more properties than stem and weight."""
_CACHED_WORDS: Final = 20_000
_CACHED_CHARS: Final = 64
_PREFIX_CHARS: Final = 6
_ARABIC_AND: Final = "\u0648"


class Word(NamedTuple):
    """Properties of one spelling of a word: its stem, its weight, and whether it is a number, name or negation."""

    stem: str
    weight: float
    """0 for a function word, `GENERIC_WEIGHT` for a framing word or a pair of characters that says little, else 1."""
    number: bool = False
    name: bool = False
    """Whether the word starts with a capital: a name, unless the word starts a sentence."""
    negation: bool = False
    denial: bool = False
    """Whether the word may belong to a sentence that declines to answer."""
    source: bool = False
    """Whether the word may refer to the chunks, as "passage" and "document" do."""
    signal: bool = False
    """Whether the word is a `negation`, `denial` or `source`."""


Token: TypeAlias = tuple[int, int, Word]
"""Word of a text: offset of its first character, offset after its last, and properties.

It is read by ``start, end, word = token``, never by an index. (A plain tuple: making a named one takes longer than all
other work on a word.)
"""


class Lexicon(dict[str, Word]):
    """Dictionary that maps the spelling of a word to its `Word` object, for one language.

    It is a cache of limited size: the object is made at the first look-up of its spelling.
    """

    def __init__(self, language: str = "en") -> None:
        super().__init__()
        self.english = language in ("", "en")
        self._language = language
        self.content = _RunCache(self, _content_tokens)
        self.stems = _RunCache(self, _stems)
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
            # A shortcut to the result of the code below, for nearly all new words.
            root = stem(lower)
            return Word(root, _content_weight(lower, root), False, spelling[0] != lower[0])
        if spelling[0].isdecimal():
            return Word(normalize_number(spelling, comma=not self.english), 1.0, number=True)
        if spelling[0] == _ARABIC_AND and spelling[1:].isdecimal():
            return Word(normalize_number(spelling[1:]), 1.0, number=True)
        if spelling[0] >= "\u0e00" and IS_UNSPACED.match(spelling):
            folded = normalize_word(spelling)
            # Endings and particles, written in Hiragana, say little of the subject, as do Chinese function characters.
            joins = any("\u3040" <= c <= "\u309f" or c in CHINESE_FUNCTION for c in folded)
            return Word(folded, GENERIC_WEIGHT if joins else 1.0)
        light = lower_case(spelling)
        base = normalize_word(spelling).removesuffix("'s").replace("'", "")
        if self.english and base in NUMBER_WORDS:
            return Word(NUMBER_WORDS[base], 1.0, number=True)
        unit = UNITS.get(base, base) if self.english else base
        # The first letters are a stem in any alphabet, once endings that differ within these letters are removed.
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


class _RunCache(dict[str, _T]):
    """Cache of the words that each run of characters without spaces contains.

    It is limited in size. A value is what *read* returns for these words.
    """

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
    return tuple([(start, end, word) for start, end, word in found if word.weight or word.signal])


def _stems(found: Iterable[Token]) -> tuple[str, ...]:
    return tuple([word.stem if word.weight else NEGATION for _, _, word in found if word.weight or word.negation])


def _content_weight(base: str, root: str) -> float:
    return GENERIC_WEIGHT if len(base) == 1 or root in _generic_stems() else 1.0


@cache
def _generic_stems() -> frozenset[str]:
    return frozenset(stem(word) for word in GENERIC | CONTEXT_NOUNS)


def tokens(text: str, lexicon: Lexicon, start: int = 0, end: int | None = None) -> list[Token]:
    """Return the words of ``text[start:end]`` in order, each with its offsets in *text*.

    A word in a script without spaces is returned as overlapping pairs of characters.
    """
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
    """Return the words of ``text[start:end]`` that carry content, without function words such as "the".

    Words and offsets are as `tokens` returns them. Function words with a `signal` are kept.
    """
    part = text[start:end]
    part = part if part.isascii() else ascii_punctuation(part)
    if not part.isascii():
        return list(_content_tokens(tokens(text, lexicon, start, end)))
    found: list[Token] = []
    known = lexicon.content
    for run in blank_punctuation(part).split(" "):
        if content := known[run]:
            for first, last, word in content:
                found.append((start + first, start + last, word))
        start += len(run) + 1
    return found


def stems(text: str, lexicon: Lexicon, start: int, end: int) -> Iterable[str]:
    """Return the stems of the content words of ``text[start:end]`` in order, and `NEGATION` for each negation."""
    part = text[start:end]
    part = part if part.isascii() else ascii_punctuation(part)
    if part.isascii():
        # The inner loop of the judge, which therefore runs in C alone.
        return chain.from_iterable(map(lexicon.stems.__getitem__, blank_punctuation(part).split()))
    return _stems(tokens(part, lexicon))


def ascii_punctuation(text: str) -> str:
    """Return *text* with its curly quotes, dashes and similar punctuation replaced by ASCII characters.

    The length and the words stay the same.
    """
    for character, instead in _TYPOGRAPHY:
        text = text.replace(character, instead)
    return text


def blank_punctuation(text: str) -> str:
    """Return ASCII *text* with a space in place of every character that belongs to no word or number.

    One more space is added at the end. A stretch between spaces is nearly always one word; tables and substrings are
    several times as fast as a pattern.
    """
    cleared = text.encode("ascii").translate(_SPACED).decode("ascii") + " "
    return cleared.replace(", ", "  ").replace(". ", "  ")


def one_line(text: str) -> str:
    """Return *text* as one line, with each run of white space replaced by one space.

    It is ``" ".join(text.split())``, in half the time for common text: only " " is printable white space.
    """
    line = text.replace("\n", " ")
    if not line.isprintable():
        return " ".join(text.split())
    while "  " in line:
        line = line.replace("  ", " ")
    return line.strip(" ")


def spellings(text: str) -> list[str]:
    """Return all words of *text* as they are spelled in the text, in any order."""
    if not text.isascii():
        return TOKEN.findall(text)
    runs = blank_punctuation(text).split()
    if max(map(len, runs), default=0) > MAX_WORD_CHARS:
        return ASCII_TOKEN.findall(text)
    return [*filter(str.isalpha, runs), *ASCII_TOKEN.findall(" ".join(filterfalse(str.isalpha, runs)))]


def normalize_word(word: str) -> str:
    """Return *word* in a normal form, without case, accents, width variants and hidden characters.

    Vowel signs are dropped only where they are optional (below U+0700: Latin, Greek, Cyrillic, Hebrew, Arabic).
    """
    if word.isascii():
        return word.lower()
    folded = unicodedata.normalize("NFKC", word).casefold().replace("\u2019", "'")
    if folded[:1] < "\u0700":
        folded = "".join(c for c in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(c))
    return "".join(c for c in folded if unicodedata.category(c) not in ("Cf", "Lm"))


def stem(word: str) -> str:
    """Return the stem of an English *word*, mainly by removing one suffix.

    A final e and the second of two equal final consonants are removed, too, and a final y becomes i. The word must be
    normalized (see `normalize_word`).
    """
    length = len(word)
    for suffix, replacement, least in _SUFFIXES.get(word[-2:]) or _SUFFIXES.get(word[-1:], ()):
        if length >= least and word.endswith(suffix) and not word.endswith("ss"):
            word = word[: -len(suffix)] + replacement
            break
    if len(word) > 3 and word[-1] == "e":
        word = word[:-1]
    if len(word) > 3 and word[-1] == "y":
        word = word[:-1] + "i"
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiou":
        word = word[:-1]
    return word


def light_stem(word: str, language: str) -> str:
    """Return the stem of a *word* in another language than English, without one inflectional ending.

    The word must be normalized (see `normalize_word`). An Arabic word loses its article and conjunction, too (as with
    Larkey's light stemmer).
    """
    endings, least = INFLECTION.get(language, ()), _LEAST_STEM
    if "\u0600" <= word[:1] <= "\u06ff":
        endings, least = ARABIC_ENDINGS, _LEAST_ARABIC_STEM
        word = word.replace("\u0649", "\u064a")
        if word[0] == _ARABIC_AND and len(word) > 3:
            word = word[1:]
        fits = (each for each in ARABIC_PREFIXES if word.startswith(each) and len(word) - len(each) >= least)
        word = word.removeprefix(next(fits, ""))
    elif "\u0400" <= word[:1] <= "\u04ff":
        endings = INFLECTION["ru"]  # of a short text only the alphabet may be known
    fits = (each for each in endings if word.endswith(each) and len(word) - len(each) >= least)
    word = word.removesuffix(next(fits, ""))
    if language == "de" and word.startswith("ge") and word.endswith("t") and len(word) > 6:
        word = word[2:-1]  # a participle
    return word


def normalize_number(token: str, *, comma: bool = False) -> str:
    """Return the normal form of a number: `1,000` becomes `1000`, `3.50` becomes `3.5`, and `٣` becomes `3`.

    A comma before three digits groups thousands, but not after a zero alone: `0,125` is a part of one.

    Args:
        comma: the language writes decimals with a comma, so that a point before three digits groups thousands.
    """
    if not token.isascii():
        token = "".join(str(unicodedata.decimal(c, c)) for c in token)
    if comma and re.fullmatch(r"\d{1,3}(?:\.\d{3}){1,8}(?:,\d+)?", token):
        token = token.replace(".", "")
    if "," in token:
        whole, *groups = token.split(",")
        thousands = whole.strip("0") != "" and all(len(group.split(".")[0]) == 3 for group in groups)
        token = whole + ("" if thousands else ".") + ("" if thousands else ".").join(groups)
    if token.count(".") == 1:
        token = token.rstrip("0").rstrip(".")
    return token.lstrip("0") or "0"


def count_scripts(text: str) -> dict[str, int]:
    """Return the number of letters of *text* in each script, such as "latin".

    The letters of a text in Latin alone are not counted: the number is 1.
    """
    if text.isascii() or not _BEYOND_LATIN.search(text):
        return {"latin": 1} if _LETTER.search(text) else {}
    counts: dict[str, int] = {}
    for character in text:
        if character.isalpha():
            _, name = _SCRIPTS[bisect_right(_SCRIPTS, ord(character), key=itemgetter(0)) - 1]
            counts[name] = counts.get(name, 0) + 1
    return counts


def detect_language(text: str, least: int = 3) -> str:
    """Return the code of the language whose function words dominate *text*, or "" if no language clearly does.

    Below three function words, at least *least* are needed, and none of any other language.
    """
    found = lower_case(" ".join(spellings(text))).split()
    # no other language here has nearly that share of English function words
    if sum(map(FUNCTION_WORDS["en"].__contains__, found)) >= max(3, 0.25 * len(found)):
        return "en"
    hits = sorted(((sum(map(known.__contains__, found)), code) for code, known in FUNCTION_WORDS.items()), reverse=True)
    (best, code), (second, _) = hits[0], hits[1]
    if least <= best < 3 and not second:  # two suffice for a short sentence
        return code
    return code if best >= least and best >= 0.15 * len(found) and best >= 1.5 * second else ""


def count_function_words(text: str, codes: Collection[str]) -> tuple[int, int, int]:
    """Count in *text* all words, the function words of the languages *codes*, and other function words.

    Where *codes* is English alone, words with accents count among the last. Capitalised words are left out, but for the
    first one: a list of names is the same in every language.
    """
    found = [word for at, word in enumerate(TOKEN.findall(text)) if word.islower() or (not at and word.istitle())]
    folded = [lower_case(word) for word in found]
    known = frozenset[str]().union(*(ENGLISH if code == "en" else FUNCTION_WORDS[code] for code in codes))
    own = sum(word in known for word in folded)
    accents = "en" in codes and len(codes) == 1
    every = _all_function_words()
    other = sum(word in every or (accents and not word.isascii()) for word in folded if word not in known)
    return len(found), own, other


@cache
def _all_function_words() -> frozenset[str]:
    """Return the function words of all known languages, except single letters."""
    return frozenset(word for known in FUNCTION_WORDS.values() for word in known if len(word) > 1)


def lower_case(text: str) -> str:
    """Return *text* in lower case and with straight apostrophes, but with its accents.

    Accents distinguish function words.
    """
    return text.lower().replace("\u2019", "'")


def cut_into_pieces(text: str, size: int, end: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yield consecutive ranges of ``text[start:end]`` of about *size* characters, cut at white space if possible."""
    while start < end:
        stop = min(start + size, end)
        if stop < end:
            space = max(text.rfind(" ", start, stop), text.rfind("\n", start, stop))
            stop = space + 1 if space > start + size // 2 else stop
        yield start, stop
        start = stop

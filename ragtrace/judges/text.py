"""Words out of text in any script: where they stand, what they fold and stem to, how much they say.

No function here looks at more than a bounded piece of text in one go, and no pattern can backtrack: the text is
whatever a user's application produced.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from ragtrace.judges.words import (
    CONTEXT_NOUNS,
    DENIALS,
    ENGLISH,
    FRAMING,
    FUNCTION_WORDS,
    GENERIC,
    NEGATIONS,
    NUMBER_WORDS,
)

MAX_WORD_CHARS: Final = 64
"""A longer run of letters is read as several words, so that one word can never cost more than this."""
GENERIC_WEIGHT: Final = 0.25
"""What a framing word ("certain", "process") counts, against 1 for any other content word."""
_CACHED_WORDS: Final = 20_000

# Inside a word: soft hyphen and zero-width characters, which hide in copied text and are folded away.
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
_ASCII_TOKEN = re.compile(
    rf"[A-Za-z][A-Za-z0-9]{{0,{_LAST}}}(?:'(?:[sStTdDmM]|re|ve|ll|RE|VE|LL)(?![A-Za-z0-9]))?|{_NUMBER}"
)
# Every part can only end where its class of characters ends, and nothing has to follow: no match is ever tried twice.
_TOKEN = re.compile(
    rf"[{_UNSPACED}]{{1,{MAX_WORD_CHARS}}}|{_NUMBER}"
    rf"|[^\W\d_{_UNSPACED}][^\W_{_UNSPACED}]{{0,{_LAST}}}"
    rf"(?:[{_MARKED}{_HIDDEN}]{{1,8}}[^\W_{_UNSPACED}]{{0,{_LAST}}}){{0,16}}{_TAIL}"
)
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_LETTER = re.compile(r"[^\W\d_]")
_BEYOND_LATIN = re.compile(r"[\u0370-\u1dff\u1f00-\u1fff\u2c80-\ua71f\ua800-\ufaff\ufb1d-\U000fffff]")
_SUFFIXES: Final = (
    ("ational", "ate", 9), ("ization", "ize", 9), ("isation", "ise", 9), ("ations", "", 8), ("ation", "", 7),
    ("ments", "", 8), ("ment", "", 7), ("ness", "", 7), ("ingly", "", 8), ("edly", "", 7), ("ities", "", 7),
    ("ity", "", 6), ("ings", "", 6), ("ing", "", 6), ("ies", "y", 5), ("ied", "y", 5), ("ers", "", 6), ("er", "", 5),
    ("ed", "", 5), ("ions", "", 7), ("ion", "", 6), ("ally", "", 7), ("ly", "", 5), ("al", "", 6), ("es", "", 5),
    ("s", "", 4),
)  # fmt: skip
_PREFIX_CHARS: Final = 6
_CLEARLY_ENGLISH: Final = 0.25  # no other language here shares nearly so many function words with it
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


Token: TypeAlias = tuple[int, int, Word]
"""One word of a text: the offset of its first character, the one after its last, and what it means. (A plain tuple: a
named one takes longer to make than all else that is done with a word.)"""


def fold(word: str) -> str:
    """*word* without case, accents, width variants and hidden characters.

    Vowel signs are dropped only where they are optional (below U+0700: Latin, Greek, Cyrillic, Hebrew, Arabic).
    """
    if word.isascii():
        return word.lower()
    folded = unicodedata.normalize("NFKC", word).casefold().replace("\u2019", "'")
    if folded[:1] < "\u0700":
        folded = "".join(c for c in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(c))
    return "".join(c for c in folded if unicodedata.category(c) not in ("Cf", "Lm"))


def stem(word: str) -> str:
    """A light English stem of a folded *word*: one suffix off, final e and y evened out, doubled consonants single."""
    length = len(word)
    for suffix, replacement, least in _SUFFIXES:
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


def number(token: str) -> str:
    """One spelling for one number: `1,000` and `1000`, `3.50` and `3.5`, `٣` and `3` are the same."""
    if not token.isascii():
        token = "".join(str(unicodedata.decimal(c, c)) for c in token)
    if "," in token:
        whole, *groups = token.split(",")
        thousands = all(len(group.split(".")[0]) == 3 for group in groups)
        token = whole + ("" if thousands else ".") + ("" if thousands else ".").join(groups)
    if token.count(".") == 1:
        token = token.rstrip("0").rstrip(".")
    return token.lstrip("0") or "0"


def script(character: str) -> str:
    """Name of the script block *character* lies in; good enough to tell whether two texts share an alphabet."""
    code, name = ord(character), "other"
    for first, block in _SCRIPTS:
        if first > code:
            break
        name = block
    return name


def scripts(text: str) -> dict[str, int]:
    """How many letters of each script *text* has; where there is only one, its number is not counted out."""
    if not _BEYOND_LATIN.search(text):
        return {"latin": 1} if _LETTER.search(text) else {}
    counts: dict[str, int] = {}
    for character in text:
        if character.isalpha():
            name = script(character)
            counts[name] = counts.get(name, 0) + 1
    return counts


def language(text: str) -> str:
    """Code of the language whose function words dominate *text*; empty where that cannot be said with confidence."""
    found = [fold_light(word) for word in (_ASCII_TOKEN if text.isascii() else _TOKEN).findall(text)]
    if sum(map(FUNCTION_WORDS["en"].__contains__, found)) >= max(3, _CLEARLY_ENGLISH * len(found)):
        return "en"
    hits = sorted(((sum(map(known.__contains__, found)), code) for code, known in FUNCTION_WORDS.items()), reverse=True)
    (best, code), (second, _) = hits[0], hits[1]
    return code if best >= 3 and best >= 0.15 * len(found) and best >= 1.5 * second else ""


def spoken_share(text: str, codes: Iterable[str]) -> tuple[int, float]:
    """How many words in small letters *text* has, and which share are function words of the languages *codes*.

    Names and values are left out: a list of them is the same in every language.
    """
    found = [word for word in _TOKEN.findall(text) if word.islower()]
    known = frozenset[str]().union(*(ENGLISH if code == "en" else FUNCTION_WORDS[code] for code in codes))
    return len(found), sum(fold_light(word) in known for word in found) / max(len(found), 1)


def fold_light(word: str) -> str:
    """Lower case and one kind of apostrophe: keeps the accents that function words are told apart by."""
    return word.lower().replace("\u2019", "'")


class Lexicon(dict[str, Word]):
    """Spelling to `Word`, worked out at first sight and remembered for one language; bounded."""

    def __init__(self, language: str = "en") -> None:
        super().__init__()
        self.english = language in ("", "en")
        self._stop = ENGLISH if self.english else FUNCTION_WORDS.get(language, ENGLISH)

    def __missing__(self, spelling: str) -> Word:
        if len(self) >= _CACHED_WORDS:
            self.clear()
        word = self[spelling] = self._read(spelling)
        return word

    def _read(self, spelling: str) -> Word:
        if spelling[0].isdecimal():
            return Word(number(spelling), 1.0, number=True)
        if spelling[0] >= "\u0e00" and _IS_UNSPACED.match(spelling):
            folded = fold(spelling)
            return Word(folded, self._unspaced_weight(folded))
        light = fold_light(spelling)
        base = fold(spelling).removesuffix("'s").replace("'", "")
        if self.english and base in NUMBER_WORDS:
            return Word(NUMBER_WORDS[base], 1.0, number=True)
        root = self._stem(base)
        return Word(
            root,
            self._weight(light, base, root),
            name=spelling[0].isupper(),
            negation=light in NEGATIONS,
            denial=light in DENIALS,
            source=light in CONTEXT_NOUNS,
        )

    def _weight(self, light: str, base: str, root: str) -> float:
        if light in self._stop or not base:
            return 0.0
        if not self.english:
            return 1.0 if len(base) > 1 else 0.0
        if base in FRAMING or base in self._stop:
            return 0.0
        return GENERIC_WEIGHT if len(base) == 1 or root in _generic_stems() else 1.0

    def _unspaced_weight(self, pair: str) -> float:
        # Hiragana writes endings and particles: it says little of the subject.
        return GENERIC_WEIGHT if all("\u3040" <= c <= "\u309f" for c in pair) else 1.0

    def _stem(self, base: str) -> str:
        if self.english and base.isascii():
            return stem(base)
        # Arabic writes the article onto the noun; elsewhere the first letters are a stemmer for any alphabet.
        return base.removeprefix("ال")[:_PREFIX_CHARS]


_GENERIC_STEMS: set[str] = set()


def _generic_stems() -> set[str]:
    if not _GENERIC_STEMS:
        _GENERIC_STEMS.update(stem(word) for word in GENERIC | CONTEXT_NOUNS)
    return _GENERIC_STEMS


def tokens(text: str, lexicon: Lexicon, start: int = 0, end: int | None = None) -> list[Token]:
    """The words of ``text[start:end]`` with their offsets in *text*; unspaced scripts as overlapping pairs."""
    end = len(text) if end is None else end
    if text.isascii():
        return [(m.start(), m.end(), lexicon[m[0]]) for m in _ASCII_TOKEN.finditer(text, start, end)]
    found: list[Token] = []
    for match in _TOKEN.finditer(text, start, end):
        first, last = match.span()
        spelling = match[0]
        if spelling[0] < "\u0e00" or not _IS_UNSPACED.match(spelling):
            found.append((first, last, lexicon[spelling]))
            continue
        ends = range(min(first + 2, last), last + 1)
        found.extend((max(end - 2, first), end, lexicon[text[max(end - 2, first) : end]]) for end in ends)
    return found


def words(text: str, lexicon: Lexicon, start: int, end: int) -> list[Word]:
    """The words of ``text[start:end]`` as `tokens` finds them, without their offsets: three times as fast."""
    if text.isascii():
        return [lexicon[spelling] for spelling in _ASCII_TOKEN.findall(text, start, end)]
    found: list[Word] = []
    for spelling in _TOKEN.findall(text, start, end):
        if spelling[0] < "\u0e00" or not _IS_UNSPACED.match(spelling):
            found.append(lexicon[spelling])
        else:
            found.extend(lexicon[spelling[at : at + 2]] for at in range(max(len(spelling) - 1, 1)))
    return found


def pieces(text: str, size: int, end: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """Cut ``text[start:end]`` into ranges of about *size* characters, at white space where there is some near."""
    while start < end:
        stop = min(start + size, end)
        if stop < end:
            space = max(text.rfind(" ", start, stop), text.rfind("\n", start, stop))
            stop = space + 1 if space > start + size // 2 else stop
        yield start, stop
        start = stop

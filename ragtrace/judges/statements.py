"""The statements of an answer: its sentences with their words, and which of them state a fact at all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ragtrace.judges.lexicon import Lexicon, Token, telling_tokens, tokens
from ragtrace.judges.sentences import sentences
from ragtrace.judges.text import fold_light, stem
from ragtrace.judges.words import CLOSINGS, CONTEXT_NOUNS, DENIALS

# A sentence declines when, close together, it denies that a speaker or the context knows or tells something.
_SPEAKERS: Final = frozenset("i i'm i've we we've".split())
_THE_CONTEXT: Final = frozenset(
    "passage passages context contexts document documents source sources text texts article articles excerpt excerpts"
    " snippet snippets paragraph paragraphs information results material materials reference references"
    " documentation".split()
)
_TELLING: Final = frozenset(
    "know answer find found mention mentioned mentions mentioning contain contains contained include includes included"
    " provide provides provided providing specify specifies specified state states stated say says address addresses"
    " addressed discuss discusses discussed determine give gives given tell cover covers covered indicate indicates"
    " indicated describe describes described define defines defined explain explains explained available enough"
    " sufficient specific explicitly information details data knowledge access sure aware".split()
)
_NOTHING_TOLD: Final = frozenset("information mention data details evidence indication answer reference".split())
_NEAR_WORDS: Final = 6
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][a-z]+)?")
_FIRST_WORDS: Final = 24
# What follows such a word is an attempt, and may be false.
_CONTRAST = re.compile(r"\b(?:but|however|although|though)\b", re.IGNORECASE)
_CITATION = re.compile(r"\[\^?[^\W_]{0,12} ?\d{1,3}(?:[,;\u2013-] ?\d{1,3}){0,8}\]|\u3010[^\u3011]{0,24}\u3011")
# Declining in other languages, as its verb and its negation stand together there.
_DECLINES_ELSEWHERE = re.compile(
    r"没有(?:提供|提到|相关|足够)|未(?:提及|提供|提到)|无法(?:回答|确定|提供)|不知道"
    r"|わかりません|情報(?:が|は)(?:ありません|含まれていません)|記載(?:がありません|されていません)|알 수 없|정보가 없"
    r"|no (?:lo )?(?:sé|tengo|contiene|menciona|proporciona)|no hay información|ne (?:sais|contient|mentionne|dispose)"
    r"|weiß (?:es )?nicht|keine (?:information|angabe)|não (?:sei|tenho|contém|menciona|há informa)"
    r"|non (?:so|ho|contiene|menziona)|не (?:знаю|содерж|упомина)|нет информации|لا (?:أعرف|توجد معلومات|أعلم)"
)
_OTHER_SCRIPT = re.compile(r"[\u0400-\u1fff\u3040-\ud7ff]")
_NOTHING: Final = frozenset[int]()
_QUESTION_ENDS: Final = ("?", "\uff1f", "\u061f")


@dataclass(slots=True)
class Statement:
    """One sentence of the answer."""

    start: int
    end: int
    words: Sequence[Token]
    """Its content words only, in order."""
    weights: Sequence[float]
    """The weight of each of them."""
    negated: frozenset[int]
    """Offsets of the words right behind a negation."""
    checkable: bool
    declines: bool
    stems: Sequence[int] = ()
    """The number of the stem of each of `words` among all stems of the answer."""


def statements(answer: str, end: int, lexicon: Lexicon) -> Iterator[Statement]:
    """The sentences of ``answer[:end]`` as statements, one by one."""
    for start, stop in sentences(answer, end):
        yield _statement(answer, start, stop, lexicon)


def _statement(answer: str, start: int, end: int, lexicon: Lexicon) -> Statement:
    text = answer[start:end]
    words = telling_tokens(answer, lexicon, start, end)
    negated, denies = _NOTHING, False
    cited = [m.span() for m in _CITATION.finditer(answer, start, end)] if "[" in text or "\u3010" in text else []
    signals = [word for _, _, word in words if word.signal]
    if cited or signals:
        denies = any(word.denial for word in signals)
        words, negated = _content(answer, words, cited, lexicon)
    declines = (denies and _declines(text)) or _declines_elsewhere(text, lexicon)
    hidden = declines and not _CONTRAST.search(text)
    weights = [word.weight for _, _, word in words]
    checkable = bool(words) and not hidden and not _is_courtesy(text, words, max(weights))
    return Statement(start, end, words, weights, negated, checkable, declines)


def _content(
    answer: str, telling: list[Token], cited: list[tuple[int, int]], lexicon: Lexicon
) -> tuple[list[Token], frozenset[int]]:
    """The content words among those *telling*, and the offsets of those right behind a negation."""
    content: list[Token] = []
    behind: list[int] = []
    negated = False
    source: Token | None = None
    for token in telling:
        word = token[2]
        if word.weight:
            # "Passage 2" and "[2]" point at a chunk; the number states nothing.
            pointer = word.number and source is not None and not tokens(answer, lexicon, source[1], token[0])
            if not pointer and not (cited and _within(token, cited)):
                content.append(token)
                if negated:
                    behind.append(token[0])
            negated = False
        elif word.negation:
            negated = True
        source = token if word.source else None
    return content, frozenset(behind)


def _within(token: Token, ranges: list[tuple[int, int]]) -> bool:
    return any(start <= token[0] < end for start, end in ranges)


def _declines(text: str) -> bool:
    """Whether the sentence says that the speaker or the context does not know."""
    words = fold_light(" ".join(_WORD.findall(text[:400])[:_FIRST_WORDS])).split()
    return any(word in DENIALS and _denies_telling(words, at) for at, word in enumerate(words))


def _declines_elsewhere(text: str, lexicon: Lexicon) -> bool:
    if lexicon.english and (text.isascii() or not _OTHER_SCRIPT.search(text)):
        return False
    return bool(_DECLINES_ELSEWHERE.search(text[:400].lower()))


def _denies_telling(words: list[str], at: int) -> bool:
    before, after = words[max(0, at - _NEAR_WORDS) : at], words[at + 1 : at + 1 + _NEAR_WORDS]
    if not _TELLING.intersection(after):
        return False
    if words[at] == "no" and before[:1] == ["there"]:
        return bool(_NOTHING_TOLD.intersection(after[:3]))
    if words[at] == "unable" and at < 3:
        return True
    return bool(_SPEAKERS.intersection(before) or _THE_CONTEXT.intersection(before) or _THE_CONTEXT.intersection(after))


def _is_courtesy(text: str, words: Sequence[Token], heaviest: float) -> bool:
    """Greetings, offers, questions back, frames such as "Here is the answer:"; nothing that could be true or false."""
    if text.endswith(_QUESTION_ENDS):
        return True
    if heaviest < 1:
        return len(words) <= 4 or text.endswith(":")
    return _courteous_stems().issuperset([word.stem for _, _, word in words])


_COURTEOUS: set[str] = set()


def _courteous_stems() -> set[str]:
    if not _COURTEOUS:
        _COURTEOUS.update(stem(word.replace("'", "")) for word in CLOSINGS | CONTEXT_NOUNS)
    return _COURTEOUS

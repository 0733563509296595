"""Splits an answer into statements: sentences, each with its content words and whether it states a fact.

Sentences: decimals, abbreviations, initials and URLs stay whole; every list item is a sentence, without its marker; the
full stops of Chinese, Japanese, Arabic, Urdu and Hindi are known. A sentence is never longer than `MAX_SENTENCE_CHARS`.

**Invariants**, and their tests in `tests/unit/judges/test_lexicon.py`, unless a file is named:
    sentences are slices of the text, in order     `test_sentences_are_slices_in_order`
    no word is lost between them                   `test_sentences_lose_no_word`
    a remark, or a sentence that declines, states  `test_remarks_are_not_checkable`,
        nothing                                    `test_declining_is_labelled_abstained`,
                                                   `test_declining_is_known_in_every_language`
                                                   (`test_embedded.py`)

**Changing it.** Another split, another `checkable`, `declines` or `negated` changes scores or labels, and raises
`EmbeddedJudge.version`. `sentences` has other users, which change with it: the LLM judges' requests, gold checks, the
guard of streams, local models, and the pages that show an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Final, NamedTuple

from ragtrace.core.text import LazyPattern
from ragtrace.judges.lexical.lexicon import IS_UNSPACED, Lexicon, Token, content_tokens, lower_case, stem, tokens
from ragtrace.judges.lexical.words import CLOSINGS, CONTEXT_NOUNS, DENIALS

MAX_SENTENCE_CHARS: Final = 600
"""Most characters of a sentence. A longer one is cut at white space, so that no step on a sentence takes long."""

# A full stop ends a sentence only before white space; the stops of scripts without spaces end a sentence anywhere.
# The pattern begins with the set of all first characters, as the search is fast only then.
_SPACED_STOPS: Final = ".!?\u2026"
_UNSPACED_STOPS: Final = "\u3002\uff01\uff1f\uff61\u061f\u06d4\u0964\u0965"
_STOP = LazyPattern(
    rf"[{_SPACED_STOPS}{_UNSPACED_STOPS}\n](?:"
    rf"(?<=[{_SPACED_STOPS}])[{_SPACED_STOPS}]{{0,15}}[\"'\u201d\u2019)\]*_]{{0,4}}(?=\s|\Z)"
    rf"|(?<=[{_UNSPACED_STOPS}])[{_UNSPACED_STOPS}]{{0,15}}[\"'\u201d\u2019)\]\u300d\u300f\uff09]{{0,4}}|(?<=\n))"
)
# "J. Smith" is no list.
_MARKER = LazyPattern(
    r"[ \t]{0,32}(?:[-*+\u2022\u2023\u25cf\u25e6\u2013\u2014]|#{1,6}|\(?(?:\d{1,3}[.)]|[A-Za-z]\)|[a-z]\.))[ \t]{1,8}"
)
_SOURCES: Final = (
    r"\W{0,6}(?:sources?|references?|citations?|quellen?|quellenangaben?|fuentes?|referencias?|fontes?|referências?|fonti"
    r"|références?|bron(?:nen)?|источники?|المصادر|المراجع|参考资料|参考文献|来源|出典|参照|स्रोत)\W{0,4}(?:[:\uff1a]|\Z)"
)
SOURCES: Final = LazyPattern(_SOURCES, re.IGNORECASE)
"""Heading of a list of sources, at the start of a line or a sentence."""
# Marks of Markdown blocks. The lines of a text without any are not looked at one by one.
_LAID_OUT = LazyPattern(rf"```|~~~|^[ \t]{{0,8}}(?:\||#{{1,6}} |\*\*|{_SOURCES})", re.MULTILINE | re.IGNORECASE)
_HEADING = LazyPattern(r"#{1,6} .{1,200}|\*\*[^*]{1,80}[^*.!?]\*\*:?")
_LIST_ITEM = LazyPattern(r"[ \t]{0,8}(?:[-*+\u2022]|\(?\[?\d{1,3}[.)\]]|https?://)")
_TEXT_FENCES: Final = frozenset("markdown md text txt".split())
_SPACE = LazyPattern(r"\s{1,256}")
_NEXT_WORD = LazyPattern(r"\s{0,64}[\"'(\[\u201c\u2018*_]{0,4}([^\s]{0,32})")
# Abbreviations that never end a sentence.
_INNER: Final = frozenset(
    "mr mrs ms dr prof st mt vs cf fig figs nos vol pp eg e.g i.e ie approx ca gen col sgt rev hon".split()
)
# Abbreviations that end a sentence if the next word is one of `_STARTERS`.
_OUTER: Final = frozenset(
    "etc inc ltd co corp jr sr dept est u.s u.k u.n a.m p.m b.c a.d ph.d al jan feb apr jun jul aug sept oct nov"
    " dec".split()
)
_STARTERS: Final = frozenset(
    "the a an it he she they we you i this that these those there in on at for from by as if when while after before"
    " however but and so to its his her their our your what who how why where".split()
)
# A sentence declines when it denies, in words close together, that a speaker or the context knows or states something.
_SPEAKERS: Final = frozenset("i i'm i've we we've".split())
_THE_CONTEXT: Final = frozenset(
    "passage passages context contexts document documents source sources text texts article articles excerpt excerpts"
    " snippet snippets paragraph paragraphs information results material materials reference references"
    " documentation docs".split()
)
_STATING: Final = frozenset(
    "know answer answered find found locate located identify see mention mentioned mentions mentioning contain contains"
    " contained include includes included provide provides provided providing specify specifies specified state states"
    " stated say says address addresses addressed discuss discusses discussed determine determined confirm give gives"
    " given tell cover covers covered indicate indicates indicated describe describes described define defines defined"
    " explain explains explained available enough sufficient specific explicitly information details data knowledge"
    " access sure aware".split()
)
_INFORMATION: Final = frozenset("information mention data details evidence indication answer reference".split())
# "X is not mentioned" denies something about the sources, not about X.
_WRITTEN: Final = frozenset("mentioned specified stated discussed addressed covered described documented".split())
_CONDITIONS: Final = frozenset("if when unless where whenever".split())
_NEAR_WORDS: Final = 6
_WORD = LazyPattern(r"[^\W\d_]+(?:['\u2019][a-z]+)?")
_FIRST_WORDS: Final = 24
_FIRST_CHARS: Final = 400
# Words after a contrast are an attempt at an answer, and may be false.
_CONTRAST = LazyPattern(
    r"\b(?:but|however|although|though|aber|jedoch|pero|sin embargo|mais|cependant|tuttavia|porém|maar|echter|однако)\b"
    r"|但|しかし|لكن|लेकिन",
    re.IGNORECASE,
)
# Sentences with which a declining answer goes on: where else to look.
_REFERRAL = LazyPattern(
    r"(?:please|kindly|you (?:may|might|can|could|should)|i(?:'d| would)? (?:recommend|suggest|advise)|if you|feel free"
    r"|try|for (?:more|further|additional)|it (?:may|might|would) be (?:best|helpful)|perhaps|consider)"
    r"\b[^\n]{0,120}?\b"
    r"(?:contact|visit|check|consult|refer|reach|ask|see|provide|share|clarify|rephrase|specify|search|look|speak|call"
    r"|consulting|contacting|checking|visiting|reaching|referring|asking|providing)\b"
    r"|(?:bitte|wenden sie sich|por favor|veuillez|merci de|si prega|per favore|neem|raadpleeg|пожалуйста"
    r"|يرجى|कृपया|请)",
    re.IGNORECASE,
)
_SOURCE_WORD: Final = (
    r"(?:sources?|references?|citations?|docs?|documents?|refs?|chunks?|passages?|contexts?|quellen?|fuentes?|fontes?"
    r"|fonti|bron(?:nen)?|источник[аи]?)"
)
_CITATION = LazyPattern(
    r"\[\^?[^\W_]{0,12} ?\d{1,3}(?:[,;\u2013-] ?\d{1,3}){0,8}\]|\u3010[^\u3011]{0,24}\u3011"
    rf"|[(\[](?:see |cf\.? )?{_SOURCE_WORD}\b[^()\[\]\n]{{0,80}}[)\]]|\]\([^()\s]{{1,200}}\)|https?://[^\s)\]]{{1,200}}",
    re.IGNORECASE,
)
_MAY_CITE = LazyPattern(r"[\[(\u3010]|://")
# Verbs with their negation, with which other languages decline.
_DECLINES_ELSEWHERE = LazyPattern(
    r"(?:没有|沒有)(?:找到|提供|提到|提及|相关|相關|足够|足夠|任何信息|任何資訊|说明|說明)|未(?:提及|提供|提到|找到|说明|說明)"
    r"|(?:无法|無法)(?:回答|确定|確定|提供|找到)|不知道|找不到"
    r"|(?:わ|分)かりません|情報(?:が|は)(?:ありません|含まれていません|見つかりません)|見つかりませんでした|お答えできません"
    r"|(?:記載|言及)(?:が|は)?(?:ありません|されていません|見当たりません)|알 수 없|정보가 없"
    r"|no (?:lo )?sé\b|no (?:puedo|podemos) (?:responder|encontrar)|no (?:he|hemos) (?:podido )?encontra|no encontr[éa]"
    r"|no (?:hay|tengo|tenemos|dispongo de) (?:\w+ )?(?:información|mención|datos)"
    r"|no se (?:menciona|especifica|indica|encontr|proporciona)"
    r"|ne sais pas|je n'ai (?:pas|rien) (?:pu )?(?:trouv|d'information)|(?:pas d'|aucune )(?:information|mention)"
    r"|je ne (?:peux|trouve|dispose) pas|n'est pas (?:mentionn|précis|abord)"
    r"|weiß (?:\w+ ){0,2}nicht|keine (?:\w+ )?(?:information|angabe|hinweis|auskunft)"
    r"|nicht (?:\w+ )?(?:erwähnt|angegeben)"
    r"|(?:konnte|kann) (?:\w+ ){0,8}(?:nichts|nicht) (?:\w+ ){0,3}(?:finden|beantworten)"
    r"|não sei\b|não (?:encontrei|tenho|há|existem) (?:\w+ )?(?:informaç|menç|dados|nada)|nenhuma (?:informação|menção)"
    r"|não (?:posso|consigo|consegui) (?:responder|encontrar)|não (?:é|são|foi|está) (?:mencionad|especificad|abordad)"
    r"|non (?:lo )?so\b|non (?:ho|abbiamo) (?:trovato|informazion)|non ci sono informazion"
    r"|nessuna (?:informazion|menzion)"
    r"|non (?:posso|riesco a) (?:rispondere|trovare)|non (?:è|sono|viene|vengono) (?:menzionat|specificat|indicat)"
    r"|weet (?:ik )?het niet|geen (?:\w+ )?(?:informatie|gegevens|vermelding)"
    r"|niet (?:\w+ )?(?:vermeld|genoemd|gevonden)"
    r"|(?:kan|kon) (?:\w+ ){0,8}(?:niets|niet) (?:\w+ ){0,3}(?:beantwoorden|vinden)"
    r"|не (?:знаю|наш[её]л|нашла|удалось найти|могу (?:найти|ответить))"
    r"|нет (?:\w+ ){0,2}(?:информации|сведений|упоминани)"
    r"|не (?:упомина|указан)|ничего не (?:сказано|говорится)"
    r"|لا (?:أعرف|أعلم|توجد معلومات|يوجد ذكر)|لم (?:أجد|أتمكن|يذكر|تذكر)|ليس لدي معلومات"
    r"|(?:जानकारी|उल्लेख|सूचना) (?:\S+ ){0,3}नहीं|पता नहीं|नहीं मिल"
)
# Verbs that deny something of their subject: the context, or what was asked about.
_DENIES_ELSEWHERE = LazyPattern(
    r"不包含|no (?:contiene|incluye|menciona|proporciona|especifica|cubre|aborda|trata)n?\b"
    r"|n[e'] ?(?:contien|mentionn|couvr|fourni|précis|trait|parl)|sag(?:t|en) (?:\w+ )?nichts"
    r"|enth(?:ält|alten) (?:\w+ )?nichts"
    r"|não (?:contém|contêm|menciona|fornece|aborda|cobre|inclu)|non (?:contien|contengono|menziona|forni|tratta|copr)"
    r"|bevat(?:ten)? (?:\w+ )?niets|не содерж|لا (?:تحتوي|يحتوي|تذكر|يذكر|تتضمن|يتضمن)"
)
_CONTEXT_ELSEWHERE = LazyPattern(
    r"文|资料|信息|document|context|texto?\b|textes?\b|testo\b|fragment|pasaj|passag|fuente|sources?\b|quell|unterlag|abschnitt"
    r"|fonte|fonti|trecho|bron|докум|контекст|текст|источник|مستند|وثائق|النص|السياق|المصادر|informac|informaç|informaz"
    r"|information|informatie"
)
_OTHER_SCRIPT = LazyPattern(r"[\u0400-\u1fff\u3040-\ud7ff]")
_NOTHING: Final = frozenset[int]()
_QUESTION_ENDS: Final = ("?", "\uff1f", "\u061f")
_HEADING_WORDS: Final = 6


class Statement(NamedTuple):
    """Sentence of an answer, with its content words and whether it states a fact that can be checked."""

    start: int
    end: int
    words: Sequence[Token]
    """Content words of the sentence, in order."""
    weights: Sequence[float]
    """Weight of each of `words`."""
    negated: frozenset[int]
    """Offsets in the answer of words right behind a negation."""
    checkable: bool
    declines: bool
    code: bool = False
    """Whether the sentence is a line of a code block, which states nothing: its words count for `consistency` alone."""
    unspaced: bool = False
    """Whether the sentence is in a script without spaces, whose words are overlapping pairs of characters."""


def statements(answer: str, end: int, lexicon: Lexicon) -> Iterator[Statement]:
    """Split ``answer[:end]`` into sentences, and yield each as a `Statement`."""
    declined = False
    for first, last, code in prose_and_code(answer, end):
        for start, stop in sentences(answer, last, first):
            statement = _statement(answer, start, stop, lexicon, code=code, behind_declining=declined)
            declined = declined or (statement.declines and not statement.checkable)
            yield statement


def _statement(answer: str, start: int, end: int, lexicon: Lexicon, *, code: bool, behind_declining: bool) -> Statement:
    """Return the sentence ``answer[start:end]`` with what its words say of it.

    Args:
        answer: the whole answer.
        start: offset of the sentence.
        end: offset behind the sentence.
        lexicon: lexicon of the answer's language.
        code: whether the sentence is a line of a code block.
        behind_declining: whether a sentence before it declines to answer, so that a referral to other sources goes on
            with that and states nothing.
    """
    text = answer[start:end]
    words = content_tokens(answer, lexicon, start, end)
    negated, denies = _NOTHING, False
    cited = [m.span() for m in _CITATION.finditer(answer, start, end)] if _MAY_CITE.search(text) else []
    signals = [word for _, _, word in words if word.signal]
    if cited or signals:
        denies = any(word.denial for word in signals)
        words, negated = _content_words(answer, words, cited, lexicon)
    denied = _declining_offset(text) if denies else -1
    if denied < 0:
        denied = _foreign_declining_offset(text, lexicon)
    declines = denied >= 0
    hidden = declines and not _CONTRAST.search(text, denied)
    weights = [word.weight for _, _, word in words]
    checkable = bool(words) and not hidden and not _is_courtesy(text, words, max(weights))
    if checkable and behind_declining and _REFERRAL.match(answer, start, end):
        checkable = False
    unspaced = not text.isascii() and IS_UNSPACED.search(text) is not None
    return Statement(start, end, words, weights, negated, checkable, declines, code, unspaced)


def _content_words(
    answer: str, candidates: list[Token], cited: list[tuple[int, int]], lexicon: Lexicon
) -> tuple[list[Token], frozenset[int]]:
    """Return the content words of a sentence, and the offsets of those that are negated.

    *candidates* are all words of the sentence. Words in citations are left out.
    """
    content: list[Token] = []
    behind: list[int] = []
    negated = False
    end_of_source: int | None = None
    for token in candidates:
        start, end, word = token
        if word.weight:
            # "Passage 2" and "[2]" point at a chunk; the number states nothing.
            pointer = word.number and end_of_source is not None and not tokens(answer, lexicon, end_of_source, start)
            if not pointer and not (cited and any(first <= start < last for first, last in cited)):
                content.append(token)
                if negated:
                    behind.append(start)
            negated = False
        elif word.negation:
            negated = True
        end_of_source = end if word.source else None
    return content, frozenset(behind)


def _declining_offset(text: str) -> int:
    """Return the offset at which *text*, a sentence in English, declines to answer, or -1.

    A sentence declines when it says that the speaker or the context does not know or state something.
    """
    found = list(islice(_WORD.finditer(text, 0, _FIRST_CHARS), _FIRST_WORDS))
    words = [lower_case(match[0]) for match in found]
    for at, word in enumerate(words):
        if word in DENIALS and _denies_stating(words, at):
            return found[at].start()
    return -1


def _foreign_declining_offset(text: str, lexicon: Lexicon) -> int:
    """Return the offset at which *text*, a sentence not in English, declines to answer, or -1."""
    if lexicon.english and (text.isascii() or not _OTHER_SCRIPT.search(text)):
        return -1
    lower = lower_case(text[:_FIRST_CHARS])
    if found := _DECLINES_ELSEWHERE.search(lower):
        return found.start()
    found = _DENIES_ELSEWHERE.search(lower)
    return found.start() if found and _CONTEXT_ELSEWHERE.search(lower) else -1


def _denies_stating(words: list[str], at: int) -> bool:
    """Return whether a negation makes a sentence decline to answer, as in "The context does not say".

    Args:
        words: the words of a sentence, in lower case.
        at: position of the negating word.
    """
    before, after = words[max(0, at - _NEAR_WORDS) : at], words[at + 1 : at + 1 + _NEAR_WORDS]
    if not _CONDITIONS.isdisjoint(words[:at]):
        return False
    if not _WRITTEN.isdisjoint(after[:3]) and words[at] != "none":
        return True
    if not _INFORMATION.isdisjoint(before[-3:]) and not _THE_CONTEXT.isdisjoint(after):
        return True  # "The answer is not in the documents"
    if _STATING.isdisjoint(after):
        return words[at] == "nothing" and not _STATING.isdisjoint(before[-2:]) and not _THE_CONTEXT.isdisjoint(after)
    if "there" in before[-3:] or (words[at] == "no" and not at):
        return not _INFORMATION.isdisjoint(after[:3])
    if words[at] == "unable" and at < 3:
        return True
    return bool(_SPEAKERS.intersection(before) or _THE_CONTEXT.intersection(before) or _THE_CONTEXT.intersection(after))


def _is_courtesy(text: str, words: Sequence[Token], heaviest: float) -> bool:
    """Return whether the sentence *text* is a greeting, an offer, a question or a heading such as "The answer is:"."""
    if text.endswith(_QUESTION_ENDS):
        return True
    if heaviest < 1:
        return len(words) <= 4 or text.endswith(":")
    if SOURCES.match(text):
        return True
    if text.endswith((":", "\uff1a", ":**")) and len(words) <= _HEADING_WORDS:
        return not any(word.number for _, _, word in words)
    return _courteous_stems().issuperset([word.stem for _, _, word in words])


@cache
def _courteous_stems() -> frozenset[str]:
    return frozenset(stem(word.replace("'", "")) for word in CLOSINGS | CONTEXT_NOUNS)


def prose_and_code(text: str, end: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the consecutive ranges of prose and of code in ``text[:end]``, each with a flag that is true for code.

    Tables, headings and lists of sources are left out.
    """
    if not _LAID_OUT.search(text, 0, end):
        yield 0, end, False
        return
    begin = at = 0
    while at < end:
        code, stop = _find_block(text, at, end)
        if stop > at:
            if at > begin:
                yield begin, at, False
            if code:
                yield *code, True
            begin = at = stop
        else:
            at = _next_line(text, at, end)
    if begin < end:
        yield begin, end, False


def _next_line(text: str, at: int, end: int) -> int:
    stop = text.find("\n", at, end)
    return end if stop < 0 else stop + 1


def _find_block(text: str, at: int, end: int) -> tuple[tuple[int, int] | None, int]:
    """Find the block (code, table, heading or source list) that begins at the offset *at*.

    Returns the range of its code, and the offset of its end, which is *at* if no such block begins there. The range is
    None without code; text fenced as text, and text after a fence without end, are not code.
    """
    stop = _next_line(text, at, end)
    line = text[at:stop].strip()
    if line.startswith(("```", "~~~")):
        closed = -1 if line[3:].strip().lower() in _TEXT_FENCES else text.find(line[:3], stop, end)
        return (None, stop) if closed < 0 else ((stop, closed), _next_line(text, closed, end))
    if (line.startswith("|") and line.count("|") > 1) or _HEADING.fullmatch(line):
        return None, stop
    if not SOURCES.match(line):
        return None, at
    while stop < end and (_LIST_ITEM.match(text, stop, end) or text[stop] == "\n"):
        stop = _next_line(text, stop, end)
    return None, stop


def sentences(text: str, end: int | None = None, begin: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the range of each sentence of ``text[begin:end]`` in order, without white space and list markers."""
    end = len(text) if end is None else min(end, len(text))
    start = _next_start(text, begin, end)
    while start < end:
        stop = _end_of_sentence(text, start, end)
        last = stop
        while last > start and text[last - 1].isspace():
            last -= 1
        if last > start:
            yield start, last
        start = _next_start(text, stop, end)


def _next_start(text: str, at: int, end: int) -> int:
    """Return the offset at which the next sentence starts: after white space and a list marker at *at*.

    A list marker counts where a line starts.
    """
    fresh = at == 0 or text[at - 1] == "\n"
    while at < end and text[at].isspace() and (space := _SPACE.match(text, at, end)):
        fresh = fresh or "\n" in space[0]
        at = space.end()
    if (marker := _list_marker_end(text, at, end)) and (fresh or text[at].isdigit()):
        return marker
    return at


def _list_marker_end(text: str, at: int, end: int) -> int:
    """Return the offset after the list marker, such as "- " or "1. ", at offset *at*, or 0 if there is none."""
    if text[at : at + 2].isalpha():  # a word, as nearly always
        return 0
    found = _MARKER.match(text, at, end)
    return found.end() if found and found.end() < end else 0


def _end_of_sentence(text: str, start: int, end: int) -> int:
    """Return the offset at which the sentence of ``text[:end]`` that starts at *start* ends."""
    limit = min(start + MAX_SENTENCE_CHARS, end)
    for match in _STOP.finditer(text, start, limit):
        # `\Z` also matches at the limit, where the text goes on.
        if match.end() == limit < end and not text[limit].isspace():
            break
        if _is_end(text, start, match, end):
            return match.end()
    if limit == end:
        return end
    space = max(text.rfind(" ", start, limit), text.rfind("\n", start, limit))
    return space + 1 if space > start else limit


def _is_end(text: str, start: int, match: re.Match[str], end: int) -> bool:
    """Return whether the punctuation mark in *match* ends the sentence that starts at *start*."""
    mark = match[0]
    if mark == "\n":
        return _line_is_end(text, start, match.start(), end)
    if mark[0] != ".":
        return not _continues(text, match.end(), end) or mark[0] not in "\u2026"
    before = _last_word(text, start, match.start())
    last = before.lower()
    if last in _INNER or (len(before) == 1 and before.isupper()):
        return False
    if last in _OUTER and mark == ".":
        following = _next_word(text, match.end(), end)
        return not following or following.lower() in _STARTERS or text.startswith("\n", match.end())
    return not _continues(text, match.end(), end)


def _line_is_end(text: str, start: int, at: int, end: int) -> bool:
    """Return whether the line break at the offset *at* ends a sentence.

    It does not if the sentence has no text yet, or if the next word starts in lower case, unless that word comes after
    a blank line or a list marker.
    """
    if not text[start:at].strip():
        return False
    if text.startswith("\n", at + 1) or _list_marker_end(text, at + 1, end):
        return True
    return not _continues(text, at, end)


def _continues(text: str, at: int, end: int) -> bool:
    """Return whether the sentence continues at *at*, because the next word starts in lower case."""
    if text[at : at + 1] == " " and text[at + 1 : min(at + 2, end)].isupper():  # as nearly always
        return False
    following = _next_word(text, at, end)
    return bool(following) and following[0].islower()


def _last_word(text: str, start: int, at: int) -> str:
    words = text[max(start, at - 32) : at].rsplit(None, 1)
    return words[-1].lstrip("([\"'\u201c\u2018*_") if words else ""


def _next_word(text: str, at: int, end: int) -> str:
    found = _NEXT_WORD.match(text, at, end)
    return found[1] if found else ""

"""The SIMULATED regression: half-way through the demo "a new model is released" that invents details in some answers.

It alters a share of the healthy answers and keeps what it invented, so that the demo knows the truth about every answer
and can count what the judge caught, missed and wrongly flagged. Nothing in it looks at the judge. An invention is
always text that none of the retrieved passages holds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ragtrace.demo.passages import Entry, Passage
from ragtrace.demo.sentences import finished, is_imperative, sentences, third_person

SHARE = 0.35
"""Share of the answers in which the simulated release invents something."""
_BLOCK = 20
_TWICE = 0.3
"""Share of the altered answers with two inventions instead of one."""

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\w)")
_NAME = re.compile(r"(?<![\w.])(?:[a-z]+_[a-z_]+|[a-z]{4,}(?==)|(?<=[`*'])[a-z_]{3,}(?=[`*']))(?!\.?\w)")
_ERROR = re.compile(r"(?<![\w.])[A-Z]\w*(?:Error|Exception)\b")
_WORD = re.compile(r"\b[A-Za-z]+\b")
_SENTENCE_GAP = re.compile(r"(?<=[.!?]) (?=[A-Z])")

_OPPOSITES: dict[str, str] = {}
for _one, _other in (
    pair.split("/")
    for pair in (
        "first/last before/after true/false always/never leading/trailing left/right ascending/descending start/end"
        " minimum/maximum smallest/largest shortest/longest lower/upper readable/writable read/write encode/decode"
        " bytes/characters seconds/milliseconds open/closed local/remote absolute/relative public/private"
        " positive/negative input/output required/optional included/excluded new/existing single/double source/target"
        " string/integer list/tuple file/socket directory/database thread/process server/client name/address"
        " creates/deletes returns/prints adds/removes opens/closes sends/receives starts/stops"
    ).split()
):
    _OPPOSITES[_one], _OPPOSITES[_other] = _other, _one

_SIZES = ("bytes", "items", "entries", "characters", "lines", "kilobytes")
_TIMES = ("seconds", "minutes", "milliseconds", "hours")
_ERRORS = (
    "PermissionError TimeoutError LookupError OverflowError BufferError ConnectionResetError RecursionError"
    " UnicodeError NotImplementedError InterruptedError FileExistsError BlockingIOError EOFError ArithmeticError"
    " IndexError"
).split()
_INVENTED = (
    "It also accepts the parameter {name}, which is {number} by default.",
    "Since Python 3.{minor} the {name} argument is required.",
    "If the input is larger than {number} {size}, it raises {error}.",
    "The result is cached for {number} {time}.",
    "When {name} is not given, it falls back to the value of the PYTHON{upper} environment variable.",
    "It retries up to {number} times before it raises {error}.",
    "Calls from several threads are serialised by a global lock.",
    "A warning is logged once if {name} is longer than {number} {size}.",
    "It was deprecated in Python 3.{minor} and will be removed in favour of {function}.",
    "Internally it calls {function}, so the same limits apply.",
    "On Windows the call is ignored and an empty result is returned.",
    "The order of the results is not guaranteed unless {name} is set.",
)


@dataclass(frozen=True, slots=True)
class Invention:
    """One thing that the simulated release made up."""

    kind: str
    """number, name, exception, behaviour (a word turned round), detail (a new sentence), elsewhere (a foreign one)."""
    text: str
    """What now stands in the answer at [start, end)."""
    start: int
    end: int
    instead_of: str
    """What stood there before; "" if it was inserted."""


@dataclass(frozen=True, slots=True)
class Altered:
    """An answer of the simulated release."""

    text: str
    inventions: tuple[Invention, ...]
    """In the order of the text; empty for an answer it left alone."""


@dataclass(frozen=True, slots=True)
class _Edit:
    kind: str
    start: int
    end: int
    text: str


class Release:
    """The simulated new model.

    Args:
        entries: what the documents hold: a source of plausible names and of true sentences about something else.
        seed: the same seed and questions give the same inventions.
        share: share of the answers to alter, in [0, 1], kept in every 20 of them.
    """

    def __init__(self, entries: Sequence[Entry], *, seed: int, share: float = SHARE) -> None:
        self._seed = seed
        self._choices = _choices(share, random.Random(seed))
        self._entries = [entry for entry in entries if next(sentences(entry.doc), None)]
        self._names = sorted({item.name for entry in entries for item in entry.parameters if len(item.name) > 5})
        self._functions = sorted(entry.name for entry in entries if entry.kind == "function")

    def chooses(self) -> bool:
        """Whether the next answer is to be altered."""
        return next(self._choices)

    def alter(self, question: str, answer: str, passages: Sequence[Passage]) -> Altered:
        """*answer* with one or two inventions in it; the answer itself where nothing can be invented."""
        choice = random.Random(f"{self._seed} {question} {answer}")
        wanted = 2 if choice.random() < _TWICE else 1
        known = " ".join(passage.text for passage in passages).lower()
        edits: list[_Edit] = []
        ways = [self._number, self._name, self._exception, self._behaviour, self._detail, self._elsewhere]
        choice.shuffle(ways)
        for way in ways:
            edit = way(answer, known, choice)
            if edit and not any(edit.start < other.end and other.start < edit.end for other in edits):
                edits.append(edit)
            if len(edits) == wanted:
                break
        return _applied(answer, edits)

    def _number(self, answer: str, known: str, choice: random.Random) -> _Edit | None:
        """Another number of the same size or a tenfold one."""
        match = _pick(_NUMBER, answer, choice)
        if not match:
            return None
        value = float(match.group())
        made = [f"{number:g}" for number in (value + 1, value + 3, value * 2 + 1, value * 10 + 10, value + 0.5)]
        return _swap("number", match, _unknown(made, known, choice))

    def _name(self, answer: str, known: str, choice: random.Random) -> _Edit | None:
        """Another parameter's name."""
        match = _pick(_NAME, answer, choice)
        return _swap("name", match, _unknown(self._names, known, choice)) if match else None

    def _exception(self, answer: str, known: str, choice: random.Random) -> _Edit | None:
        match = _pick(_ERROR, answer, choice)
        return _swap("exception", match, _unknown(_ERRORS, known, choice)) if match else None

    def _behaviour(self, answer: str, known: str, choice: random.Random) -> _Edit | None:
        """A word turned into its opposite or into a sister of it."""
        found = [match for match in _WORD.finditer(answer) if match.group().lower() in _OPPOSITES]
        choice.shuffle(found)
        for match in found:
            word = match.group()
            other = _unknown([_OPPOSITES[word.lower()]], known, choice)
            if other and _same_article(answer[: match.start()], word, other):
                return _swap("behaviour", match, other.capitalize() if word[0].isupper() else other)
        return None

    def _detail(self, answer: str, known: str, choice: random.Random) -> _Edit | None:
        """A made-up sentence between two others or at the end."""
        name = _unknown(self._names, known, choice) or "strict_mode"
        sentence = choice.choice(_INVENTED).format(
            name=name,
            upper=name.upper().replace("_", ""),
            number=choice.choice((2, 3, 5, 7, 12, 15, 24, 32, 50, 64, 90, 120, 256, 500, 4096)),
            minor=choice.randint(4, 9),
            size=choice.choice(_SIZES),
            time=choice.choice(_TIMES),
            error=_unknown(_ERRORS, known, choice) or "BufferError",
            function=_unknown(self._functions, known, choice) or "a private helper",
        )
        return _insert("detail", answer, sentence, choice) if sentence.lower() not in known else None

    def _elsewhere(self, answer: str, known: str, choice: random.Random) -> _Edit | None:
        """A true sentence about something else, told of what was asked about."""
        for _ in range(8):
            sentence = next(sentences(choice.choice(self._entries).doc)) if self._entries else ""
            if is_imperative(sentence) and sentence.lower() not in known:
                verb, _, rest = third_person(finished(sentence)).partition(" ")
                return _insert("elsewhere", answer, f"It also {verb} {rest}", choice)
        return None


def _choices(share: float, choice: random.Random) -> Iterator[bool]:
    """Without end: of every 20, *share* are True, in random places."""
    while True:
        block = [number < round(share * _BLOCK) for number in range(_BLOCK)]
        choice.shuffle(block)
        yield from block


def _same_article(before: str, word: str, other: str) -> bool:
    """Whether "a" or "an" before *word* also fits *other*: a slip of grammar would give the invention away."""
    follows_article = before.lower().endswith((" a ", " an "))
    return not follows_article or (word[0].lower() in "aeiou") == (other[0].lower() in "aeiou")


def _pick(pattern: re.Pattern[str], text: str, choice: random.Random) -> re.Match[str] | None:
    found = list(pattern.finditer(text))
    return choice.choice(found) if found else None


def _unknown(options: Sequence[str], known: str, choice: random.Random) -> str | None:
    """One of *options* that the passages do not hold."""
    for option in choice.sample(options, min(len(options), 20)):
        if not re.search(rf"(?<!\w){re.escape(option.lower())}(?!\w)", known):
            return option
    return None


def _swap(kind: str, match: re.Match[str], text: str | None) -> _Edit | None:
    return _Edit(kind, match.start(), match.end(), text) if text else None


def _insert(kind: str, answer: str, sentence: str, choice: random.Random) -> _Edit:
    """*sentence* after the first, second ... or last sentence of *answer*."""
    ends = [match.start() for match in _SENTENCE_GAP.finditer(answer)] + [len(answer)]
    at = choice.choice(ends)
    return _Edit(kind, at, at, f" {sentence}")


def _applied(answer: str, edits: Sequence[_Edit]) -> Altered:
    """*answer* with *edits* made, and where they stand in the outcome."""
    text, inventions, copied = "", list[Invention](), 0
    for edit in sorted(edits, key=lambda item: (item.start, item.end)):
        text += answer[copied : edit.start]
        leading = len(edit.text) - len(edit.text.lstrip())
        start = len(text) + leading
        text += edit.text
        inventions.append(Invention(edit.kind, edit.text.strip(), start, len(text), answer[edit.start : edit.end]))
        copied = edit.end
    return Altered(text + answer[copied:], tuple(inventions))

"""SIMULATED regression of the demo: half-way through, "a new model is released" that invents details in some answers.

It alters a share of the healthy answers and keeps what it invented, so that the demo knows the truth about every answer
and can count what the judge caught, missed and wrongly flagged. Nothing in it looks at the judge. An invention is
always text that none of the retrieved passages holds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ragtrace.demo.generator import first_sentence, is_imperative, third_person, with_full_stop
from ragtrace.demo.library import Entry, Passage

SHARE = 0.35
"""Share of the answers in which the simulated release invents a detail."""
_BLOCK = 20

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\w)")
_CHANGES = ((1, 1), (1, 3), (2, 1), (10, 10), (1, 0.5))
"""Pairs of factor and summand that turn a number in an answer into a false one."""
_SENTENCE_GAP = re.compile(r"(?<=[.!?]) (?=[A-Z])")

_PAIRS = (
    "first/last before/after true/false always/never leading/trailing left/right ascending/descending start/end"
    " minimum/maximum smallest/largest shortest/longest lower/upper readable/writable read/write encode/decode"
    " bytes/characters seconds/milliseconds open/closed local/remote absolute/relative public/private last/first"
    " positive/negative input/output required/optional included/excluded new/existing single/double source/target"
    " string/integer list/tuple file/socket directory/database thread/process server/client name/address"
    " creates/deletes returns/prints adds/removes opens/closes sends/receives starts/stops"
).split()
_OPPOSITES = {word: other for word, _, other in (pair.partition("/") for pair in _PAIRS)}
_TURNABLE = re.compile(rf"\b(?:{'|'.join(_OPPOSITES)})\b", re.IGNORECASE)

_ERRORS = "PermissionError TimeoutError OverflowError BufferError RecursionError UnicodeError EOFError".split()
_INVENTED = (
    "It also accepts the parameter {name}, which is {number} by default.",
    "Since Python 3.8 the {name} argument is required.",
    "If the input is larger than {number} bytes, it raises {error}.",
    "The result is cached for {number} seconds.",
    "When {name} is not given, it falls back to the value of an environment variable.",
    "Calls from several threads are serialised by a global lock.",
    "It was deprecated in Python 3.6 and will be removed in favour of {function}.",
    "On Windows the call is ignored and an empty result is returned.",
    "The order of the results is not guaranteed unless {name} is set.",
)


_SWAPS: dict[str, tuple[re.Pattern[str], Callable[[str], Sequence[str]]]] = {
    "number": (_NUMBER, lambda number: [f"{float(number) * factor + plus:g}" for factor, plus in _CHANGES]),
    "behaviour": (_TURNABLE, lambda word: [_OPPOSITES[word.lower()]]),
}


@dataclass(frozen=True, slots=True)
class Invention:
    """Text invented by the simulated release, at [start, end) of the altered answer."""

    kind: str
    """Kind: number, behaviour (a negated word), detail (an invented sentence), elsewhere (one of another function)."""
    text: str
    start: int
    end: int
    instead_of: str
    """Text that the invention replaced; "" if the invention was inserted."""


class Release:
    """Simulated release of a new model, which invents details in a share of the demo's answers.

    Args:
        entries: the documents: a source of plausible names and of true sentences about something else.
        seed: the same seed and questions give the same inventions.
        share: share of the answers to alter, in [0, 1], kept in every 20 of them.
    """

    def __init__(self, entries: Sequence[Entry], *, seed: int, share: float = SHARE) -> None:
        self._seed = seed
        self._share, self._random, self._choices = share, random.Random(seed), list[bool]()
        self._instructions = [(entry, text) for entry in entries if is_imperative(text := first_sentence(entry.doc))]
        names = sorted({name for entry in entries for name in entry.parameters if len(name) > 5})
        self._names = names or ["strict_mode", "max_depth", "use_cache", "keep_alive"]
        self._functions = sorted(entry.name for entry in entries if entry.kind == "function") or ["a private helper"]

    def chooses(self) -> bool:
        """Decide at random, with the configured probability, whether the simulated release alters the next answer."""
        if not self._choices:
            self._choices = [number < round(self._share * _BLOCK) for number in range(_BLOCK)]
            self._random.shuffle(self._choices)
        return self._choices.pop()

    def alter(self, question: str, answer: str, passages: Sequence[Passage]) -> tuple[str, Invention | None]:
        """Insert an invented detail into *answer*, and return the new answer and the detail, or None if none fits."""
        choice = random.Random(f"{self._seed} {question} {answer}")
        known = " ".join(passage.text for passage in passages).lower()
        for kind in choice.sample((*_SWAPS, "detail", "elsewhere"), len(_SWAPS) + 2):
            if kind in _SWAPS:
                start, end, text = self._falsify_word(kind, answer, known, choice)
            else:
                ends = [match.start() for match in _SENTENCE_GAP.finditer(answer)] + [len(answer)]
                start = end = choice.choice(ends)
                text = self._detail(known, choice) if kind == "detail" else self._elsewhere(known, choice)
            if text:
                gap = " " * (start == end)
                altered = f"{answer[:start]}{gap}{text}{answer[end:]}"
                start += len(gap)
                return altered, Invention(kind, text, start, start + len(text), answer[start - len(gap) : end])
        return answer, None

    def _falsify_word(self, kind: str, answer: str, known: str, choice: random.Random) -> tuple[int, int, str]:
        """Choose a word of *answer* to falsify, and return the offsets of the word and its false replacement."""
        pattern, others = _SWAPS[kind]
        found = list(pattern.finditer(answer))
        for match in choice.sample(found, len(found)):
            word = match.group()
            other = _option_not_in_passages(others(word), known, choice)
            # A grammatical mistake would give the invention away.
            follows_article = answer[: match.start()].lower().endswith((" a ", " an "))
            if other and not (follows_article and (word[0] in "aeiouAEIOU") != (other[0] in "aeiouAEIOU")):
                return match.start(), match.end(), other.capitalize() if word.istitle() and other.islower() else other
        return 0, 0, ""

    def _detail(self, known: str, choice: random.Random) -> str:
        """Return a sentence with an invented technical detail that is in none of the passages."""
        sentence = choice.choice(_INVENTED).format(
            name=_option_not_in_passages(self._names, known, choice) or "strict_mode",
            number=choice.choice((2, 3, 5, 7, 12, 15, 24, 32, 50, 64, 90, 120, 256, 500, 4096)),
            error=_option_not_in_passages(_ERRORS, known, choice) or "BufferError",
            function=_option_not_in_passages(self._functions, known, choice) or "a private helper",
        )
        return sentence if sentence.lower() not in known else ""

    def _elsewhere(self, known: str, choice: random.Random) -> str:
        """Return a sentence that is true of another function, worded as if it were about the question's subject."""
        for entry, sentence in choice.sample(self._instructions, min(len(self._instructions), 8)):
            if entry.title.lower() not in known and sentence.lower() not in known:
                return f"It also {third_person(with_full_stop(sentence))}"
        return ""


def _option_not_in_passages(options: Sequence[str], known: str, choice: random.Random) -> str:
    """Return one of *options* that does not occur in the passages, or "" if all of them do."""
    for option in choice.sample(options, min(len(options), 20)):
        if not re.search(rf"(?<!\w){re.escape(option.lower())}(?!\w)", known):
            return option
    return ""

"""The demo's generator: picks the sentences of the retrieved passages that fit best, and phrases an answer from them.

It is extractive: whatever it states stands in a passage that it was given. That is the healthy half of the demo.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ragtrace.demo.passages import Passage
from ragtrace.demo.search import tokens
from ragtrace.demo.sentences import finished, is_imperative, sentences, third_person

NOT_FOUND = "I could not find an answer to that in the documentation."
_SENTENCES = 3
_ENOUGH = 0.5
"""Share of the question's weight that a passage must cover; below it the generator says that it does not know."""
_CLOSE = 0.8
"""Passages that cover at least this much of what the best one covers are equals; the search engine's order decides."""
_UNKNOWN = 8.0
"""Weight of a term that no document has: about that of the rarest one, since the documents do not speak of it."""

_DEFAULT = re.compile(r"default (?:value )?(?:of|for) (?:the )?(?:parameter |argument )?`?(\w+)`?", re.IGNORECASE)
_TAKES = re.compile(r"\b(?:which|what) (?:arguments|parameters)\b|\bhow is .* called\b", re.IGNORECASE)
_RAISES = re.compile(r"\braises?\b|\bexceptions?\b|\berrors?\b", re.IGNORECASE)
_RETURNS = re.compile(r"\breturns?\b|\bget back\b", re.IGNORECASE)
_HOW = re.compile(r"^(?:how|can i|is there a way|what is the way|which function)\b", re.IGNORECASE)
_SIGNATURE = re.compile(r"^[\w.]+\((.*)\)$", re.DOTALL)
_PIECE = re.compile(r"\s*\S+")


@dataclass(frozen=True, slots=True)
class _Found:
    """A sentence that may go into the answer."""

    text: str
    passage: Passage
    position: int
    fit: float


class Extractive:
    """Answers a question from passages alone.

    Args:
        rarity: inverse document frequency of a search term, as the index knows it.
    """

    def __init__(self, rarity: Callable[[str], float]) -> None:
        self._rarity = rarity

    def answer(self, question: str, passages: Sequence[Passage]) -> str:
        """One to four sentences, or `NOT_FOUND` where the passages do not speak of what is asked."""
        covered = [(passage, self._coverage(question, passage)) for passage in passages if _speaks(passage)]
        told = [passage for passage, share in covered if share >= _ENOUGH]
        if not told:
            return NOT_FOUND
        best_share = max(share for _, share in covered)
        close = [passage for passage, share in covered if share >= _CLOSE * best_share]
        focus = _named(question, passages) or _opens_with_deed(question, close) or close[0]
        stated = _from_signature(question, focus)
        best = self._best(question, focus, passages, told, _SENTENCES - len(stated))
        return " ".join([*stated, *_phrased(question, focus, best, bool(stated))]) or NOT_FOUND

    def _coverage(self, question: str, passage: Passage) -> float:
        """Share of the question's terms, by rarity, that *passage* contains."""
        weights = {term: self._rarity(term) or _UNKNOWN for term in set(tokens(question))}
        present = weights.keys() & set(tokens(passage.text))
        return sum(weights[term] for term in present) / (sum(weights.values()) or 1.0)

    def _best(
        self, question: str, focus: Passage, passages: Sequence[Passage], told: Sequence[Passage], room: int
    ) -> list[_Found]:
        """Up to *room* sentences that fit *question* best: those of *focus*, or with one more of what else was told."""
        same = sorted((item for item in passages if item.name == focus.name), key=lambda item: item.id)
        found = [item for passage in same for item in self._candidates(question, passage)]
        if len(found) < 2:
            others = [item for item in told if item.name != focus.name][:1]
            found += [item for passage in others for item in self._candidates(question, passage)][:1]
        chosen = sorted(found, key=lambda item: -item.fit)[:room]
        return [item for item in found if item in chosen]

    def _candidates(self, question: str, passage: Passage) -> Iterator[_Found]:
        asked = set(tokens(question))
        for position, text in enumerate(sentences(passage.body)):
            terms = set(tokens(text))
            fit = sum(self._rarity(term) for term in asked & terms) / (4 + len(terms)) ** 0.5
            yield _Found(text, passage, position, fit + _bonus(question, text, position))


def _phrased(question: str, focus: Passage, found: Sequence[_Found], follows: bool) -> Iterator[str]:
    """The chosen sentences as an answer: subject first, imperatives turned into statements."""
    spoken = focus.name if follows else ""
    for item in found:
        name = item.passage.name
        if spoken and name != spoken:
            yield f"See also {name}: {finished(item.text)}"
        elif spoken:
            yield f"It {third_person(finished(item.text))}" if is_imperative(item.text) else finished(item.text)
        else:
            yield _opening(question, item)
        spoken = spoken or name


def pieces(answer: str) -> Iterator[str]:
    """*answer* word by word, as a model streams it; joined they are the answer."""
    yield from _PIECE.findall(answer)


def _opening(question: str, found: _Found) -> str:
    title = found.passage.title if len(found.passage.title) <= 80 else found.passage.name
    if is_imperative(found.text):
        if _HOW.search(question):
            return f"Use {title}: it {third_person(finished(found.text))}"
        return f"{found.passage.name} {third_person(finished(found.text))}"
    return f"{found.passage.name}: {finished(found.text)}"


def _bonus(question: str, text: str, position: int) -> float:
    """The first sentence says what a thing does; words about returning and raising answer such questions."""
    bonus = 3.0 if position == 0 else 0.5 / position
    for pattern in (_RAISES, _RETURNS):
        if pattern.search(question) and pattern.search(text):
            bonus += 4.0
    return bonus


def _speaks(passage: Passage) -> bool:
    return next(sentences(passage.body), None) is not None


def _named(question: str, passages: Sequence[Passage]) -> Passage | None:
    """The passage whose name the question spells out; of several, the longest name."""
    words = set(tokens(question))
    named = [passage for passage in passages if passage.name.lower() in words]
    return max(named, key=lambda passage: len(passage.name), default=None)


def _opens_with_deed(question: str, passages: Sequence[Passage]) -> Passage | None:
    """For a question how to do something: the first passage that opens by saying what a thing does."""
    if not _HOW.search(question):
        return None
    openings = ((passage, next(sentences(passage.body), "")) for passage in passages)
    return next((passage for passage, opening in openings if is_imperative(opening)), None)


def _from_signature(question: str, passage: Passage) -> list[str]:
    """What the signature alone answers: a default, or the list of parameters."""
    match = _SIGNATURE.match(passage.title)
    listed = [part.strip() for part in _parameters(match.group(1))] if match else []
    asked = _DEFAULT.search(question)
    if asked:
        for part in listed:
            name, _, default = part.partition("=")
            if name == asked.group(1) and default:
                return [f"The default of {name} in {passage.name} is {default}."]
    if listed and _TAKES.search(question):
        return [f"{passage.name} is called as {passage.title}."]
    return []


def _parameters(signature: str) -> Iterator[str]:
    """Split at the commas that are not inside brackets or quotes."""
    depth, quote, start = 0, "", 0
    for index, character in enumerate(signature):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and not depth:
            yield signature[start:index]
            start = index + 1
    yield signature[start:]

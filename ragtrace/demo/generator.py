"""Model that writes the demo's answers from sentences of the passages.

Whatever the extractive generator states stands in a passage that it was given: its answers are the healthy ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Protocol

from ragtrace.demo.library import Entry, Passage
from ragtrace.demo.search import Index, tokens

NOT_FOUND = "I could not find an answer to that in the documentation."

_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+[.)])\s)")
_END = re.compile(r"(?<=[.!?])[)\"'`]*\s+(?=[A-Z\"'`(*])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|etc|cf|vs|approx|[A-Z])\.)$")
_NOT_PROSE = re.compile(r"^\s*(?:>>>|\.\.\.|[|+=~#^-]{3,}|[$%]\s|:\w+)|[{}<>|]{2}|=\s*\w+\(|\w\(.*\)\s*->")
_PARAMETER = re.compile(r"[a-z_]\w* [A-Z]")
"""Pattern of a parameter's name and its description run together, which is no sentence."""
_BULLET = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")

VERBS = frozenset(
    "accept acquire add append apply arrange assert build calculate call cancel change check clear close compare"
    " compile compute configure connect construct convert copy count create decode define delete describe"
    " determine disable display dump emit enable encode ensure escape execute expand extend extract feed fetch"
    " fill find flush force format generate get guess handle import indicate insert install invoke iterate join"
    " kill list load lock log look make manage map mark match merge move normalize obtain open override pack parse"
    " partition perform pop prepare print process produce provide push put quote raise read receive register"
    " release remove rename render replace report represent request reset resolve retrieve return reverse rotate"
    " round run save scan schedule search select send serialize set show shuffle signal skip sleep sort split"
    " start stop store strip submit support swap take terminate test transform translate turn update"
    " validate verify wait walk warn wrap write".split()
)
"""Verbs that open a docstring in the imperative mood."""

_RAISES = re.compile(r"\braises?\b|\bexceptions?\b|\berrors?\b", re.IGNORECASE)
_RETURNS = re.compile(r"\breturns?\b|\bget back\b", re.IGNORECASE)
_HOW = re.compile(r"^(?:how|can i|is there a way|what is the way|which function)\b", re.IGNORECASE)


class Model(Protocol):
    """Interface of a demo model, which answers a question from retrieved passages and streams the answer."""

    @property
    def name(self) -> str: ...
    def stream(self, question: str, passages: Sequence[Passage]) -> Iterator[str]: ...


class ExtractiveModel:
    """Built-in demo model that answers with the sentences of the passages that match the question best."""

    name = "extractive"

    def __init__(self, index: Index) -> None:
        self._rarity = index.rarity

    def stream(self, question: str, passages: Sequence[Passage]) -> Iterator[str]:
        """Yield the answer to *question* word by word."""
        yield from split_into_words(self.answer(question, passages))

    def answer(self, question: str, passages: Sequence[Passage]) -> str:
        """Return an answer of one to three sentences, or `NOT_FOUND` if no passage covers the question."""
        # Least share of the question's weight that a passage must cover for an answer other than "I do not know".
        relevant = [
            passage for passage in passages if first_sentence(passage.body) and self._coverage(question, passage) >= 0.5
        ]
        if not relevant:
            return NOT_FOUND
        focus = _document_to_answer_from(question, passages, relevant)
        chosen = self._chosen(question, [passage for passage in passages if passage.entry is focus])
        return " ".join(_rephrase(question, focus, chosen))

    def _coverage(self, question: str, passage: Passage) -> float:
        """Return the share of the question's terms, weighted by rarity, that *passage* contains."""
        # Weight of a term that is in no passage: about that of the rarest term.
        weights = {term: self._rarity(term) or 8.0 for term in sorted(set(tokens(question)))}
        present = weights.keys() & set(tokens(passage.text))
        return sum(weight for term, weight in weights.items() if term in present) / (sum(weights.values()) or 1.0)

    def _chosen(self, question: str, passages: Sequence[Passage]) -> list[str]:
        """Return the sentences of *passages* that match *question* best, in the order of the text."""
        wanted, fits = sorted(set(tokens(question))), dict[str, float]()
        for passage in sorted(passages, key=lambda passage: passage.id):
            for position, text in enumerate(sentences(passage.body)):
                terms = set(tokens(text))
                fit = sum(self._rarity(term) for term in wanted if term in terms) / (4 + len(terms)) ** 0.5
                fit += 3.0 if position == 0 else 0.5 / position  # the first sentence says what the object does
                fit += 4.0 * sum(bool(asks.search(question) and asks.search(text)) for asks in (_RAISES, _RETURNS))
                fits[text] = fit
        best = sorted(fits, key=lambda text: -fits[text])[:3]
        return [text for text in fits if text in best]


def split_into_words(answer: str) -> list[str]:
    """Split *answer* into words with the preceding whitespace, as a model streams them."""
    return re.findall(r"\s*\S+", answer)


def _document_to_answer_from(question: str, passages: Sequence[Passage], relevant: Sequence[Passage]) -> Entry:
    """Choose the document from which to answer *question*: a document that the question names, else the best match.

    To a question that begins with "how" the best match that is an instruction is preferred.
    """
    words = set(tokens(question))
    named = [passage for passage in passages if passage.entry.name.lower() in words and first_sentence(passage.body)]
    if named:
        return max(named, key=lambda passage: len(passage.entry.name)).entry
    instructions = (passage for passage in relevant if is_imperative(first_sentence(passage.body)))
    return (next(instructions, relevant[0]) if _HOW.search(question) else relevant[0]).entry


def _rephrase(question: str, entry: Entry, chosen: Sequence[str]) -> Iterator[str]:
    """Yield the chosen sentences rephrased as an answer, with imperatives turned into statements."""
    for number, text in enumerate(map(with_full_stop, chosen)):
        if number:
            yield f"It {third_person(text)}" if is_imperative(text) else text
        elif not is_imperative(text):
            yield f"{entry.name}: {text}"
        elif _HOW.search(question):
            yield f"Use {entry.title if len(entry.title) <= 80 else entry.name}: it {third_person(text)}"
        else:
            yield f"{entry.name} {third_person(text)}"


# --- sentences: plain ones out of docstrings and text files, and imperatives turned into statements -------------------


def sentences(text: str) -> Iterator[str]:
    """Yield the complete sentences of *text* without line breaks, leaving out code, tables and fragments."""
    for paragraph in _PARAGRAPH.split(text):
        if any(_NOT_PROSE.search(line) for line in paragraph.splitlines()):
            continue
        prose = _BULLET.sub("", " ".join(paragraph.split()))
        ends = [end.end() for end in _END.finditer(prose) if not _ABBREVIATION.search(prose[: end.start()])]
        for start, end in zip([0, *ends], [*ends, len(prose)], strict=True):
            sentence = prose[start:end].strip()
            complete = len(sentence.split()) >= 3 and sentence[-1] in ".!?)" and not _PARAMETER.match(sentence)
            if complete and len(sentence) <= 320:
                letters = sum(character.isalpha() or character.isspace() for character in sentence)
                if letters >= 0.8 * len(sentence):
                    yield sentence


@lru_cache(maxsize=20_000)  # questions and inventions both start from the sentences of all documents
def first_sentence(text: str) -> str:
    """Return the first complete sentence of *text*, or "" if there is none."""
    return next(sentences(text), "")


def is_imperative(sentence: str) -> bool:
    """Return whether *sentence* begins with a verb in the imperative, such as "Copy data from src to dst."."""
    first, _, rest = sentence.partition(" ")
    return bool(rest) and first.lower() in VERBS


def third_person(sentence: str) -> str:
    """Rewrite an imperative *sentence* in the third person: "Copy data." becomes "copies data."."""
    first, _, rest = sentence.partition(" ")
    if not is_imperative(sentence):
        return sentence
    verb = first.lower()
    if verb.endswith("y") and verb[-2] not in "aeiou":
        verb = f"{verb[:-1]}ies"
    else:
        verb += "es" if verb.endswith(("s", "sh", "ch", "x", "z", "o")) else "s"
    return f"{verb} {rest.replace(' and return ', ' and returns ')}"


def with_full_stop(sentence: str) -> str:
    """Return *sentence* with a full stop added, unless it ends with a punctuation mark."""
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."

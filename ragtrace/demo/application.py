"""The RAG application that the demo watches: what a user of ragtrace would write, three decorators included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import ragtrace
from ragtrace.demo.answering import Extractive, pieces
from ragtrace.demo.passages import Passage
from ragtrace.demo.search import Index

TOP_K = 4


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved passage."""

    id: str
    text: str
    score: float
    passage: Passage


class Model(Protocol):
    """Something that answers a question from passages, piece by piece."""

    @property
    def name(self) -> str: ...
    def stream(self, question: str, hits: list[Hit]) -> Iterator[str]: ...


class ExtractiveModel:
    """The built-in generator as a model."""

    name = "extractive"

    def __init__(self, index: Index) -> None:
        self._extractive = Extractive(index.rarity)

    def stream(self, question: str, hits: list[Hit]) -> Iterator[str]:
        """The answer, word by word."""
        yield from pieces(self._extractive.answer(question, [hit.passage for hit in hits]))


def build(index: Index, model: Model) -> Callable[[str], str]:
    """The application: a function from a question to its answer."""

    @ragtrace.retrieve(source="documents")
    def search(query: str, k: int = TOP_K) -> list[Hit]:
        return [Hit(passage.id, passage.text, score, passage) for passage, score in index.search(query, k)]

    @ragtrace.generate(model=model.name)
    def answer(question: str, hits: list[Hit]) -> Iterator[str]:
        yield from model.stream(question, hits)

    @ragtrace.trace(name="ask-documents")
    def ask(question: str) -> str:
        return "".join(answer(question, search(question)))

    return ask

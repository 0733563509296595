"""RAG application of the demo, traced with ragtrace's decorators as a user would trace it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import ragtrace
from ragtrace.demo.generator import Model
from ragtrace.demo.library import Passage
from ragtrace.demo.search import Index


@dataclass(frozen=True, slots=True)
class Hit:
    """Search result of the demo: a passage with its BM25 weight."""

    id: str
    text: str
    score: float
    passage: Passage


def build_application(index: Index, model: Model, name: str = "") -> Callable[[str], str]:
    """Build the demo's RAG application: a traced function that answers a question.

    Args:
        name: name of the model on the spans; default: the model's own.
    """

    @ragtrace.retrieve(source="documents")
    def search(query: str, k: int = 4) -> list[Hit]:
        return [Hit(passage.id, passage.text, score, passage) for passage, score in index.search(query, k)]

    @ragtrace.generate(model=name or model.name)
    def answer(question: str, hits: list[Hit]) -> Iterator[str]:
        yield from model.stream(question, [hit.passage for hit in hits])

    @ragtrace.trace(name="ask-documents")
    def ask(question: str) -> str:
        return "".join(answer(question, search(question)))

    return ask

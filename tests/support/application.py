"""A small RAG application as a user would write it: what the end-to-end tests watch.

As a program it configures ragtrace by its environment alone, asks one question and exits without flushing.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import ragtrace

QUESTION = "How high is the Eiffel Tower?"
PASSAGES = (
    "The Eiffel Tower stands in Paris. It is 330 metres high.",
    "The Louvre is a museum in Paris. It opened in 1793.",
)
ANSWER = "The Eiffel Tower is 330 metres high."
INVENTED = f"{ANSWER} Leonardo da Vinci designed it for the king of Portugal. It was moved to Lisbon by ship in 1902."


@dataclass(frozen=True)
class Passage:
    """What a vector store returns."""

    id: str
    text: str
    score: float


@ragtrace.retrieve(source="monuments")
def search(query: str, k: int = 2) -> list[Passage]:
    """The *k* best passages, best first."""
    return [Passage(f"doc-{rank}", text, 1 / (rank + 1)) for rank, text in enumerate(PASSAGES[:k])]


@ragtrace.generate(model="tiny-1", provider="example")
def generate(question: str, docs: list[Passage], answer: str) -> str:
    """Pretends to be a model that says *answer*."""
    return answer


@ragtrace.trace(name="guide")
def ask(question: str, answer: str = ANSWER, session_id: str | None = None) -> str:
    """Retrieve, then generate."""
    return generate(question, search(question), answer)


if __name__ == "__main__":
    ragtrace.configure(service="guide-service")
    sys.stdout.write(ask(QUESTION))

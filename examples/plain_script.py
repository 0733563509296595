"""The smallest whole application: retrieve, answer, and see the scores on the console.

Run it: `python examples/plain_script.py "Who built the Eiffel Tower?"`
exporter="console" prints one line a call instead; set OTEL_EXPORTER_OTLP_ENDPOINT and exporter="otlp" to send all of it
to a backend.
"""

from __future__ import annotations

import sys

import ragtrace

PASSAGES = [
    "The Eiffel Tower is a wrought-iron tower in Paris, France. Gustave Eiffel's company built it from 1887 to 1889.",
    "The tower is 330 metres tall and has three levels for visitors, with restaurants on the first and second.",
    "The Atomium in Brussels was built for the 1958 World's Fair. It is 102 metres tall and shows an iron crystal.",
]


@ragtrace.retrieve(source="landmarks")
def search(query: str, k: int = 2) -> list[str]:
    """The k passages that share the most words with the query."""
    wanted = set(query.lower().strip("?").split())
    return sorted(PASSAGES, key=lambda passage: -len(wanted & set(passage.lower().split())))[:k]


@ragtrace.generate(model="first-sentences")
def answer(question: str, docs: list[str]) -> str:
    """Stands for a language model: the first sentence of each passage, and one thing that no passage says."""
    return " ".join(doc.split(". ")[0] + "." for doc in docs) + " It is painted green every 12 years."


@ragtrace.trace
def ask(question: str) -> str:
    """One call of the application."""
    return answer(question, search(question))


if __name__ == "__main__":
    ragtrace.configure(service="landmarks", exporter="console-full", telemetry=ragtrace.TelemetryOptions(evidence=True))
    print(ask(" ".join(sys.argv[1:]) or "Who built the Eiffel Tower?"))
    ragtrace.flush()
    print(ragtrace.stats())

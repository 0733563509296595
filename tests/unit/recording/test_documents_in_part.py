"""A retrieval that returns more documents than ragtrace reads: its span and the scores of its call say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import ragtrace
from ragtrace.core import semconv
from ragtrace.testing import Captured
from tests.support.watched import watch

MANY = [f"Passage {number} is about something else." for number in range(1_200)]
ANSWER = "The tower is 330 metres tall."


@ragtrace.retrieve
def listed(question: str) -> list[str]:
    del question
    return MANY


@ragtrace.retrieve
def yielded(question: str) -> Iterator[str]:
    del question
    yield from MANY


def from_functions(search: Callable[[str], object]) -> None:
    @ragtrace.trace
    def ask(question: str) -> str:
        found = search(question)
        if not isinstance(found, list):
            assert len(list(found)) == len(MANY)  # type: ignore[call-overload]
        return ANSWER

    ask("How tall is the tower?")


def from_a_block() -> None:
    with ragtrace.call("How tall is the tower?") as call:
        for start in range(0, len(MANY), 400):
            call.retrieved(MANY[start : start + 400])
        call.answered(ANSWER)


WAYS: dict[str, Callable[[], None]] = {
    "list": lambda: from_functions(listed),
    "generator": lambda: from_functions(yielded),
    "block": from_a_block,
}


@pytest.mark.parametrize("redact", [None, ragtrace.Redact(["nothing"])])
@pytest.mark.parametrize("way", WAYS)
def test_a_retrieval_that_was_read_in_part_is_marked_and_support_is_not_scored(
    way: str, redact: ragtrace.Redact | None
) -> None:
    """The passage that supports the answer may be one of those that were not read."""
    captured: Captured = watch(metrics=["consistency"], redact=redact)
    WAYS[way]()
    ragtrace.flush()
    root = captured.root().attributes or {}
    assert root[semconv.eval_reason("consistency")] == "texts_truncated"
    (marked,) = [span.name for span in captured.spans if (span.attributes or {}).get(semconv.DOCUMENTS_IN_PART)]
    assert marked == (captured.root().name if way == "block" else "retrieval")


def test_a_retrieval_that_was_read_whole_is_scored() -> None:
    """Of two retrievals of a call, too."""
    captured = watch(metrics=["consistency"])

    @ragtrace.retrieve
    def few(question: str) -> list[str]:
        return [*MANY[:500], ANSWER, question]

    @ragtrace.trace
    def ask(question: str) -> str:
        few(question)
        few(question)
        return ANSWER

    ask("How tall is the tower?")
    ragtrace.flush()
    assert (captured.root().attributes or {})[semconv.eval_score("consistency")] == 1.0
    assert all(semconv.DOCUMENTS_IN_PART not in (span.attributes or {}) for span in captured.spans)

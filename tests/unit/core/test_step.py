"""Tests of the calls that are built from steps."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.core.step import CallBuilder, Step
from ragtrace.core.types import Document, Timing

FOUND = (Document("Paris is a big city."), Document("Mars is a planet."))


def _ended(kind: Any, **fields: Any) -> Step:
    step = Step()
    given = {"kind": kind, "ended": True, "end_ns": 2_000_000_000, "timing": Timing(0.5), **fields}
    for name, value in given.items():
        setattr(step, name, value)
    return step


@pytest.mark.parametrize("outer_scope", ["", "ragtrace"])
def test_of_two_retrievals_at_the_same_time_one_is_counted(outer_scope: str) -> None:
    """A decorated function and the retriever inside it may begin and end within the error of the clocks."""
    root = _ended("trace", answer="Yes.")
    outer = _ended("retrieve", parent=root, documents=FOUND, instrumentation=outer_scope)
    inner = _ended("retrieve", parent=outer, documents=FOUND, instrumentation="" if outer_scope else "ragtrace")
    for steps in ([root, outer, inner], [root, inner, outer]):
        assert CallBuilder(root, steps).build().contexts == FOUND


@pytest.mark.parametrize("kind", ["retrieve", "tool"])
def test_what_two_instrumentations_show_of_one_retrieval_counts_once(kind: str) -> None:
    """A decorated search runs inside it, too, and neither of the spans is around it by its parents."""
    root = _ended("trace", answer="Yes.")
    search = _ended("retrieve", parent=root, documents=FOUND, timing=Timing(0.3), end_ns=1_900_000_000)
    spans = [_ended(kind, parent=root, documents=FOUND, instrumentation=scope) for scope in ("one", "two")]
    for steps in ([root, *spans], [root, search, *spans], [root, *spans, search], [root, spans[0], search, spans[1]]):
        assert CallBuilder(root, steps).build().contexts == FOUND


def test_a_search_whose_end_was_read_late_is_still_its_retrievers() -> None:
    """A thread that waits before it reads the clock ends after the retriever's span; the texts are the same."""
    root = _ended("trace", answer="Yes.")
    retriever = _ended("retrieve", parent=root, documents=FOUND, instrumentation="one")
    late = _ended("retrieve", parent=root, documents=FOUND, timing=Timing(0.3), end_ns=2_030_000_000)
    assert CallBuilder(root, [root, retriever, late]).build().contexts == FOUND
    late.documents = (*FOUND, Document("Venus is hot."))  # more than the retriever found: another search
    assert CallBuilder(root, [root, retriever, late]).build().contexts == FOUND + late.documents


def test_two_retrievals_by_one_instrumentation_are_two() -> None:
    """Two retrievers may find the same documents at the same time, and one of another instrumentation later."""
    root = _ended("trace", answer="Yes.")
    one, other = (_ended("retrieve", parent=root, documents=FOUND, instrumentation="one") for _ in range(2))
    later = _ended("retrieve", parent=root, documents=FOUND, instrumentation="two", end_ns=9_000_000_000)
    assert CallBuilder(root, [root, one, other]).build().contexts == FOUND + FOUND
    assert CallBuilder(root, [root, one, later]).build().contexts == FOUND + FOUND


def test_a_search_inside_a_retriever_whose_documents_are_hidden_counts() -> None:
    """An instrumentation may be told to keep texts off its spans."""
    root = _ended("trace", answer="Yes.")
    hidden = _ended("retrieve", parent=root, instrumentation="one")
    search = _ended("retrieve", parent=hidden, documents=FOUND)
    assert CallBuilder(root, [root, hidden, search]).build().contexts == FOUND

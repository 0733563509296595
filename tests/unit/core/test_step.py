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


@pytest.mark.parametrize(
    "returned", ["The tower is 330 metres tall.", " The tower is 330 metres tall.\n\nSources: [1]", "330 metres"]
)
@pytest.mark.parametrize("later", ["allowed", "no", "0", "Who built it? When?", None])
def test_the_generation_whose_answer_was_returned_gives_contexts_and_model(returned: str, later: str | None) -> None:
    """A moderation, a verdict or questions to ask next come after it, with contexts and a model of their own."""
    root = _ended("trace", answer=returned, end_ns=4_000_000_000)
    answer = _ended("generate", answer="The tower is 330 metres tall.", documents=FOUND, request_model="big")
    policy = (Document("No violence."),)
    after = _ended("generate", answer=later, documents=policy, request_model="small", end_ns=3_000_000_000)
    for steps in ([root, answer, after], [root, after, answer]):
        call = CallBuilder(root, steps).build()
        assert (call.contexts, call.model) == (FOUND, "big")


def test_of_generations_that_returned_the_same_the_last_counts() -> None:
    """As where an attempt is repeated, or one decorated function calls another."""
    root = _ended("trace", answer="Yes.")
    first, last = (
        _ended("generate", answer="Yes.", request_model=name, end_ns=at) for name, at in (("a", 1), ("b", 2))
    )
    assert CallBuilder(root, [root, last, first]).build().model == "b"


def test_without_a_returned_answer_the_last_generation_with_documents_counts() -> None:
    """A function may store the answer instead of returning it; without documents, the last one counts."""
    root = _ended("trace")
    given = _ended("generate", answer="Yes.", documents=FOUND, request_model="a", end_ns=1)
    later = _ended("generate", answer="allowed", request_model="b", end_ns=2)
    assert CallBuilder(root, [root, given, later]).build().model == "a"
    given.documents = None
    assert CallBuilder(root, [root, given, later]).build().model == "b"

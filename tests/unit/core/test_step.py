"""Tests of the calls that are built from steps."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.core.step import CallBuilder, Step
from ragtrace.core.types import Document, Timing

FOUND = (Document("Paris is a big city."), Document("Mars is a planet."))


def _ended(kind: Any, **fields: Any) -> Step:
    step = Step()
    for name, value in {"kind": kind, **fields}.items():
        setattr(step, name, value)
    step.ended, step.end_ns, step.timing = True, 2_000_000_000, Timing(0.5)
    return step


@pytest.mark.parametrize("outer_by_listener", [False, True])
def test_of_two_retrievals_at_the_same_time_one_is_counted(outer_by_listener: bool) -> None:
    """A decorated function and the retriever inside it may begin and end within the error of the clocks."""
    root = _ended("trace", answer="Yes.")
    outer = _ended("retrieve", parent=root, documents=FOUND, by_listener=outer_by_listener)
    inner = _ended("retrieve", parent=outer, documents=FOUND, by_listener=not outer_by_listener)
    for steps in ([root, outer, inner], [root, inner, outer]):
        assert CallBuilder(root, steps).build().contexts == FOUND

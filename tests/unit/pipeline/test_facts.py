"""Tags that parts give calls."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import ragtrace
from ragtrace.capture.redact import Redact
from ragtrace.core.part import Part
from ragtrace.core.step import CallBuilder, Step
from ragtrace.core.tags import MOST_TAGS, TagValue
from ragtrace.pipeline.call_preparation import CallPreparation
from ragtrace.pipeline.parts import Parts
from ragtrace.pipeline.work_items import CallItem
from ragtrace.system.faults import faults


class Giver(Part):
    def __init__(self, **tags: TagValue) -> None:
        self._tags = tags

    def facts(self, root: Step) -> Mapping[str, TagValue]:
        if not self._tags:
            raise RuntimeError("a feature of somebody's")
        return self._tags


class Silent(Part):
    """Part without tags of its own, which is not asked."""


def prepared(*parts: Part, **given: TagValue) -> ragtrace.RagCall:
    """Return the call of a root step with the tags *given*, as the parts leave it."""
    step = Step()
    step.tags, step.ended = given or None, True
    builder = CallBuilder(step, [step])
    givers = Parts(parts).fact_givers
    assert len(givers) == sum(isinstance(part, Giver) for part in parts)
    preparation = CallPreparation(Redact(), None, score_head_dropped=False, fact_givers=givers)
    preparation.prepare(CallItem(step, builder))
    preparation.prepare(CallItem(step, builder))  # as of a guarded call
    return preparation.build(builder)


def test_the_tags_of_all_parts_are_the_calls() -> None:
    """What the application has given stays."""
    call = prepared(Giver(weekday="Mon", tenant="none"), Silent(), Giver(shift="night"), tenant="acme")
    assert call.tags == {"tenant": "acme", "weekday": "Mon", "shift": "night"}


def test_the_applications_tags_go_first_where_there_are_too_many() -> None:
    given: dict[str, TagValue] = {f"t{n}": n for n in range(MOST_TAGS)}
    assert prepared(Giver(weekday="Mon"), **given).tags == given


def test_a_part_that_raises_takes_nothing_along(caplog: pytest.LogCaptureFixture) -> None:
    """It is counted; the other parts' tags are there."""
    faults.clear()
    assert prepared(Giver(), Giver(weekday="Mon")).tags == {"weekday": "Mon"}
    assert faults.counts() == {"facts of a call": 2}

"""Calls with tags, given to the step that is in progress."""

from __future__ import annotations

from opentelemetry.context import get_current

import ragtrace
from ragtrace.core.tags import TagValue
from ragtrace.recording.recorder import current_recorder
from tests.support.watched import generate, search


def tag_step(**tags: TagValue) -> None:
    """Give the innermost step in progress *tags*."""
    recorder = current_recorder(get_current())
    if recorder is not None:  # None: nothing is recorded
        recorder.step.tags = tags


@ragtrace.generate(model="tiny")
def tagged_answer(question: str) -> str:
    """A step that gives its call a tag of its own, and one that the call has."""
    tag_step(tenant="inner", arm="b")
    return generate(question, search(question))


@ragtrace.trace(name="guide")
def ask_tagged(question: str, **tags: TagValue) -> str:
    """The smallest whole call, with *tags*."""
    tag_step(**tags)
    return generate(question, search(question))


@ragtrace.trace(name="guide")
def ask_tagged_inside(question: str, **tags: TagValue) -> str:
    """The same with a step inside that has tags, too."""
    tag_step(**tags)
    return tagged_answer(question)

"""The texts of a step are redacted before a judge or a backend sees them."""

from __future__ import annotations

import pytest

from ragtrace.capture.redact import Redact, redact_step
from ragtrace.core.step import CallBuilder, Step
from ragtrace.core.types import Document
from tests.support.ids import readable


def generation() -> Step:
    """Return an ended generation with documents that were found in its prompt."""
    step = Step()
    step.kind, step.ended, step.answer = "generate", True, "330 metres"
    step.prompt_documents = (Document("Call 0123456 for the height."),)
    return step


def test_documents_of_the_prompt_are_redacted() -> None:
    """They are contexts like those of a retrieval."""
    step = generation()
    redact_step(step, Redact(patterns=[r"\d{7}"]))
    assert step.prompt_documents == (Document("Call [redacted] for the height."),)
    assert CallBuilder(step, [step]).build().contexts == step.prompt_documents


def test_documents_of_the_prompt_take_memory_and_are_no_plain_texts_by_themselves() -> None:
    """They count where the other texts of a step count."""
    step, empty = generation(), Step()
    empty.kind, empty.ended, empty.answer = "generate", True, "330 metres"
    assert step.text_bytes() > empty.text_bytes()
    assert not step.is_plain(20)
    assert empty.is_plain(20)
    step.clear_texts()
    assert step.prompt_documents is None


@pytest.mark.parametrize(
    ("texts", "is_plain"),
    [
        (("a", "b"), True),
        (("a" * 10, "b" * 10), True),  # together longer than one may be
        (("a" * 11, "b"), False),
        (("a", "\u00e4"), False),
        (("a" * 9, "\u00e4" * 9), False),
        (("a\0", "b"), False),
        (("a" * 9, "b" * 9 + "\0"), False),
    ],
    ids=readable,
)
def test_a_step_with_short_ascii_texts_is_plain(texts: tuple[str, str], is_plain: bool) -> None:
    """Each text counts by itself."""
    step = Step()
    step.query, step.answer = texts
    assert step.is_plain(10) is is_plain


def test_previews_are_redacted_measured_and_cleared() -> None:
    """They are contexts where nothing was retrieved."""
    step, empty = generation(), Step()
    step.prompt_documents, step.previews = None, (Document("Call 0123456 for the height\u2026"),)
    empty.kind, empty.ended, empty.answer = "generate", True, "330 metres"
    assert step.text_bytes() > empty.text_bytes()
    assert not step.is_plain(1_000)
    redact_step(step, Redact(patterns=[r"\d{7}"]))
    assert step.previews == (Document("Call [redacted] for the height\u2026"),)
    assert CallBuilder(step, [step]).build().contexts == step.previews
    step.clear_texts()
    assert step.previews is None


def test_what_redaction_cuts_off_previews_is_counted() -> None:
    """As of any other document."""
    step = generation()
    step.prompt_documents, step.previews = None, (Document("The tower is tall\u2026"),)
    redact_step(step, Redact(max_chars=10))
    assert step.previews == (Document("The tower ", cut_chars=8),)
    assert step.cut_chars == 8

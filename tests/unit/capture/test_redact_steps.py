"""The texts of a step are redacted before a judge or a backend sees them."""

from __future__ import annotations

import pytest

import ragtrace
from ragtrace.capture.redact import FAILED, Redact, redact_step
from ragtrace.core.step import CallBuilder, Step
from ragtrace.core.tags import TagValue
from ragtrace.core.types import Document, Judgement
from ragtrace.system.faults import faults
from ragtrace.testing import FakeJudge
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


def tagged(**tags: TagValue) -> Step:
    step = Step()
    step.tags, step.ended = tags, True
    return step


def test_texts_of_tags_are_redacted() -> None:
    """As all texts are, by patterns and by the user's function; numbers and booleans stay, and so does the mapping."""
    step = tagged(tenant="Call 0123456", size=1_234_567, beta=True)
    before = step.tags
    redact_step(step, Redact(patterns=[r"\d{7}"], function=str.upper))
    assert step.tags == {"tenant": "CALL [REDACTED]", "size": 1_234_567, "beta": True}
    assert before == {"tenant": "Call 0123456", "size": 1_234_567, "beta": True}


def test_a_tag_of_which_redaction_leaves_nothing_is_left_out_and_counted() -> None:
    """No value is no text."""
    faults.clear()
    step = tagged(tenant="0123456", arm="b")
    redact_step(step, Redact(patterns=[r"\d{7}"], replacement=""))
    assert step.tags == {"arm": "b"}
    assert faults.counts() == {"tags left out: values that Redact has changed": 1}
    faults.clear()


def test_a_tag_that_cannot_be_redacted_does_not_stay() -> None:
    """Its value says so."""

    def fail(text: str) -> str:
        raise LookupError

    faults.clear()
    step = tagged(tenant="secret")
    redact_step(step, Redact(function=fail))
    assert step.tags == {"tenant": FAILED}
    faults.clear()


def test_ids_of_redact_leave_tags_alone() -> None:
    """That function is for the ids of conversations and users."""
    step = tagged(tenant="acme")
    redact_step(step, Redact(ids=str.upper))
    assert step.tags == {"tenant": "acme"}


def test_a_step_with_a_long_tag_is_not_plain() -> None:
    """Nor is one beyond ASCII; numbers are no texts."""
    assert tagged(tenant="acme", size=1_000_000).is_plain(4)
    assert not tagged(tenant="acme!").is_plain(4)
    assert not tagged(tenant="\u00e4").is_plain(4)


def test_the_tags_of_a_call_are_redacted_for_its_judge() -> None:
    """From the decorator to the judge."""
    judge = FakeJudge(Judgement(answer_label="answered"), metrics=["answered"])
    ragtrace.configure(exporter="none", screen=judge, metrics=["answered"], redact=Redact([r"\d{7}"]))
    try:
        with ragtrace.tags(tenant="of 0123456"), ragtrace.call("q", tags={"phone": "0123456"}) as call:
            call.answered("answer")
        assert ragtrace.flush()
        assert judge.calls[0].tags == {"tenant": "of [redacted]", "phone": "[redacted]"}
    finally:
        ragtrace.shutdown()

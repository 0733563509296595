"""Redaction of what a step captured, before a span, an event or a judge sees it."""

from __future__ import annotations

from dataclasses import replace

from ragtrace.model import RagCall
from ragtrace.redact import FAILED, Redact, encodable
from ragtrace.steps import Step


def redact_step(step: Step, redact: Redact) -> None:
    """Put every captured text of *step* through *redact*, once: before a span, an event or a judge sees it."""
    if step.redacted:
        return
    step.redacted = True
    _make_encodable(step)
    captured = (step.query, step.answer, step.reference, step.documents, step.error)
    # If redaction itself fails, nothing unredacted may be left behind.
    step.query = step.answer = step.reference = step.documents = None
    query, answer, reference, found, error = captured
    step.query, step.answer, step.reference = (_text(step, redact, text) for text in (query, answer, reference))
    if found is not None:
        step.documents = redact.documents(found)
        step.cut_chars += sum(document.cut_chars for document in step.documents)
    if error is not None:
        step.error = replace(
            error, message=redact.text(error.message).text, stacktrace=redact.text(error.stacktrace).text
        )


def _text(step: Step, redact: Redact, text: str | None) -> str | None:
    if text is None:
        return None
    redacted = redact.text(text)
    step.cut_chars += redacted.cut_chars
    return redacted.text


def _make_encodable(step: Step) -> None:
    """Ids and names are not redacted, but one lone surrogate in them would cost a whole batch of spans."""
    step.conversation_id, step.user_id, step.request_model, step.response_model, step.response_id = (
        None if text is None else encodable(text)
        for text in (step.conversation_id, step.user_id, step.request_model, step.response_model, step.response_id)
    )


def unredactable(call: RagCall) -> bool:
    """Whether some text of *call* could not be redacted: then there is nothing to judge."""
    texts = [call.query, call.answer, call.reference, *(document.text for document in call.contexts or ())]
    return FAILED in texts

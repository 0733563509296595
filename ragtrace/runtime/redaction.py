"""Redaction of what a step captured, before a span, an event or a judge sees it; and of what a judge says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from ragtrace.labels import Claim
from ragtrace.model import Evaluation, RagCall, Result, Score
from ragtrace.redact import FAILED, Redact, encodable
from ragtrace.steps import Step

_NAMES: Final = ("conversation_id", "user_id", "request_model", "response_model", "response_id")


def redact_step(step: Step, redact: Redact) -> None:
    """Put every captured text of *step* through *redact*, once: before a span, an event or a judge sees it."""
    if step.redacted:
        return
    step.redacted = True
    if step.error is None and redact.leaves(_texts(step)):
        return
    _make_encodable(step)
    captured = (step.query, step.answer, step.reference, step.documents, step.error)
    # If redaction itself fails, nothing unredacted may be left behind.
    step.query = step.answer = step.reference = step.documents = None
    query, answer, reference, found, error = captured
    if query is not None:
        step.query = _text(step, redact, query)
    if answer is not None:
        step.answer = _text(step, redact, answer)
    if reference is not None:
        step.reference = _text(step, redact, reference)
    if found is not None:
        step.documents = redact.documents(found)
        step.cut_chars += sum([document.cut_chars for document in step.documents])
    if error is not None:
        step.error = replace(
            error, message=redact.text(error.message).text, stacktrace=redact.text(error.stacktrace).text
        )


def _texts(step: Step) -> list[str]:
    """Everything in *step* that is a text of the application's."""
    texts = [
        text
        for text in (
            *(step.query, step.answer, step.reference, step.conversation_id, step.user_id),
            *(step.request_model, step.response_model, step.response_id),
        )
        if text is not None
    ]
    for document in step.documents or ():
        texts.append(document.text)
        if document.id is not None:
            texts.append(document.id)
    return texts


def _text(step: Step, redact: Redact, text: str) -> str:
    redacted = redact.text(text)
    step.cut_chars += redacted.cut_chars
    return redacted.text


def _make_encodable(step: Step) -> None:
    """Ids and names are not redacted, but one lone surrogate in them would cost a whole batch of spans."""
    for name in _NAMES:
        text = getattr(step, name)
        if text is not None:
            setattr(step, name, encodable(text))


def redact_evaluation(evaluation: Evaluation, redact: Redact) -> Evaluation:
    """*evaluation* with all its texts put through *redact*: what a model wrote may say what was to be taken out."""
    if not (redact.patterns or redact.function):
        return evaluation
    seen: dict[int, tuple[Claim, ...]] = {}
    results = {name: _redact_result(result, redact, seen) for name, result in evaluation.results.items()}
    return replace(evaluation, results=results)


def _redact_result(result: Result, redact: Redact, seen: dict[int, tuple[Claim, ...]]) -> Result:
    changes: dict[str, Any] = {}
    if result.explanation:
        changes["explanation"] = redact.text(result.explanation).text
    attributes: object = result.attributes  # a user's metric may have put anything there
    if isinstance(attributes, Mapping):
        given = cast("Mapping[str, object]", attributes)
        changes["attributes"] = {name: _redact_value(value, redact) for name, value in given.items()}
    if isinstance(result, Score) and result.claims:
        key = id(result.claims)  # metrics share them
        if key not in seen:
            seen[key] = tuple(_redact_claim(claim, redact) for claim in result.claims)
        changes["claims"] = seen[key]
    return replace(result, **changes)


def _redact_value(value: object, redact: Redact) -> object:
    if isinstance(value, str):
        return redact.text(value).text
    if isinstance(value, (tuple, list)):
        return tuple(_redact_value(item, redact) for item in cast("tuple[object, ...]", value))
    return value


def _redact_claim(claim: Claim, redact: Redact) -> Claim:
    quote = None if claim.quote is None else redact.text(claim.quote).text
    return replace(claim, text=redact.text(claim.text).text, quote=quote)


def unredactable(call: RagCall) -> bool:
    """Whether some text of *call* could not be redacted: then there is nothing to judge."""
    texts = [call.query, call.answer, call.reference, *(document.text for document in call.contexts or ())]
    return FAILED in texts

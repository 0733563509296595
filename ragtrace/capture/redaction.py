"""Redaction of what a step captured, before a span, an event or a judge sees it; and of what a judge says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from ragtrace.capture.redact import FAILED, Redact
from ragtrace.core.labels import Claim
from ragtrace.core.step import Message, Prompt, Step
from ragtrace.core.text import encodable
from ragtrace.core.types import Evaluation, RagCall, Result, Score

_NAMES: Final = ("request_model", "response_model", "response_id")
_IDS: Final = ("conversation_id", "user_id")
STACKTRACE_CHARS: Final = 20_000
"""Characters of a stack trace that are kept: the last ones, where the error is."""


def redact_step(step: Step, redact: Redact) -> None:
    """Put every captured text of *step* through *redact*, once: before a span, an event or a judge sees it."""
    if step.redacted:
        return
    step.redacted = True
    if step.error is None and redact.leaves(_texts(step)):
        return
    _redact_names(step, redact)
    captured = (step.query, step.answer, step.reference, step.documents, step.error, step.prompt)
    # If redaction itself fails, nothing unredacted may be left behind.
    step.query = step.answer = step.reference = step.documents = step.prompt = None
    query, answer, reference, found, error, prompt = captured
    if query is not None:
        step.query = _text(step, redact, query)
    if prompt is not None:
        step.prompt = Prompt(tuple(_message(step, redact, each, query) for each in prompt.messages), prompt.is_cut)
    if answer is not None:
        step.answer = _text(step, redact, answer)
    if reference is not None:
        step.reference = _text(step, redact, reference)
    if found is not None:
        step.documents = redact.documents(found)
        step.cut_chars += sum([document.cut_chars for document in step.documents])
    if error is not None:
        kept = min(STACKTRACE_CHARS, redact.max_chars or STACKTRACE_CHARS)
        message = None if error.message is None else redact.text(error.message).text
        step.error = replace(error, message=message, stacktrace=redact.tail(error.stacktrace, kept))


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
    if step.prompt is not None:
        texts += [message.text for message in step.prompt.messages]
    for document in step.documents or ():
        texts.append(document.text)
        if document.id is not None:
            texts.append(document.id)
    return texts


def _text(step: Step, redact: Redact, text: str) -> str:
    redacted = redact.text(text)
    step.cut_chars += redacted.cut_chars
    return redacted.text


def _message(step: Step, redact: Redact, message: Message, query: str | None) -> Message:
    if message.text is query and step.query is not None:  # its cut characters have been counted
        return Message(message.role, step.query)
    return Message(message.role, _text(step, redact, message.text))


def _redact_names(step: Step, redact: Redact) -> None:
    """Make the names and ids of *step* encodable (one lone surrogate costs a whole batch of spans); redact the ids."""
    for name in (*_NAMES, *_IDS):
        text = getattr(step, name)
        if text is not None:
            setattr(step, name, redact.id(text) if name in _IDS else encodable(text))


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
    texts += [turn.text for turn in call.turns or ()]
    return FAILED in texts

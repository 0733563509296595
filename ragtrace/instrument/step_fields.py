"""Puts what a decorated function's arguments and results tell onto its step, now or in the background."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ragtrace.capture import Answer, AnswerStream, find_answer, find_documents, warn_not_found
from ragtrace.capture.arguments import Arguments, Picked
from ragtrace.capture.exceptions import message_of, traceback_of
from ragtrace.capture.fields import full_name_of
from ragtrace.capture.redact import MARGIN_CHARS
from ragtrace.core.step import ErrorRecord, Step, StepKind
from ragtrace.core.types import Usage
from ragtrace.system.faults import guarded

Selector: TypeAlias = Callable[[Any], object]
_STACKTRACE_CHARS = 20_000 + MARGIN_CHARS
"""What is kept for redaction, which sees the margin and drops it: a cut before redaction could split a match."""


@dataclass(frozen=True, slots=True)
class StepSpec:
    """What is known of a decorated function before it is called."""

    kind: StepKind
    function_name: str
    arguments: Arguments
    name: str = ""
    workflow: str = ""
    rerank: bool | None = None
    """None: a retrieval that is given documents is a re-ranking."""
    provider: str | None = None
    model: str | None = None
    result: Selector | None = None
    """Documents of a retrieval, or answer of a generation or trace, out of what it returned or yielded."""
    sources: Selector | None = None
    """Documents that a generation or trace used, out of what it returned."""


def take_arguments(step: Step, spec: StepSpec, picked: Picked) -> None:
    """What the arguments told."""
    step.query, step.top_k = picked.query, picked.top_k
    step.conversation_id, step.user_id = picked.session, picked.user
    step.request_model = spec.model or picked.model
    if picked.prompt is not None:
        step.prompt = picked.prompt
    if spec.kind == "retrieve":
        step.rerank = picked.documents is not None if spec.rerank is None else spec.rerank
    elif spec.kind == "generate":
        step.documents = picked.documents


def take_documents(value: object, step: Step, spec: StepSpec) -> None:
    """What a retrieval returned."""
    step.documents = find_documents(value)
    if step.documents is None and not step.abandoned:
        warn_not_found("documents", spec.function_name, value)


def take_reply(value: object, step: Step, spec: StepSpec, stream: AnswerStream | None) -> None:
    """What a generation or trace returned or streamed."""
    if type(value) is str and stream is None:
        step.answer = value
        return
    returned = None if value is None else find_answer(value)
    streamed = None if stream is None else stream.answer()
    if value is not None or stream is not None:
        step.answer_found = returned is not None or streamed is not None
    elif spec.kind == "generate":
        step.answer_found = True  # the model gave none
    for found in (returned, streamed):  # what was streamed is the answer; the object around it may know the sources
        if found is not None:
            _take_fields(step, found)
    if spec.kind == "generate" and returned is None and streamed is None and step.error is None:
        warn_not_found("answer", spec.function_name, value)


def _take_fields(step: Step, found: Answer) -> None:
    step.answer = found.text if found.text is not None else step.answer
    step.response_model = found.model or step.response_model
    step.response_id = found.response_id or step.response_id
    step.finish_reasons = found.finish_reasons or step.finish_reasons
    if found.input_tokens is not None or found.output_tokens is not None:
        step.usage = Usage(found.input_tokens, found.output_tokens)
    step.cut_chars += found.cut_chars
    if step.documents is None:
        step.documents = found.documents


def error_record(error: BaseException, *, messages: bool) -> ErrorRecord:
    """Return *error* as text; without *messages* only with the types and frames of it and of what led to it."""
    message = "" if messages else None
    stacktrace = ""
    with guarded("text of an exception"):
        message = message_of(error) if messages else None
        stacktrace = traceback_of(error, messages=messages)[-_STACKTRACE_CHARS:]
    return ErrorRecord(full_name_of(type(error)), message, stacktrace)

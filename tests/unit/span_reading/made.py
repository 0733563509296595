"""Finished spans made by hand in the OpenInference conventions, for the tests of how calls are assembled."""

from __future__ import annotations

import itertools
from typing import Any

from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.span_reading.finished_span import FinishedSpan

QUERY = "How tall is the Eiffel Tower?"
ANSWER = "The Eiffel Tower is 330 metres tall."
PASSAGE = "The Eiffel Tower in Paris is 330 metres tall."
_MS = 1_000_000
_ids = itertools.count(1)


def span(
    kind: str,
    at: tuple[int, int],
    parent: FinishedSpan | None = None,
    *,
    trace: int = 1,
    scope: str = "openinference.instrumentation.langchain",
    parent_id: int | None = None,
    **attributes: Any,
) -> FinishedSpan:
    """A finished span of OpenInference: its kind, start and end in milliseconds, and its attributes."""
    trace_id = trace if parent is None else parent.context.trace_id
    above = None if parent is None else parent.context
    if parent_id is not None:
        above = span_context(trace_id, parent_id)
    given = {name.replace("__", "."): value for name, value in attributes.items()}
    given |= {"openinference.span.kind": kind} if kind else {}
    return FinishedSpan(
        context=span_context(trace_id, next(_ids)),
        parent=above,
        name=kind.lower() or "http",
        attributes=given,
        start_ns=at[0] * _MS,
        end_ns=at[1] * _MS,
        scope=scope,
    )


def span_context(trace_id: int, span_id: int) -> SpanContext:
    """Return the context of a sampled span of this process."""
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(1))


def chain(at: tuple[int, int], parent: FinishedSpan | None = None, **more: Any) -> FinishedSpan:
    """A workflow that was asked `QUERY` and has answered `ANSWER`."""
    return span("CHAIN", at, parent, **{"input__value": QUERY, "output__value": ANSWER, **more})


def retriever(at: tuple[int, int], parent: FinishedSpan | None = None, *texts: str, **more: Any) -> FinishedSpan:
    """A retrieval that has found *texts*, by default `PASSAGE`."""
    found = {f"retrieval__documents__{rank}__document__content": text for rank, text in enumerate(texts or (PASSAGE,))}
    return span("RETRIEVER", at, parent, **{"input__value": QUERY, **found, **more})


def llm(
    at: tuple[int, int], parent: FinishedSpan | None = None, answer: str = ANSWER, prompt: str = QUERY, **more: Any
) -> FinishedSpan:
    """A model call with a *prompt* of the user and an *answer*."""
    messages = {
        "llm__input_messages__0__message__role": "user",
        "llm__input_messages__0__message__content": prompt,
        "llm__output_messages__0__message__role": "assistant",
        "llm__output_messages__0__message__content": answer,
    }
    return span("LLM", at, parent, **messages, **more)

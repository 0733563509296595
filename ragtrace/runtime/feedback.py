"""The functions `feedback` and `call_id`, which record what people say about a RAG call, in any process."""

from __future__ import annotations

import math
from numbers import Real
from time import time_ns
from typing import Final

from opentelemetry.context import get_current
from opentelemetry.trace import SpanContext

from ragtrace.core.feedback import (
    CORRECTED,
    HUMAN,
    THUMBS_DOWN,
    THUMBS_UP,
    Feedback,
    decode_call_id,
    encode_call_id,
    root_span,
)
from ragtrace.core.score_id import score_id
from ragtrace.core.text import encodable
from ragtrace.recording.recorder import current_recorder, is_recording_suppressed
from ragtrace.runtime.current_runtime import current
from ragtrace.system.faults import faults, guarded

_NAME_CHARS: Final = 100
_TEXT_CHARS: Final = 20_000
"""Most characters of a comment or a correction; the rest is cut off."""


def call_id() -> str | None:
    """Return the id of the RAG call in progress, for a later `feedback(call=...)` in any process.

    It is the trace id and the span id of the call's root span in the format of the W3C header `traceparent`, and tells
    nothing else: it may go to a front end. Outside a call it returns None and says so once in the log. Never raises.

    Examples:
        >>> @ragtrace.trace
        ... def ask(question: str) -> dict[str, str | None]:
        ...     return {"answer": "In Paris.", "call": ragtrace.call_id()}
        >>> ragtrace.configure(exporter="none")
        >>> len(ask("Where is the tower?")["call"])
        55
    """
    with guarded("call_id"):
        if current() is None or is_recording_suppressed():
            return None
        span = _current_root()
        if span is not None:
            return encode_call_id(span)
        faults.log_once(
            "call_id",
            "ragtrace.call_id() was called outside a traced call and returned None; call it inside a function "
            "decorated with @ragtrace.trace",
        )
    return None


def feedback(
    score: bool | float | None,
    *,
    call: str | None = None,
    name: str = "user_feedback",
    scale: tuple[float, float] = (0.0, 1.0),
    comment: str | None = None,
    correction: str | None = None,
    user: str | None = None,
    id: str | None = None,  # noqa: A002 - as in the score APIs of backends
    trace_id: str | None = None,
    span_id: str | None = None,
) -> bool:
    """Record a person's feedback on a RAG call: during the call, after it, or in another process.

    The feedback leaves in the background as an evaluation event of a human evaluator, as metric, to the score APIs of
    backends, and into the history. Feedback with the same id replaces earlier feedback. Wrong arguments are logged once
    and ignored; before `configure` it does nothing and says so once. Never raises.

    Examples:
        >>> @ragtrace.trace
        ... def ask(question: str) -> str | None:
        ...     return ragtrace.call_id()
        >>> ragtrace.configure(exporter="none")
        >>> token = ask("Where is the tower?")  # sent along with the answer
        >>> ragtrace.feedback(True, call=token)  # thumbs up
        True
        >>> ragtrace.feedback(4, scale=(1, 5), call=token, comment="nearly", user="u-17")  # stars
        True
        >>> ragtrace.feedback(None, call=token, correction="In Paris, on the Champ de Mars.")
        True

    Args:
        score: True or False (thumbs up or down), a number on *scale*, or None with a *correction*. Higher is better.
        call: what `call_id` returned in the call; default: the call in progress.
        name: what is rated, of low cardinality.
        scale: lowest and highest possible score; the score is kept as a number from 0 to 1.
        comment: what the person wrote.
        correction: the text that the person would have liked as the answer.
        user: id of the person; it is no attribute of metrics.
        id: identity of the feedback on that call; default: one for each *name* and *user*.
        trace_id: trace id of the call in hexadecimal, with *span_id*, instead of *call*.
        span_id: span id of the call's root span.

    Returns:
        Whether the feedback was queued to be sent.
    """
    try:
        runtime = current()
        if runtime is None:
            faults.log_once(
                "feedback before configure",
                "ragtrace.feedback(...) was ignored: ragtrace is not configured in this process; call "
                "ragtrace.configure(...) first",
            )
            return False
        span = _find_root(call, trace_id, span_id)
        problem = span if isinstance(span, str) else _find_problem(score, scale, name, correction)
        if isinstance(span, str) or problem:
            place = f"feedback: {problem.partition(',')[0]}"
            faults.warn_once(place, "ragtrace.feedback(...) was ignored: %s", problem)
            return False
        label, value = _label_and_score(score, scale)
        key = {"metric_version": str(id)} if id else {"evaluator_version": str(user or "")}
        given = Feedback(
            id=score_id(span, name, HUMAN, **key),
            span=span,
            name=encodable(name),  # it is an attribute of a metric, too
            score=value,
            label=label,
            comment=None if comment is None else str(comment)[:_TEXT_CHARS],
            correction=None if correction is None else str(correction)[:_TEXT_CHARS],
            user=None if user is None else str(user),
            time_ns=time_ns(),
        )
        return runtime.feedback.offer(given)
    except Exception as error:
        faults.record("feedback", error)
        return False


def _current_root() -> SpanContext | None:
    """Return the span context of the root span of the RAG call in progress, or None outside a call."""
    recorder = current_recorder(get_current())
    builder = None if recorder is None else recorder.call_builder
    return None if builder is None else builder.root.span_context


def _find_root(call: str | None, trace_id: str | None, span_id: str | None) -> SpanContext | str:
    """Return the span context of the root span of the RAG call that the arguments identify, or an error message."""
    if call is not None:
        return decode_call_id(str(call)) or "call= must be what ragtrace.call_id() returned, got another text"
    if trace_id is not None or span_id is not None:
        return root_span(str(trace_id), str(span_id)) or (
            "trace_id= and span_id= must be 32 and 16 hexadecimal digits, got other values; pass both, or call="
        )
    return _current_root() or "it has no call, as it was called outside a traced call; pass call=ragtrace.call_id()"


def _find_problem(score: object, scale: object, name: object, correction: object) -> str:
    """Return an error message if the arguments of `feedback` are invalid, or an empty text."""
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARS:
        return f"name= must be a text of 1 to {_NAME_CHARS} characters, got another value"
    if score is None:
        return "" if correction else "score must be a bool or a number, got None without a correction="
    match scale:
        case (int() | float() as least, int() | float() as most) if -math.inf < least < most < math.inf:
            if isinstance(score, bool) or (isinstance(score, Real) and least <= float(score) <= most):
                return ""
            return f"score must be a bool or a number from {least} to {most}, got {score!r}; pass scale= for another"
        case _:
            pass
    return f"scale= must be the lowest and the highest possible score, got {scale!r}; write for instance (1, 5)"


def _label_and_score(score: bool | float | None, scale: tuple[float, float]) -> tuple[str | None, float | None]:
    if score is None:
        return CORRECTED, None
    if isinstance(score, bool):
        return THUMBS_UP if score else THUMBS_DOWN, float(score)
    return None, (float(score) - scale[0]) / (scale[1] - scale[0])

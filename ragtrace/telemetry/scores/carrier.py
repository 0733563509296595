"""Scores that came too late for their span, or whose span nobody holds: a span of their own, linked to it.

Never a late child: every backend would add its lateness to the latency of the trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, SpanKind, Tracer

from ragtrace.core import semconv
from ragtrace.core.score_id import id_of
from ragtrace.core.types import Evaluation, RagCall, Score
from ragtrace.dialects.score_attributes import prevailing
from ragtrace.telemetry.spans.attribute_limits import keep_first

if TYPE_CHECKING:
    from ragtrace.dialects.score_attributes import Attributes

_ANNOTATOR = {"llm_judge": "LLM", "deterministic": "CODE", "model": "CODE", "human": "HUMAN"}
# An empty Context is falsy, and falsy means "the current one": a root needs one with something in it.
_ROOT = Context({"ragtrace-carrier": True})


def send_carrier(
    tracer: Tracer, target: SpanContext, call: RagCall, evaluations: Sequence[Evaluation], scores: Attributes
) -> bool:
    """Send the scores of *target* on a span of their own; False if the provider's sampler dropped that span."""
    first: Attributes = {semconv.OPERATION_NAME: semconv.OPERATION_EVALUATION, semconv.OI_KIND: semconv.OI_EVALUATOR}
    span = tracer.start_span(
        semconv.span_name(semconv.CARRIER_OPERATION, call.workflow),
        context=_ROOT,
        kind=SpanKind.INTERNAL,
        links=[Link(target)],
        attributes=first,
    )
    recording = span.is_recording()
    if recording:
        # The scores last but one: of more attributes than a span may have, the SDK keeps those that were set last.
        span.set_attributes(_openinference(target, evaluations))
        span.set_attributes(_usage(evaluations))
        span.set_attributes(scores)
        keep_first(span, lambda: first)
    span.end()
    return recording


def _openinference(target: SpanContext, evaluations: Sequence[Evaluation]) -> Mapping[str, str | float]:
    attributes: dict[str, str | float] = {}
    index = 0
    for name, (evaluation, result) in prevailing(evaluations).items():
        if not isinstance(result, Score):
            continue
        for part, value in _parts(target, name, result, evaluation).items():
            if value is not None:
                attributes[semconv.oi_evaluation(index, part)] = value
        index += 1
    return attributes


def _parts(target: SpanContext, name: str, result: Score, evaluation: Evaluation) -> Mapping[str, str | float | None]:
    metadata = {
        "evaluator": f"{evaluation.evaluator}@{evaluation.version}",
        "probability": evaluation.probability,
        "metric_version": result.metric_version,
    }
    return {
        "name": name,
        "score": result.value,
        "label": result.label,
        "explanation": result.explanation,
        "annotator_kind": _ANNOTATOR.get(evaluation.type, "CODE"),
        "identifier": id_of(target, name, result, evaluation),
        "metadata": json.dumps(metadata),
    }


def _usage(evaluations: Sequence[Evaluation]) -> Mapping[str, int]:
    totals = {
        semconv.USAGE_INPUT_TOKENS: sum(evaluation.input_tokens for evaluation in evaluations),
        semconv.USAGE_OUTPUT_TOKENS: sum(evaluation.output_tokens for evaluation in evaluations),
    }
    return {key: total for key, total in totals.items() if total}

"""One standard evaluation event for each metric of a scored call, parented to the scored span."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from opentelemetry._logs import SeverityNumber

from ragtrace.core import semconv
from ragtrace.core.score_id import id_of
from ragtrace.core.types import Evaluation, RagCall, Result, Score
from ragtrace.telemetry.scores.details import Detail, details

if TYPE_CHECKING:
    from opentelemetry._logs import Logger
    from opentelemetry.context import Context

_EXPLANATION_CHARS: Final = 2_000


def emit_events(
    logger: Logger,
    evaluation: Evaluation,
    call: RagCall,
    response_id: str | None,
    context: Context,
    now: Callable[[], int],
) -> bool:
    """Emit `gen_ai.evaluation.result` for each result; False if there is no logs SDK to take them.

    Args:
        context: holds the scored span's context (trace flags and state as they were).
        now: wall clock, nanoseconds since the epoch: an event without a timestamp is dated 1970.
    """
    # Loggers before SDK 1.45 cannot be asked: they take every event.
    enabled = getattr(logger, "enabled", None)
    if enabled is not None and not enabled(
        severity_number=SeverityNumber.INFO, event_name=semconv.EVENT_EVALUATION, context=context
    ):
        return False
    common = _common(evaluation, call, response_id)
    for name, result in evaluation.results.items():
        failed = not isinstance(result, Score) and result.status in ("judge_error", "judge_suspect")
        logger.emit(
            timestamp=now(),
            context=context,
            severity_number=SeverityNumber.WARN if failed else SeverityNumber.INFO,
            event_name=semconv.EVENT_EVALUATION,
            attributes={
                **common,
                **_identity(name, result, evaluation, call),
                **_of_result(name, result, failed=failed),
            },
        )
    return True


Attributes = dict[str, "Detail"]


def _common(evaluation: Evaluation, call: RagCall, response_id: str | None) -> Attributes:
    attributes: Attributes = {
        semconv.EVALUATOR_ID: evaluation.evaluator,
        semconv.EVALUATOR_VERSION: evaluation.version,
        semconv.EVALUATOR_TYPE: evaluation.type,
        semconv.EVAL_PROBABILITY: evaluation.probability,
        semconv.EVAL_ADJUSTED_COUNT: 1 / evaluation.probability,
    }
    optional = {
        semconv.WORKFLOW_NAME: call.workflow,
        semconv.CONVERSATION_ID: call.conversation_id,
        semconv.RESPONSE_ID: response_id,
    }
    attributes.update({key: value for key, value in optional.items() if value})
    return attributes


def _identity(name: str, result: Result, evaluation: Evaluation, call: RagCall) -> Attributes:
    return {} if call.span is None else {semconv.EVAL_SCORE_ID: id_of(call.span, name, result, evaluation)}


def _of_result(name: str, result: Result, *, failed: bool) -> Attributes:
    attributes: Attributes = {
        semconv.EVALUATION_NAME: name,
        semconv.EVAL_HIGHER_IS_BETTER: result.higher_is_better,
    }
    if result.explanation:
        attributes[semconv.EVALUATION_EXPLANATION] = result.explanation[:_EXPLANATION_CHARS]
    if isinstance(result, Score):
        attributes[semconv.EVALUATION_SCORE] = result.value
        if result.label is not None:
            attributes[semconv.EVALUATION_LABEL] = result.label
    else:
        attributes[semconv.ERROR_TYPE if failed else semconv.REASON] = result.reason
    attributes.update(details(result.attributes))
    return attributes

"""Evaluation events: one `gen_ai.evaluation.result` for each metric of a scored call, parented to the scored span."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from time import time_ns
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from opentelemetry._logs import SeverityNumber

from ragtrace.core import semconv
from ragtrace.core.score_id import score_id_of_result
from ragtrace.core.step import GuardVerdict
from ragtrace.core.tags import tag_attributes
from ragtrace.core.text import encodable
from ragtrace.core.types import CALIBRATION, Evaluation, RagCall, Result, Score

if TYPE_CHECKING:
    from opentelemetry._logs import Logger
    from opentelemetry.context import Context

    from ragtrace.core.labels import Claim
    from ragtrace.core.step import StepGuard

EXPLANATION_CHARS: Final = 2_000
Detail: TypeAlias = "str | bool | int | float | tuple[str, ...] | tuple[float, ...]"

MOST_DETAILS: Final = 32
MOST_ITEMS: Final = 64
MOST_STATEMENTS: Final = 200
"""Most statements of an answer that are shown with their probabilities."""
MOST_CHARS: Final = 200
"""Most characters of a text, such as a name, a method or a label; the rest is cut off."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_INT64: Final = 2**63
Attributes = dict[str, "Detail"]


def emit_events(
    logger: Logger, evaluation: Evaluation, call: RagCall, response_id: str | None, context: Context
) -> None:
    """Emit one `gen_ai.evaluation.result` event for each metric of a scored RAG call.

    Nothing is emitted if the logger does not accept such events.

    Args:
        context: holds the span context of the scored span, with its trace flags and state.
    """
    if not accepts_events(logger, context):
        return
    optional = {
        semconv.WORKFLOW_NAME: call.workflow,
        semconv.CONVERSATION_ID: call.conversation_id,
        semconv.RESPONSE_ID: response_id,
        semconv.CONTEXT_SOURCE: call.context_source,
    }
    common: Attributes = {
        semconv.EVALUATOR_ID: evaluation.evaluator,
        semconv.EVALUATOR_VERSION: evaluation.version,
        semconv.EVALUATOR_TYPE: evaluation.type,
        semconv.EVAL_PROBABILITY: evaluation.probability,
        semconv.EVAL_ADJUSTED_COUNT: 1 / evaluation.probability,
        **{key: value for key, value in optional.items() if value},
        **(tag_attributes(call.tags) if call.tags else {}),
    }
    shown = statements_json(evaluation.results.values())
    for name, result in evaluation.results.items():
        failed = not isinstance(result, Score) and result.status in ("judge_error", "judge_suspect")
        attributes: Attributes = {
            **common,
            semconv.EVALUATION_NAME: name,
            semconv.EVAL_HIGHER_IS_BETTER: result.higher_is_better,
        }
        if call.span is not None:
            attributes[semconv.EVAL_SCORE_ID] = score_id_of_result(call.span, name, result, evaluation)
        if result.explanation:
            attributes[semconv.EVALUATION_EXPLANATION] = result.explanation[:EXPLANATION_CHARS]
        if isinstance(result, Score):
            attributes[semconv.EVALUATION_SCORE] = result.value
            if result.label is not None:
                attributes[semconv.EVALUATION_LABEL] = result.label
            if shown is not None and any(claim.probability is not None for claim in result.claims):
                attributes[semconv.EVAL_STATEMENTS], shown = shown, None  # on one event: the others share the claims
        else:
            attributes[semconv.ERROR_TYPE if failed else semconv.REASON] = result.reason
        logger.emit(
            timestamp=time_ns(),  # an event without one is dated 1970
            context=context,
            severity_number=SeverityNumber.WARN if failed else SeverityNumber.INFO,
            event_name=semconv.EVENT_EVALUATION,
            attributes={**attributes, **detail_attributes(result.attributes)},
        )


def guard_verdict(guard: StepGuard) -> GuardVerdict:
    """Return verdict and action of the guard of a call."""
    found = guard.attributes()
    names = semconv.GUARD_METRIC, semconv.GUARD_MODE, semconv.GUARD_VERDICT, semconv.GUARD_ACTION
    metric, mode, verdict, action = (str(found[name]) for name in names)
    reason = str(found.get(semconv.GUARD_REASON, ""))
    return GuardVerdict(metric, mode, verdict, action, reason, guard.score, guard.added_s)


def emit_guard_event(logger: Logger, guard: StepGuard, call: RagCall, context: Context) -> None:
    """Emit the event `ragtrace.guard.result` with the verdict and the action of a call's guard.

    Args:
        context: holds the span context of the call's root span.
    """
    if not accepts_events(logger, context, semconv.EVENT_GUARD):
        return
    attributes: Attributes = {**guard.attributes(), semconv.WORKFLOW_NAME: call.workflow}
    if call.conversation_id:
        attributes[semconv.CONVERSATION_ID] = call.conversation_id
    if call.tags:
        attributes.update(tag_attributes(call.tags))
    if guard.score is not None:
        attributes[semconv.EVALUATION_SCORE] = guard.score
    checked = attributes[semconv.GUARD_VERDICT] == "pass"
    logger.emit(
        timestamp=time_ns(),
        context=context,
        severity_number=SeverityNumber.INFO if checked else SeverityNumber.WARN,
        event_name=semconv.EVENT_GUARD,
        attributes=attributes,
    )


def calibration_of(result: Result) -> str | None:
    """Return what is known of the calibration of a score that rests on a decision model's probabilities, else None."""
    attributes: object = result.attributes  # a user's metric may put anything there
    found = cast("Mapping[object, object]", attributes).get(CALIBRATION) if isinstance(attributes, Mapping) else None
    return found if isinstance(found, str) else None


def statements_json(results: Iterable[Result]) -> str | None:
    """Return the statements of an answer with the probabilities that a decision model gave, as JSON.

    Return None if no result has such claims. The list has a limited length, and says how many statements it leaves out.

    Items: start, end (offsets in the answer), probability (that the chunks support the statement), chunks (ranks from
    0 of those that the statement was held against, closest first).
    """
    claims = next((found for result in results if isinstance(result, Score) and (found := _likely(result.claims))), ())
    if not claims:
        return None
    items: list[object] = [
        {"start": one.start, "end": one.end, "probability": one.probability, "chunks": one.evidence}
        for one in claims[:MOST_STATEMENTS]
    ]
    if len(claims) > MOST_STATEMENTS:
        items.append({"left_out": len(claims) - MOST_STATEMENTS})
    return json.dumps(items, separators=(",", ":"))


def _likely(claims: Sequence[Claim]) -> list[Claim]:
    return [claim for claim in claims if claim.probability is not None]


def accepts_events(logger: Logger, context: Context, name: str = semconv.EVENT_EVALUATION) -> bool:
    """Return whether *logger* accepts events of that *name*, by default evaluation events.

    Without a logs SDK it accepts none.
    """
    # Loggers before SDK 1.45 have no `enabled`: they take every event.
    enabled = getattr(logger, "enabled", None)
    return enabled is None or bool(enabled(severity_number=SeverityNumber.INFO, event_name=name, context=context))


def detail_attributes(attributes: object) -> dict[str, Detail]:
    """Return a metric's additional values (counts, a method ...) as attributes of the evaluation event.

    Counts of 0 and false or empty values are left out: they are the most frequent ones, and absence says the same.

    Args:
        attributes: the mapping of a `Result`; a user's metric may put anything there.
    """
    found: dict[str, Detail] = {}
    if not isinstance(attributes, Mapping):
        return found
    for name, value in cast("Mapping[object, object]", attributes).items():
        plain = _plain(value)
        if (plain or isinstance(plain, float)) and (key := _detail_name(name)):
            found[key] = plain
            if len(found) == MOST_DETAILS:
                break
    return found


@lru_cache(maxsize=1_024)
def _detail_name(name: object) -> str:
    """Return the event attribute name for a metric's additional value *name*, or "" if *name* is unsuitable."""
    return semconv.eval_detail(name) if isinstance(name, str) and _NAME.fullmatch(name) else ""


def _plain(value: object) -> Detail | None:
    if isinstance(value, (bool, int, float)):
        return value if isinstance(value, bool) else _number(value)
    if isinstance(value, str):
        return encodable(value[:MOST_CHARS])
    if not isinstance(value, (tuple, list)):
        return None
    return _of_one_type(tuple(cast("tuple[object, ...]", value)[:MOST_ITEMS]))


def _number(value: object) -> int | float | None:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) and -_INT64 <= value < _INT64 else None


def _of_one_type(values: tuple[object, ...]) -> tuple[str, ...] | tuple[float, ...] | None:
    """Return *values* as a tuple of one type (text or number), as OTLP requires, or None if the types differ."""
    texts = tuple(encodable(value[:MOST_CHARS]) for value in values if isinstance(value, str))
    if len(texts) == len(values):
        return texts
    numbers = tuple(float(number) for value in values if (number := _number(value)) is not None)
    return numbers if len(numbers) == len(values) else None

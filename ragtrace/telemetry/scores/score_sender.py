"""Sending of a call's scores to its root span or an extra span (a carrier), and to events, metrics and observers.

A carrier is a span of its own, linked to the root span, for scores whose root span was exported at once or that came
too late for it. It is never a late child: backends would add its lateness to the latency of the trace.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, cast

from opentelemetry.context import Context, set_value
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, set_span_in_context

from ragtrace.core import semconv
from ragtrace.core.contents import without_contents
from ragtrace.core.labels import Claim
from ragtrace.core.score_id import score_id_of_result
from ragtrace.core.tags import tag_attributes
from ragtrace.core.text import encodable
from ragtrace.core.types import CALIBRATION, Evaluation, JudgedTexts, RagCall, Result, Score, Unscored
from ragtrace.system.context import ROUTE_KEY
from ragtrace.system.faults import faults, guarded
from ragtrace.telemetry.scores.event import (
    calibration_of,
    emit_events,
    emit_guard_event,
    guard_verdict,
    statements_json,
)
from ragtrace.telemetry.spans.hold import HoldProcessor, hold_processors
from ragtrace.telemetry.spans.writer import fit_to_limit, restore_attributes

if TYPE_CHECKING:
    from opentelemetry._logs import Logger
    from opentelemetry.trace import Tracer

    from ragtrace.core.step import GuardVerdict, Step, StepGuard
    from ragtrace.core.types import Observer, SamplingDecision
    from ragtrace.telemetry.scores.instruments import Instruments

    GuardObserver: TypeAlias = Callable[[RagCall, GuardVerdict], None]

Attributes = dict[str, "str | bool | int | float"]
ANNOTATORS: Final[Mapping[str, Literal["LLM", "CODE", "HUMAN"]]] = {
    "llm_judge": "LLM", "decision": "LLM", "human": "HUMAN"
}  # fmt: skip
"""Kind of annotator in OpenInference by type of judge; any other type is "CODE"."""
_EVIDENCE_CHARS: Final = 16_000
_CLAIM_CHARS: Final = 500
_MOST_WAITS: Final = 100
_SUSPECTED: Final = "injection_suspected"
# The API takes an empty Context, which is falsy, for the current one: a root needs one with something in it.
_ROOT: Final = Context({"ragtrace-carrier": True})


class ScoreWait(NamedTuple):
    """How long after the end of a call, whose span was held, the scores of the judge were there."""

    seconds: float
    longest_hold: float
    """Seconds for which the span would have waited."""
    is_late: bool
    """Whether the span had left without the scores, as its time was over."""


class ScoreSender:
    """Sender of a call's scores to spans, events, metrics and observers.

    A failure of one does not keep the scores from the others.

    Args:
        carriers: makes carrier spans (extra spans with late scores); None: there are none.
        logger: takes evaluation events; None: there are none.
        instruments: take the metrics.
        evidence: whether unsupported claims are quoted on spans.
        texts: whether texts of calls may be shown with their spans.
        hides_contents: whether no text of a call may leave the process.
        observers: observers of scored calls. Those with `Part.sees_early_scores` see a call twice: with the cheap
            evaluators' scores, and later the judge's.
        guard_observers: called with the verdicts of guards, after the observers have seen the call.
        owned: whether the tracer provider is ragtrace's own.
    """

    def __init__(
        self,
        carriers: Tracer | None,
        logger: Logger | None,
        instruments: Instruments,
        *,
        evidence: bool,
        texts: bool = False,
        hides_contents: bool = False,
        observers: Sequence[Observer] = (),
        guard_observers: Sequence[GuardObserver] = (),
        owned: bool = False,
    ) -> None:
        self._carriers, self._logger, self._instruments, self._evidence = carriers, logger, instruments, evidence
        self._owned, self._texts, self._hides_contents = owned, texts, hides_contents
        self._observers, self._guard_observers = tuple(observers), tuple(guard_observers)
        self._early = frozenset(id(each) for each in observers if getattr(each, "sees_early_scores", False))
        self.judge_waits: deque[ScoreWait] = deque(maxlen=_MOST_WAITS)
        """How long the latest calls that the judge scored waited for their scores."""

    def request_hold(self, root: Step) -> list[HoldProcessor]:
        """Ask every `HoldProcessor` to delay the export of a RAG call's root span.

        Return the processors that were asked.
        """
        context = root.span_context
        asked = hold_processors() if context is not None and context.trace_flags.sampled else []
        for hold in asked:
            hold.hold_on_end(_span_id(root))
        return asked

    def find_holder(self, root: Step, asked: Sequence[HoldProcessor]) -> HoldProcessor | None:
        """Return the `HoldProcessor` that keeps an ended root span back from export, or None.

        Args:
            asked: the processors that `request_hold` returned.
        """
        holding = [hold for hold in asked if hold.check_held(_span_id(root))]
        return holding[0] if holding else None

    def send_early_scores(
        self,
        root: Step,
        call: RagCall,
        evaluations: Sequence[Evaluation],
        hold: HoldProcessor | None,
        decision: SamplingDecision | None,
    ) -> int:
        """Send the early scores of a RAG call, before the judge is asked.

        They come from the evaluators that see every call, and go to events, metrics and observers.

        *hold* notes them, too: it exports the call's span with them if the judge takes too long.

        Returns:
            How many of *evaluations* `send` must not emit again.
        """
        target = root.span_context
        if target is None or not evaluations:
            return 0
        evaluations = self._allowed(evaluations)
        if hold is not None:
            shown = self._allowed_on_spans(evaluations)
            hold.set_interim_scores(target.span_id, score_attributes(shown, call, evidence=self._evidence))
        self._notify([each for each in self._observers if id(each) in self._early], call, evaluations, decision)
        for evaluation in evaluations:
            self._emit(root, call, evaluation, target)
        return len(evaluations)

    def send(
        self,
        root: Step,
        call: RagCall,
        evaluations: Sequence[Evaluation],
        hold: HoldProcessor | None,
        status: str | None = None,
        decision: SamplingDecision | None = None,
        n_sent_early: int = 0,
        *,
        reason: str = "",
    ) -> None:
        """Send the scores of *call* to events, metrics and observers, and to the call's root span or else an extra
        span.

        Args:
            hold: the processor that keeps the ended root span back from export; None: the span was exported at once.
            status: overrides the status that follows from *evaluations*.
            decision: whether the judge was asked; the span of a call without evaluations says why it was not.
            n_sent_early: how many of *evaluations* `send_early_scores` has sent.
            reason: why an evaluator did not see the call, for the span.
        """
        evaluations = self._allowed(evaluations)
        for observer in self._observers:
            news = evaluations[n_sent_early:] if id(observer) in self._early else evaluations
            if news or not n_sent_early:
                self._notify([observer], call, news, decision)
        target, guard = root.span_context, root.guard
        shown = self._allowed_on_spans(evaluations)
        scores = score_attributes(shown, call, evidence=self._evidence)
        if guard is not None:
            guard.close(reason)
            scores |= guard.attributes()
            self._notify_of_guard(guard, call)
        if status is not None:
            scores[semconv.EVAL_STATUS] = status
        if decision is not None and not decision.included and not evaluations:
            scores[semconv.EVAL_PROBABILITY], scores[semconv.REASON] = decision.probability, decision.reason
        if reason:
            scores[semconv.REASON] = reason
        if target is None:
            return
        n_contexts = None if call.contexts is None else len(call.contexts)
        texts = JudgedTexts(call.query, call.answer, n_contexts) if self._texts else None
        released = hold is not None and hold.release(target.span_id, scores, texts)
        # The judge's evaluation is the last one, unless a full queue has kept the call from it.
        judged = decision is not None and decision.included and not reason and evaluations
        if hold is not None and judged and status in (None, semconv.STATUS_OK, semconv.STATUS_PARTIAL):
            seconds = (time_ns() - root.end_ns) / 1e9
            late = not released and seconds > hold.seconds  # else a flush has let the span go
            if evaluations[-1].outcome[0] != "failed":
                self.judge_waits.append(ScoreWait(seconds, hold.seconds, late))
        for evaluation in evaluations[n_sent_early:]:
            self._emit(root, call, evaluation, target)
        if guard is not None and self._logger is not None:
            with guarded("guard events"):
                emit_guard_event(self._logger, guard, call, _context_of(target, call))
        if evaluations and not released and target.trace_flags.sampled and self._carriers is not None:
            if not self._owned and not hold_processors():
                faults.log_once(
                    "scores on spans of their own",
                    "the scores of calls go onto spans of their own ('evaluate ...', linked to the call's root span), "
                    "as nothing holds the root spans back in your tracer provider; to have them on the call itself, "
                    "wrap the processor that exports: "
                    "provider.add_span_processor(ragtrace.HoldProcessor(BatchSpanProcessor(exporter)))",
                )
            with guarded("carrier span"):
                _send_carrier(self._carriers, target, call, shown, scores)

    def release_with_status(self, root: Step, status: str, reason: str = "") -> None:
        """Export the kept-back root span *root* with *status* in place of scores, because no scores will come.

        *reason* says why, where the status does not.
        """
        for hold in hold_processors():
            hold.release_with_status(_span_id(root), status, reason)

    def _allowed(self, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Return *evaluations* with what may leave: every span, event, metric and observer gets them from here."""
        return [without_contents(each) for each in evaluations] if self._hides_contents else evaluations

    def _allowed_on_spans(self, evaluations: Sequence[Evaluation]) -> Sequence[Evaluation]:
        """Return *evaluations* with what may be on spans, which hold no texts if those are on events alone."""
        is_done = self._texts or self._hides_contents
        return evaluations if is_done else [without_contents(each) for each in evaluations]

    def _notify(
        self,
        observers: Sequence[Observer],
        call: RagCall,
        evaluations: Sequence[Evaluation],
        decision: SamplingDecision | None,
    ) -> None:
        for observer in observers:
            with guarded("an observer of calls"):
                observer(call, evaluations, decision)

    def _notify_of_guard(self, guard: StepGuard, call: RagCall) -> None:
        for observer in self._guard_observers:
            with guarded("an observer of guards"):
                observer(call, guard_verdict(guard))

    def _emit(self, root: Step, call: RagCall, evaluation: Evaluation, target: SpanContext) -> None:
        context = _context_of(target, call)
        with guarded("metrics"):
            self._instruments.record_evaluation(evaluation, call, context)
        if self._logger is not None:
            with guarded("evaluation events"):
                emit_events(self._logger, evaluation, call, root.response_id, context)


def _context_of(target: SpanContext, call: RagCall) -> Context:
    """Return a context in which the span *target* of *call* is current, and which says where its telemetry goes."""
    return _with_route(set_span_in_context(NonRecordingSpan(target)), call)


def _with_route(context: Context, call: RagCall) -> Context:
    return set_value(ROUTE_KEY, call.route, context) if call.route else context


def _span_id(root: Step) -> int:
    context = root.span_context
    return 0 if context is None else context.span_id


def _send_carrier(
    tracer: Tracer, target: SpanContext, call: RagCall, evaluations: Sequence[Evaluation], scores: Attributes
) -> None:
    """Export the scores of the span *target* on an extra span (a carrier), unless the head sampler drops it."""
    first: Attributes = {semconv.OPERATION_NAME: semconv.OPERATION_EVALUATION, semconv.OI_KIND: semconv.OI_EVALUATOR}
    name = f"{semconv.CARRIER_OPERATION} {call.workflow}" if call.workflow else semconv.CARRIER_OPERATION
    context = _with_route(_ROOT, call)
    span = tracer.start_span(name, context=context, kind=SpanKind.INTERNAL, links=[Link(target)], attributes=first)
    if span.is_recording():
        # The scores last: beyond the span's limit of attributes, the SDK keeps those that were set last.
        tokens = {
            semconv.USAGE_INPUT_TOKENS: sum(evaluation.input_tokens for evaluation in evaluations),
            semconv.USAGE_OUTPUT_TOKENS: sum(evaluation.output_tokens for evaluation in evaluations),
        }
        tokens = {key: total for key, total in tokens.items() if total}
        attributes: Attributes = {**_openinference_scores(target, evaluations), **tokens, **scores}
        fit_to_limit(attributes, span)
        span.set_attributes(attributes)
        restore_attributes(span, first)
    else:
        faults.warn_once(
            "span with the scores dropped by the head sampler",
            "scores came after their span was exported (no HoldProcessor), and the head sampler dropped the extra span "
            "with the scores; they are in events and metrics only. Wrap the exporting processor: "
            "provider.add_span_processor(ragtrace.HoldProcessor(BatchSpanProcessor(...)))",
        )
    span.end()


def _openinference_scores(target: SpanContext, evaluations: Sequence[Evaluation]) -> Attributes:
    attributes: Attributes = {}
    chosen = prevailing_results(evaluations).items()
    scores = [(name, result, evaluation) for name, (evaluation, result) in chosen if isinstance(result, Score)]
    for index, (name, result, evaluation) in enumerate(scores):
        metadata = {
            "evaluator": _identity(evaluation),
            "probability": evaluation.probability,
            "metric_version": result.metric_version,
        }
        if (calibration := calibration_of(result)) is not None:
            metadata[CALIBRATION] = calibration
        parts: dict[str, str | float | None] = {
            "name": name,
            "score": result.value,
            "label": result.label,
            "explanation": result.explanation,
            "annotator_kind": ANNOTATORS.get(evaluation.type, "CODE"),
            "identifier": score_id_of_result(target, name, result, evaluation),
            "metadata": json.dumps(metadata),
        }
        attributes |= {semconv.oi_evaluation(index, part): value for part, value in parts.items() if value is not None}
    return attributes


# --- the scores of a call as attributes of its root span --------------------------------------------------------------


def evaluation_status(evaluations: Sequence[Evaluation]) -> str:
    """Return the evaluation status of a call: `ok`, `partial`, `error`, or `not_sampled` without *evaluations*."""
    outcomes = {evaluation.outcome[0] for evaluation in evaluations}
    if not outcomes:
        return semconv.STATUS_NOT_SAMPLED
    if outcomes == {"scored"}:
        return semconv.STATUS_OK
    return semconv.STATUS_ERROR if outcomes == {"failed"} else semconv.STATUS_PARTIAL


def prevailing_results(evaluations: Sequence[Evaluation]) -> dict[str, tuple[Evaluation, Result]]:
    """Choose the result to show for each metric, where several evaluators have given one.

    Args:
        evaluations: in rising order of authority: where two give a metric, it is the later one's, except that the
            cheap evaluator's score stays where the judge failed.
    """
    chosen: dict[str, tuple[Evaluation, Result]] = {}
    for evaluation in evaluations:
        for name, result in evaluation.results.items():
            failed = isinstance(result, Unscored) and result.status != "not_applicable"
            if name not in chosen or not (failed and isinstance(chosen[name][1], Score)):
                chosen[name] = evaluation, result
    return chosen


def score_attributes(evaluations: Sequence[Evaluation], call: RagCall, *, evidence: bool) -> Attributes:
    """Return all scores of a call as attributes for its root span.

    Args:
        evaluations: in rising order of authority; see `prevailing_results`. `ragtrace.eval.evaluator` and
            `ragtrace.eval.probability` are those of the last one that did not fail, and a metric of another one
            names its own evaluator.
        call: the call, redacted.
        evidence: whether to quote the unsupported claims.
    """
    attributes: Attributes = {semconv.EVAL_STATUS: evaluation_status(evaluations)}
    if call.tags:
        attributes.update(tag_attributes(call.tags))
    if call.context_source:
        attributes[semconv.CONTEXT_SOURCE] = call.context_source
    last = next(
        (e for e in reversed(evaluations) if e.outcome[0] != "failed"), evaluations[-1] if evaluations else None
    )
    if last is not None:
        attributes[semconv.EVAL_PROBABILITY] = last.probability
        attributes[semconv.EVAL_EVALUATOR] = _identity(last)
    chosen = prevailing_results(evaluations)
    for name, (evaluation, result) in chosen.items():
        if isinstance(result, Score):
            attributes[semconv.eval_score(name)] = result.value
            if result.label is not None:
                attributes[semconv.eval_label(name)] = result.label
            if (calibration := calibration_of(result)) is not None:
                attributes[semconv.eval_calibration(name)] = calibration
        else:
            attributes[semconv.eval_reason(name)] = result.reason
        if evaluation is not last:
            attributes[semconv.eval_evaluator(name)] = _identity(evaluation)
        published = cast("object", result.attributes)  # a user's judge may return anything
        if isinstance(published, Mapping) and cast("Mapping[str, object]", published).get(_SUSPECTED) is True:
            attributes[semconv.EVAL_INJECTION_SUSPECTED] = True
    unsupported = unsupported_json([result for _, result in chosen.values()], call) if evidence else None
    if unsupported is not None:
        attributes[semconv.EVAL_UNSUPPORTED] = unsupported
    shown = statements_json(result for _, result in chosen.values())
    if shown is not None:
        attributes[semconv.EVAL_STATEMENTS] = shown
    return attributes


def _identity(evaluation: Evaluation) -> str:
    return f"{evaluation.evaluator}@{evaluation.version}"


def unsupported_json(results: Iterable[Result], call: RagCall) -> str | None:
    """Return the unsupported claims of an answer as JSON, worst first.

    Return None if no metric has claims. The list has a limited length.

    Items: text, start, end (offsets in the answer), support, score, probability, unsupported (ranges), chunks (ranks
    from 0), quote.
    """
    claims = next((result.claims for result in results if isinstance(result, Score) and result.claims), None)
    if claims is None:
        return None
    bad = [claim for claim in claims if claim.checkable and claim.support not in ("supported", None)]
    bad.sort(key=lambda claim: (_support_of(claim), claim.start))
    items: list[str] = []
    used = 0
    for claim in bad:
        kept = {name: getattr(claim, name) for name in ("start", "end", "support", "unsupported")}
        record: dict[str, object] = {"text": claim.text[:_CLAIM_CHARS], **kept, "chunks": claim.evidence}
        if claim.score is not None:
            record["score"] = claim.score
        if claim.probability is not None:
            record["probability"] = claim.probability
        if claim.quote is not None:
            record["quote"] = claim.quote[:_CLAIM_CHARS]
        item = json.dumps(record, ensure_ascii=False)
        used += len(item)
        if used > _EVIDENCE_CHARS:
            items.append(json.dumps({"left_out": len(bad) - len(items)}))
            break
        items.append(item)
    return encodable("[" + ",".join(items) + "]")  # a judge's texts may hold lone surrogates


def _support_of(claim: Claim) -> float:
    """Return the degree, or else the probability, to which the chunks support *claim*; 0 where neither is known."""
    known = claim.score if claim.score is not None else claim.probability
    return 0.0 if known is None else known

"""Puts the scores of a call onto telemetry: the held span, events, metrics, and a carrier where the span is gone."""

from __future__ import annotations

from collections.abc import Sequence
from time import time_ns
from typing import TYPE_CHECKING

from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context

from ragtrace.core import semconv
from ragtrace.core.types import Evaluation, RagCall
from ragtrace.dialects.score_attributes import Attributes, score_attributes
from ragtrace.system.faults import faults, guarded
from ragtrace.telemetry.scores.carrier import send_carrier
from ragtrace.telemetry.scores.event import emit_events
from ragtrace.telemetry.spans.hold import HoldProcessor, holds

if TYPE_CHECKING:
    from opentelemetry._logs import Logger
    from opentelemetry.trace import Tracer

    from ragtrace.core.step import Step
    from ragtrace.core.types import Observer as Watcher
    from ragtrace.core.types import SamplingDecision
    from ragtrace.estimates import Observer
    from ragtrace.telemetry.scores.instruments import Instruments


class Attacher:
    """Attaches scores; each form on its own, so that a failure of one leaves the others."""

    def __init__(
        self,
        carriers: Tracer | None,
        logger: Logger | None,
        instruments: Instruments,
        *,
        evidence: bool,
        observer: Observer,
        keepers: Sequence[Watcher] = (),
        watchers: Sequence[Watcher] = (),
        early: Sequence[Watcher] = (),
        owned: bool = False,
    ) -> None:
        self._carriers, self._logger, self._instruments, self._evidence = carriers, logger, instruments, evidence
        self._owned = owned
        self._observer, self._keepers, self._watchers = observer, tuple(keepers), tuple(watchers)
        self._early = frozenset(map(id, early))
        """Of these, the ones that may see a call twice: with the screen's scores, and later with the judge's."""

    def expect(self, root: Step) -> list[HoldProcessor]:
        """Announce that the span of *root* is about to end; returns the processors told."""
        context = root.span_context
        told = holds() if context is not None and context.trace_flags.sampled else []
        for hold in told:
            hold.expect(_span_id(root))
        return told

    def confirm(self, root: Step, told: Sequence[HoldProcessor]) -> HoldProcessor | None:
        """After the span has ended: the processor that holds it, if any does."""
        holding = [hold for hold in told if hold.forget(_span_id(root))]
        return holding[0] if holding else None

    def attach_screened(
        self,
        root: Step,
        call: RagCall,
        evaluations: Sequence[Evaluation],
        hold: HoldProcessor | None,
        decision: SamplingDecision | None,
    ) -> int:
        """Attach what is known before the judge is asked, which may take long: events, metrics, history and alerts.

        The span goes out with it, too, if the judge is too late for *hold*.

        Returns:
            How many of *evaluations* `attach` need not announce again.
        """
        target = root.span_context
        if target is None or not evaluations:
            return 0
        if hold is not None:
            hold.note(target.span_id, score_attributes(evaluations, call, evidence=self._evidence))
        self._tell([each for each in self._observers if id(each) in self._early], call, evaluations, decision)
        for evaluation in evaluations:
            self._announce(root, call, evaluation, target)
        return len(evaluations)

    @property
    def _observers(self) -> tuple[Watcher, ...]:
        return (*self._keepers, *self._watchers)

    def attach(
        self,
        root: Step,
        call: RagCall,
        evaluations: Sequence[Evaluation],
        hold: HoldProcessor | None,
        status: str | None = None,
        decision: SamplingDecision | None = None,
        announced: int = 0,
        *,
        reason: str = "",
    ) -> None:
        """Attach everything known about *call* to its root's span, held by *hold* if it is not None.

        Args:
            announced: how many of *evaluations* `attach_screened` has dealt with.
            status: overrides the status that follows from *evaluations*.
            decision: about the judge; on the span of a call that nobody evaluated, it says why.
            reason: why an evaluator did not see the call; goes on the span.
        """
        with guarded("estimates"):
            self._observer.observe(call, evaluations, None if decision is None else decision.reason)
        for watcher in self._observers:
            if not announced or id(watcher) not in self._early:
                self._tell([watcher], call, evaluations, decision)
            elif evaluations[announced:]:
                self._tell([watcher], call, evaluations[announced:], decision)
        target = root.span_context
        scores = score_attributes(evaluations, call, evidence=self._evidence)
        if status is not None:
            scores[semconv.EVAL_STATUS] = status
        if decision is not None and not decision.included and not evaluations:
            scores[semconv.EVAL_PROBABILITY], scores[semconv.REASON] = decision.probability, decision.reason
        if reason:
            scores[semconv.REASON] = reason
        released = False
        if hold is not None and target is not None:
            released = hold.release(target.span_id, scores)
        if target is None:
            return
        for evaluation in evaluations[announced:]:
            self._announce(root, call, evaluation, target)
        if evaluations and not released and target.trace_flags.sampled and self._carriers is not None:
            if not self._owned and not holds():
                faults.tell_once(
                    "scores on spans of their own",
                    "the scores of calls go onto spans of their own ('evaluate ...', linked to the call's root span), "
                    "as nothing holds the root spans back in your tracer provider; to have them on the call itself, "
                    "wrap the processor that exports: "
                    "provider.add_span_processor(ragtrace.HoldProcessor(BatchSpanProcessor(exporter)))",
                )
            self._carry(self._carriers, target, call, evaluations, scores)

    def give_up(self, root: Step, status: str) -> None:
        """Nobody is going to attach anything any more: a span that is held for it goes out with *status*."""
        for hold in holds():
            hold.give_up(_span_id(root), status)

    def _tell(
        self,
        watchers: Sequence[Watcher],
        call: RagCall,
        evaluations: Sequence[Evaluation],
        decision: SamplingDecision | None,
    ) -> None:
        for watcher in watchers:
            with guarded("an observer of calls"):
                watcher(call, evaluations, decision)

    def _carry(
        self, tracer: Tracer, target: SpanContext, call: RagCall, evaluations: Sequence[Evaluation], scores: Attributes
    ) -> None:
        with guarded("carrier span"):
            if not send_carrier(tracer, target, call, evaluations, scores):
                faults.warn_once(
                    "carrier span dropped by the head sampler",
                    "scores could not be put on their span (nothing held it) and the head sampler dropped the span "
                    "that was to carry them; they are in events and metrics only. Wrap the exporting processor: "
                    "provider.add_span_processor(ragtrace.HoldProcessor(BatchSpanProcessor(...)))",
                )

    def _announce(self, root: Step, call: RagCall, evaluation: Evaluation, target: SpanContext) -> None:
        context = set_span_in_context(NonRecordingSpan(target))
        with guarded("metrics"):
            self._instruments.evaluation(evaluation, call, context)
        if self._logger is not None:
            with guarded("evaluation events"):
                emit_events(self._logger, evaluation, call, root.response_id, context, time_ns)


def _span_id(root: Step) -> int:
    context = root.span_context
    return 0 if context is None else context.span_id

"""Counting of the outcomes of RAG calls, each of which has one outcome at each evaluator."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping

from ragtrace.capture.redact import Redact, redact_evaluation
from ragtrace.core.ledger import Ledger, Outcome
from ragtrace.core.types import Evaluation
from ragtrace.estimates.calibration import Calibrations
from ragtrace.pipeline.call_ends import CallEnd
from ragtrace.pipeline.health import MOST_OUTCOMES, RecentOutcomes, failure_detail, unscored_metrics
from ragtrace.pipeline.work_items import CallItem


class CallOutcomes:
    """Counter of the outcomes of RAG calls, in the ledger and among the recent outcomes that `ragtrace.doctor()` shows.

    Safe from any thread: the worker's thread and a shutdown may count outcomes of the same call. The set
    `CallItem.pending_evaluators` decides between them: the thread that removes an evaluator from it counts the outcome
    there.

    Args:
        ledger: the exact counts, with a lock of its own.
        recent: the latest outcomes.
        redact: rules for the texts of evaluations.
        calibrations: give scores their calibrated probabilities.
    """

    def __init__(self, ledger: Ledger, recent: RecentOutcomes, redact: Redact, calibrations: Calibrations) -> None:
        self._ledger, self._recent, self._redact, self._calibrations = ledger, recent, redact, calibrations
        self._has_rules = redact.has_rules

    def count_offered(self, evaluators: Collection[str], workflow: str) -> bool:
        """Count a RAG call from elsewhere as offered to each of *evaluators*, and as pending there.

        Return False if a shutdown has closed the ledger: the call is not offered then, and must get no outcome.
        """
        return self._ledger.count_offered(evaluators, workflow)

    def count_pending(self, work: CallItem, outcome: Outcome, reason: str = "") -> None:
        """Count *outcome* as the outcome of a RAG call for every evaluator that has not finished the call."""
        for evaluator in list(work.pending_evaluators):
            self.count(work, evaluator, outcome, reason)

    def count(
        self,
        work: CallItem,
        evaluator: str,
        outcome: Outcome,
        reason: str = "",
        *,
        probability: float | None = None,
        detail: str = "",
    ) -> bool:
        """Count a RAG call's outcome at one evaluator, and return False if an outcome was counted before.

        Later outcomes are ignored.
        """
        step = work.step
        # A shutdown may enter outcomes of calls that the worker is still scoring.
        if not self._ledger.count_finished_once(work.pending_evaluators, evaluator, step.workflow, outcome, reason):
            return False
        self._recent.add(step.span_context, step.workflow, evaluator, outcome, reason, probability, detail)
        return True

    def count_evaluation(self, work: CallItem, evaluation: Evaluation, evaluations: list[Evaluation]) -> Evaluation:
        """Count a finished evaluation in the ledger, append it to *evaluations*, and return it as it was appended.

        Count and append nothing if a shutdown has counted the call as dropped or spooled meanwhile.
        """
        if self._has_rules:  # redacted before it is counted, as `ragtrace.doctor()` shows the error messages
            evaluation = redact_evaluation(evaluation, self._redact)
        evaluation = self._calibrations.calibrate(evaluation)
        outcome, reason = evaluation.outcome
        probability = evaluation.probability
        detail = failure_detail(evaluation) if reason else unscored_metrics(evaluation)
        if self.count(work, evaluation.evaluator, outcome, reason, probability=probability, detail=detail):
            evaluations.append(evaluation)
        return evaluation

    def count_claimed(self, claimed: Mapping[CallItem, tuple[str, ...]], ends: Mapping[CallItem, CallEnd]) -> None:
        """Count the outcomes of many RAG calls at evaluators that the caller has claimed.

        Args:
            claimed: the calls, each with the ids of the evaluators that the caller has taken out of
                `pending_evaluators`.
            ends: end of each of the calls.
        """
        counts: Counter[tuple[str, str, Outcome, str]] = Counter()
        last: deque[CallItem] = deque(maxlen=MOST_OUTCOMES)
        for work, names in claimed.items():
            counts.update((name, work.step.workflow, ends[work].outcome, ends[work].reason) for name in names)
            last.append(work)
        # One entry for all calls with the same workflow and outcome, as there may be thousands, and little time.
        for (name, workflow, outcome, reason), calls in counts.items():
            self._ledger.count_finished(name, workflow, outcome, reason, calls=calls)
        for work in last:
            for name in claimed[work]:
                self._recent.add(
                    work.step.span_context, work.step.workflow, name, ends[work].outcome, ends[work].reason
                )

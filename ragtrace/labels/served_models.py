"""Record of the models that answer judge requests, as named by the judge's server, with a report of each change."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from time import time_ns
from typing import TYPE_CHECKING

from opentelemetry._logs import SeverityNumber

from ragtrace.core import semconv
from ragtrace.core.part import ObservableMetric, Part, Point
from ragtrace.core.types import Evaluation, RagCall
from ragtrace.system.faults import guarded, log_safely

if TYPE_CHECKING:
    from opentelemetry._logs import Logger


class ServedModels(Part):
    """Observer of evaluations that records which models answer the judges' requests.

    A server may send requests to several configurations of a model by turns: a change is a model or fingerprint that
    has not answered this judge before, in this process.

    Args:
        logger: gets an event for each change; None: there are no events.
    """

    def __init__(self, logger: Logger | None) -> None:
        self._logger = logger
        self._known: dict[str, dict[str, None]] = {}
        self._changes: Counter[str] = Counter()

    def __call__(self, call: RagCall, evaluations: Sequence[Evaluation], decision: object) -> None:
        """Record the models that answered the judge requests for the evaluations of one RAG call."""
        for evaluation in evaluations:
            self.note(evaluation)

    def note(self, evaluation: Evaluation) -> None:
        """Record the model that answered a judge request, and report a change of the model."""
        served = evaluation.served_model
        if not served or evaluation.cached:
            return
        known = self._known.setdefault(f"{evaluation.evaluator}@{evaluation.version}", {})
        if served in known:
            return
        previous = next(reversed(known), None)
        # Most models that are kept for one judge; further ones are counted, but no event reports them.
        if len(known) < 50:
            known[served] = None
        if previous is not None:
            self._changes[evaluation.evaluator] += 1
            if served in known:
                self._report(evaluation, previous)

    def _report(self, evaluation: Evaluation, previous: str) -> None:
        log_safely(
            logging.WARNING,
            "the model that answers judge %s is %s now, and was %s before: scores from before and after may differ for "
            "that reason; canaries and ragtrace calibrate show whether they do",
            evaluation.evaluator,
            evaluation.served_model,
            previous,
        )
        if self._logger is None:
            return
        with guarded("event of a changed model"):
            self._logger.emit(
                timestamp=time_ns(),
                severity_number=SeverityNumber.WARN,
                event_name=semconv.EVENT_MODEL_CHANGE,
                attributes={
                    semconv.EVALUATOR_ID: evaluation.evaluator,
                    semconv.EVALUATOR_VERSION: evaluation.version,
                    semconv.RESPONSE_MODEL: evaluation.served_model,
                    semconv.PREVIOUS_MODEL: previous,
                },
            )

    def of(self, evaluator: str) -> tuple[str, ...]:
        """Return the models that have answered requests of the judge *evaluator* (id@version), in the order of their
        first answer.

        Each is the model's name, with its fingerprint behind it where the server sends one.
        """
        return tuple(self._known.get(evaluator, {}).copy())

    def observations(self) -> Iterator[ObservableMetric]:
        """Return the metric of the changes: how often a new model has answered in place of an earlier one."""
        about = "Times that another model answered a judge than before, also without canaries"
        yield ObservableMetric(semconv.METRIC_MODEL_CHANGES, "counter", "{change}", about, self._points)

    def _points(self) -> Iterator[Point]:
        return ((count, {semconv.EVALUATOR_ID: evaluator}) for evaluator, count in self.changes().items())

    def changes(self) -> Mapping[str, int]:
        """Return for each judge id how often a new model has answered in place of an earlier one."""
        return self._changes.copy()

"""Metric instruments of ragtrace: scores, cost of judging, durations, and counts observed at each collection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry.metrics import NoOpMeter

from ragtrace.core import semconv
from ragtrace.core.feedback import HUMAN, Feedback
from ragtrace.core.part import ObservableMetric
from ragtrace.core.settings import GenAIMetrics
from ragtrace.core.step import NO_USAGE, Step, StepKind
from ragtrace.core.types import Evaluation, RagCall, Score
from ragtrace.dialects.otel_genai import OPERATIONS, provider_of
from ragtrace.telemetry.export.observed_metrics import ObservedMetrics

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Histogram, Meter

_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Histogram bounds, in seconds, that the GenAI conventions recommend for durations."""
_WORKFLOW_SECONDS = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
"""Histogram bounds, in seconds, for the duration of a workflow, as in opentelemetry-util-genai 1.3b0."""
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""Histogram bounds that the GenAI conventions recommend for token counts."""


class Instruments:
    """All metric instruments of ragtrace, which may be used from any thread.

    Args:
        meter: returns the meter that makes the instruments.
        observations: returns the metrics of all parts of the runtime, which are read when metrics are collected: all
            values of one metric are then of one moment.
        attributes: returns further attributes of the metrics of a call's scores.
        observed: takes these metrics, together with those of other runtimes in the same meter provider.
        genai_metrics: version of the GenAI conventions from which the metrics of inferences take their names.
    """

    def __init__(
        self,
        meter: Callable[[], Meter],
        observations: Callable[[], Iterable[ObservableMetric]],
        *,
        attributes: Callable[[RagCall], Mapping[str, str]] = lambda _: {},
        observed: ObservedMetrics | None = None,
        genai_metrics: GenAIMetrics = "released",
    ) -> None:
        self._observations, self._find_meter, self._attributes = observations, meter, attributes
        self._released, self._latest = genai_metrics != "latest", genai_metrics != "released"
        self._observed = ObservedMetrics() if observed is None else observed
        self._opening, self._is_open = threading.RLock(), False  # re-entrant, for finalizers that record

    def open(self) -> None:
        """Create all instruments, unless that has been done. Without it, the first record creates them."""
        if not self._is_open:
            with self._opening:
                if not self._is_open:
                    self._create(self._find_meter())
                    self._is_open = True

    def _create(self, meter: Meter) -> None:
        self._silent = isinstance(meter, NoOpMeter)
        s = semconv

        def histogram(name: str, unit: str, description: str, bounds: Sequence[float]) -> Histogram:
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=bounds)

        self._score = histogram(s.METRIC_SCORE, "1", "Scores of live calls", s.SCORE_BOUNDS)
        self._results = meter.create_counter(s.METRIC_RESULTS, "{result}", "Scored results by label")
        self._judge_duration = histogram(s.METRIC_JUDGE_DURATION, "s", "Time to judge a call", _SECONDS)
        self._judge_tokens = meter.create_counter(s.METRIC_JUDGE_TOKENS, "{token}", "Tokens used by judges")
        about = "Input tokens used by judges to read earlier turns of a conversation, estimated"
        self._judge_turn_tokens = meter.create_counter(s.METRIC_JUDGE_TURN_TOKENS, "{token}", about)
        self._judge_cost = meter.create_counter(s.METRIC_JUDGE_COST, "USD", "Money spent on judges")
        about = "Time for which a guard held answers back, or would have in shadow mode"
        self._guard_added = histogram(s.METRIC_GUARD_ADDED, "s", about, _SECONDS)
        operation = histogram(s.METRIC_OPERATION_DURATION, "s", "GenAI operation duration", _SECONDS)
        workflow = histogram(s.METRIC_WORKFLOW_DURATION, "s", "Workflow duration", _WORKFLOW_SECONDS)
        inference: list[Histogram] = []
        self._token_usage: Histogram | None = None
        self._first_chunk: dict[StepKind, list[Histogram]] = {"retrieve": [], "generate": [], "tool": []}
        self._tokens_by_type: dict[str, tuple[Counter, Histogram]] = {}
        if self._released:
            inference.append(operation)
            self._token_usage = histogram(s.METRIC_TOKEN_USAGE, "{token}", "Tokens used", _TOKENS)
            first_chunk = histogram(s.METRIC_TIME_TO_FIRST_CHUNK, "s", "Time to first chunk", _SECONDS)
            for found in self._first_chunk.values():
                found.append(first_chunk)
        if self._latest:
            inference.append(histogram(s.METRIC_INFERENCE_DURATION, "s", "GenAI inference duration", _SECONDS))
            about = "Time to first chunk of an inference"
            first_chunk = histogram(s.METRIC_INFERENCE_TIME_TO_FIRST_CHUNK, "s", about, _SECONDS)
            self._first_chunk["generate"].append(first_chunk)
            for kind, used, each in (
                (s.TOKEN_INPUT, s.METRIC_INPUT_TOKENS, s.METRIC_OPERATION_INPUT_TOKENS),
                (s.TOKEN_OUTPUT, s.METRIC_OUTPUT_TOKENS, s.METRIC_OPERATION_OUTPUT_TOKENS),
            ):
                self._tokens_by_type[kind] = (
                    meter.create_counter(used, "{token}", f"Number of {kind} tokens used"),
                    histogram(each, "{token}", f"Number of {kind} tokens of an inference", _TOKENS),
                )
        self._durations: dict[StepKind, list[Histogram]] = {
            "trace": [workflow], "retrieve": [operation], "generate": inference, "tool": [operation]
        }  # fmt: skip

        self._observed.add(self, self._observations(), meter)

    def close(self) -> None:
        """Keep the final values of the observable counters, for a meter provider that outlives the runtime."""
        self._observed.end(self)

    def record_evaluation(self, evaluation: Evaluation, call: RagCall, context: Context) -> None:
        """Record the scores of *evaluation*, with the scored span as exemplar, and the cost of judging."""
        self.open()
        evaluator = {semconv.EVALUATOR_ID: evaluation.evaluator, **self._attributes(call)}
        for name, result in evaluation.results.items():
            if not isinstance(result, Score):
                continue
            attributes = {semconv.EVALUATION_NAME: name, semconv.WORKFLOW_NAME: call.workflow, **evaluator}
            self._score.record(result.value, attributes, context=context)
            label = {semconv.EVALUATION_LABEL: result.label} if result.label else {}
            self._results.add(1, {**attributes, **label}, context=context)
        self.record_judging(evaluation, context)

    def record_judging(self, evaluation: Evaluation, context: Context) -> None:
        """Record duration, tokens and cost of *evaluation*, whether its scores are sent or not."""
        self.open()
        evaluator = {semconv.EVALUATOR_ID: evaluation.evaluator}
        judging: dict[str, str | bool] = {**evaluator}
        if evaluation.error:
            judging[semconv.ERROR_TYPE] = evaluation.error
        # A cache hit takes no time: counted as a judgement, it would make an idle judge look fast.
        if evaluation.cached:
            judging[semconv.CACHED] = True
        self._judge_duration.record(evaluation.duration_s, judging, context=context)
        tokens = {semconv.TOKEN_INPUT: evaluation.input_tokens, semconv.TOKEN_OUTPUT: evaluation.output_tokens}
        for kind, count in tokens.items():
            if count:
                self._judge_tokens.add(count, {**evaluator, semconv.TOKEN_TYPE: kind})
        if evaluation.turn_tokens:
            self._judge_turn_tokens.add(evaluation.turn_tokens, evaluator)
        if evaluation.cost_usd:
            self._judge_cost.add(evaluation.cost_usd, evaluator)

    def record_guard(self, seconds: float, workflow: str, metric: str, mode: str) -> None:
        """Record for how many *seconds* a guard held an answer back or, in shadow mode, would have held it back."""
        self.open()
        attributes = {semconv.WORKFLOW_NAME: workflow, semconv.EVALUATION_NAME: metric, semconv.GUARD_MODE: mode}
        self._guard_added.record(seconds, attributes)

    def record_feedback(self, feedback: Feedback, context: Context) -> None:
        """Record the score and the label of *feedback*, with the call's root span as exemplar."""
        self.open()
        attributes = {semconv.EVALUATION_NAME: feedback.name, semconv.EVALUATOR_ID: HUMAN}
        if feedback.score is not None:
            self._score.record(feedback.score, attributes, context=context)
        label = {semconv.EVALUATION_LABEL: feedback.label} if feedback.label else {}
        self._results.add(1, {**attributes, **label}, context=context)

    def record_step(self, step: Step) -> None:
        """Record duration, tokens and time to first chunk of a finished step, with its span as exemplar."""
        if not self._is_open:
            self.open()
        if self._silent or step.timing is None or step.context is None:
            return
        labels = _step_attributes(step)
        for duration in self._durations[step.kind]:
            duration.record(step.timing.duration_s, labels, step.context)
        if step.kind == "trace" or (step.timing.first_s is None and step.usage is NO_USAGE):
            return
        attributes = _operation_attributes(step)
        if step.timing.first_s is not None:
            for first_chunk in self._first_chunk[step.kind]:
                first_chunk.record(step.timing.first_s, attributes, step.context)
        counts = {semconv.TOKEN_INPUT: step.usage.input_tokens, semconv.TOKEN_OUTPUT: step.usage.output_tokens}
        for kind, count in counts.items():
            if count is not None:
                self._record_tokens(step, attributes, kind, count)

    def _record_tokens(self, step: Step, attributes: Mapping[str, str], kind: str, count: int) -> None:
        if self._token_usage is not None:
            self._token_usage.record(count, {**attributes, semconv.TOKEN_TYPE: kind}, step.context)
        if self._latest and step.kind == "generate":
            used, of_one = self._tokens_by_type[kind]
            used.add(count, {**attributes, semconv.TOKEN_MODALITY: semconv.MODALITY_UNKNOWN}, step.context)
            of_one.record(count, _step_attributes(step), step.context)


def _step_attributes(step: Step) -> dict[str, str]:
    """Return the attributes of the duration metric for *step*."""
    own = {semconv.WORKFLOW_NAME: step.name} if step.kind == "trace" else _operation_attributes(step)
    return {**own, semconv.ERROR_TYPE: step.error.type} if step.error else own


def _operation_attributes(step: Step) -> dict[str, str]:
    chat = step.kind == "generate"
    optional = {
        semconv.OPERATION_NAME: OPERATIONS[step.kind],
        semconv.PROVIDER_NAME: provider_of(step),
        semconv.REQUEST_MODEL: step.request_model if chat else None,
        semconv.RESPONSE_MODEL: step.response_model if chat else None,
        semconv.DATA_SOURCE_ID: step.name if step.kind == "retrieve" else None,
        semconv.TOOL_NAME: step.name if step.kind == "tool" else None,
    }
    return {key: value for key, value in optional.items() if value}

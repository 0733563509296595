"""Metric instruments of ragtrace: scores, cost of judging, durations, and counts observed at each collection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from opentelemetry.metrics import CallbackOptions, NoOpMeter, Observation

from ragtrace.core import semconv
from ragtrace.core.feedback import HUMAN, Feedback
from ragtrace.core.ledger import DeliveryCounts, GuardRow, LedgerRow
from ragtrace.core.settings import GenAIMetrics
from ragtrace.core.step import NO_USAGE, Step, StepKind
from ragtrace.core.types import BREAKER_STATES, BreakerState, Evaluation, RagCall, Score
from ragtrace.dialects.otel_genai import OPERATIONS, provider_of
from ragtrace.estimates import LABEL_SUMS, NAMES, JudgeCalibration, Moments
from ragtrace.system.forks import Home

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Histogram, Meter

    from ragtrace.telemetry.export.telemetry import ObservedCallback

_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Histogram bounds, in seconds, that the GenAI conventions recommend for durations."""
_WORKFLOW_SECONDS = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
"""Histogram bounds, in seconds, for the duration of a workflow, as in opentelemetry-util-genai 1.3b0."""
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""Histogram bounds that the GenAI conventions recommend for token counts."""
Read = TypeVar("Read")
Observations = Iterable[Observation]


class AlertRow(Protocol):
    """Data point of the alert-state gauge: whether an alert is in a given state, for all calls, a workflow or a
    model.
    """

    @property
    def alert(self) -> str: ...
    @property
    def workflow(self) -> str | None: ...
    @property
    def model(self) -> str | None: ...
    @property
    def state(self) -> str: ...
    @property
    def on(self) -> bool: ...


class Instruments:
    """All metric instruments of ragtrace, which may be used from any thread.

    What the arguments return is observed when metrics are collected: nothing is counted on the application's time, and
    all outcomes of one collection are of one moment.

    Args:
        meter: returns the meter that makes the instruments.
        observed: callbacks of observable instruments by name, kept with the meter. A later meter provider has others;
            in the same one, the SDK takes no other callback for an instrument that it has.
        rows: returns the counts of calls offered to evaluators, by outcome.
        moments: returns the sums for estimates, by metric, evaluator and workflow.
        calibrations: returns the calibration of each calibrated metric, and whether it holds; None: there are none.
        raw: returns metric and evaluator of scores that are raw probabilities of a decision model.
        queued: returns the number of calls that wait to be scored.
        held: returns the number of spans that wait for their scores.
        posted: returns the counts of each score sink, by name.
        states: returns the circuit breaker's state of each judge that has one, by evaluator id.
        faults: returns the number of ragtrace's own failures, by place.
        lost: returns the number of lost telemetry items, by signal and reason.
        alerts: returns every alert in every state; None: there are no alerts.
        canaries: returns the values of a metric about canaries, with their attributes; None: there are no canaries.
        guards: returns the counts of answers that guards have seen.
        model_changes: returns how often another model answered a judge than before, by evaluator id.
        genai_metrics: version of the GenAI conventions from which the metrics of inferences take their names.
    """

    def __init__(
        self,
        meter: Callable[[], Meter],
        *,
        observed: dict[str, ObservedCallback] | None = None,
        rows: Callable[[], list[LedgerRow]],
        moments: Callable[[], Mapping[tuple[str, str, str], Moments]],
        calibrations: Callable[[], Iterable[tuple[JudgeCalibration, bool]]] | None = None,
        raw: Callable[[], Iterable[tuple[str, str]]] = tuple,
        queued: Callable[[], int],
        held: Callable[[], int],
        posted: Callable[[], Mapping[str, DeliveryCounts]],
        states: Callable[[], Mapping[str, BreakerState]],
        faults: Callable[[], Mapping[str, int]] = dict,
        lost: Callable[[], Mapping[tuple[str, str], int]] = dict,
        alerts: Callable[[], Iterable[AlertRow]] | None = None,
        canaries: Callable[[str], Iterable[tuple[float, Mapping[str, str]]]] | None = None,
        guards: Callable[[], Iterable[GuardRow]] = tuple,
        model_changes: Callable[[], Mapping[str, int]] = dict,
        genai_metrics: GenAIMetrics = "released",
    ) -> None:
        self._rows, self._moments, self._queued, self._held, self._states = rows, moments, queued, held, states
        self._posted, self._alerts, self._faults, self._lost = posted, alerts, faults, lost
        self._canaries, self._model_changes, self._guards = canaries, model_changes, guards
        self._calibrations, self._raw = calibrations, raw
        self._released, self._latest = genai_metrics != "latest", genai_metrics != "released"
        self._observed = {} if observed is None else observed
        self._home, self._find_meter = Home(), meter
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

        # No gauge has the unit 1, to which some translations to Prometheus's names append `_ratio`, and others nothing.
        def counter(
            name: str, observations: Callable[[Read], Observations], read: Callable[[], Read], unit: str, about: str
        ) -> None:
            meter.create_observable_counter(name, self._observe(name, observations, read), unit, about)

        def gauge(
            name: str, observations: Callable[[Read], Observations], read: Callable[[], Read], unit: str, about: str
        ) -> None:
            meter.create_observable_gauge(name, self._observe(name, observations, read), unit, about)

        counter(s.METRIC_CALLS, _calls, self._rows, "{call}", "Calls offered to evaluators, by outcome")
        about = "Answers that a guard has seen, by verdict and action"
        counter(s.METRIC_GUARD_RESULTS, _guarded, self._guards, "{call}", about)
        about = "Sums from which rates and intervals are estimated"
        counter(s.METRIC_MOMENT, _sums, self._moments, "1", about)
        if self._calibrations is not None:
            about = "Sums over labelled calls, by which rates are corrected"
            gauge(s.METRIC_LABEL_MOMENT, _label_sums, self._calibrations, "{call}", about)
            about = "Calibration of a metric: 1 where it holds for the evaluator"
            gauge(s.METRIC_CALIBRATION_HOLDS, _calibrations, self._calibrations, "{state}", about)
        about = "1 for scores that are raw probabilities of a decision model: their mean is not a rate"
        gauge(s.METRIC_RAW_PROBABILITY, _raw_probabilities, self._raw, "{state}", about)
        gauge(s.METRIC_QUEUE_SIZE, _single, self._queued, "{call}", "Calls waiting to be scored")
        gauge(s.METRIC_HELD_SIZE, _single, self._held, "{span}", "Spans held for their scores")
        about = "Scores for a backend's own API, by outcome"
        counter(s.METRIC_POSTED, _scores, self._posted, "{score}", about)
        about = "Circuit breaker of a judge: 1 for the state it is in"
        gauge(s.METRIC_JUDGE_STATE, _breakers, self._states, "{state}", about)
        counter(s.METRIC_FAULTS, _failures, self._faults, "{fault}", "Failures of ragtrace itself, by kind")
        counter(s.METRIC_LOST, _losses, self._lost, "{item}", "Spans, events and kept calls that were lost")
        about = "Times that another model answered a judge than before"
        counter(s.METRIC_MODEL_CHANGES, _changes, self._model_changes, "{change}", about)
        if self._canaries is not None:
            for make, name, unit, about in (
                (counter, s.METRIC_CANARY_JUDGEMENTS, "{judgement}", "Canaries, by outcome"),
                (
                    gauge,
                    s.METRIC_CANARY_AGREEMENT,
                    "{share}",
                    "Share of the latest canary judgements that agree with the label",
                ),
                (
                    gauge,
                    s.METRIC_CANARY_DRIFT,
                    "{state}",
                    "1 while the judge agrees with labels less than before",
                ),
                (counter, s.METRIC_CANARY_TOKENS, "{token}", "Tokens used by judges for canaries"),
                (counter, s.METRIC_CANARY_COST, "USD", "Money spent on judging canaries"),
            ):
                make(name, _of_canaries, partial(self._canaries, name), unit, about)
        if self._alerts is not None:
            about = "Alert: 1 for the state it is in, and for a spike that is not over while there is no data"
            gauge(s.METRIC_ALERT_STATE, _alert_states, self._alerts, "{state}", about)

    def _observe(
        self, name: str, observations: Callable[[Read], Observations], read: Callable[[], Read]
    ) -> Sequence[ObservedCallback]:
        def callback(_: CallbackOptions) -> Observations:
            # A forked child whose own instruments are not open yet has its parent's counts.
            return observations(read()) if self._home.is_here() else ()

        observed = self._observed
        observed[name] = callback
        return [lambda options: observed[name](options)]

    def record_evaluation(self, evaluation: Evaluation, call: RagCall, context: Context) -> None:
        """Record the scores of *evaluation*, with the scored span as exemplar, and the cost of judging."""
        self.open()
        evaluator = {semconv.EVALUATOR_ID: evaluation.evaluator}
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


# --- observations of the observable instruments ----------------------------------------------------------------------


def _single(value: int) -> Observations:
    yield Observation(value)


def _calls(rows: Iterable[LedgerRow]) -> Observations:
    for row in rows:
        of = {semconv.EVALUATOR_ID: row.evaluator, semconv.WORKFLOW_NAME: row.workflow, semconv.OUTCOME: row.outcome}
        yield Observation(row.calls, {**of, semconv.REASON: row.reason} if row.reason else of)


def _sums(moments: Mapping[tuple[str, str, str], Moments]) -> Observations:
    for (metric, evaluator, workflow), sums in moments.items():
        of = {semconv.EVALUATION_NAME: metric, semconv.WORKFLOW_NAME: workflow, semconv.EVALUATOR_ID: evaluator}
        # All moments, zeros too: a query that multiplies two of them needs both.
        for name, value in zip(NAMES, sums.values(), strict=True):
            yield Observation(value, {**of, semconv.MOMENT: name})


def _label_sums(calibrations: Iterable[tuple[JudgeCalibration, bool]]) -> Observations:
    for entry, holds in calibrations:
        of = {semconv.EVALUATION_NAME: entry.key.metric, semconv.EVALUATOR_ID: entry.key.evaluator}
        for name in LABEL_SUMS if holds else ():
            yield Observation(entry.sums[name], {**of, semconv.MOMENT: name})


def _calibrations(calibrations: Iterable[tuple[JudgeCalibration, bool]]) -> Observations:
    for entry, holds in calibrations:
        of = {semconv.EVALUATION_NAME: entry.key.metric, semconv.EVALUATOR_ID: entry.key.evaluator}
        yield Observation(int(holds), of)


def _raw_probabilities(raw: Iterable[tuple[str, str]]) -> Observations:
    for metric, evaluator in raw:
        yield Observation(1, {semconv.EVALUATION_NAME: metric, semconv.EVALUATOR_ID: evaluator})


def _scores(sinks: Mapping[str, DeliveryCounts]) -> Observations:
    for sink, posted in sinks.items():
        for outcome, reason, count in posted.rows():
            yield Observation(count, {semconv.SINK: sink, semconv.OUTCOME: outcome, semconv.REASON: reason})


def _failures(counts: Mapping[str, int]) -> Observations:
    return [Observation(count, {semconv.FAULT_KIND: kind}) for kind, count in counts.items()]


def _losses(counts: Mapping[tuple[str, str], int]) -> Observations:
    for (signal, reason), count in counts.items():
        yield Observation(count, {semconv.SIGNAL: signal, semconv.REASON: reason})


def _breakers(states: Mapping[str, BreakerState]) -> Observations:
    for evaluator, now in states.items():
        for state in BREAKER_STATES:
            of = {semconv.EVALUATOR_ID: evaluator, semconv.JUDGE_STATE: state}
            yield Observation(int(state == now), of)


def _changes(counts: Mapping[str, int]) -> Observations:
    return [Observation(count, {semconv.EVALUATOR_ID: evaluator}) for evaluator, count in counts.items()]


def _guarded(rows: Iterable[GuardRow]) -> Observations:
    for row in rows:
        of = {semconv.WORKFLOW_NAME: row.workflow, semconv.EVALUATION_NAME: row.metric, semconv.GUARD_MODE: row.mode}
        yield Observation(row.calls, {**of, semconv.GUARD_VERDICT: row.verdict, semconv.GUARD_ACTION: row.action})


def _of_canaries(values: Iterable[tuple[float, Mapping[str, str]]]) -> Observations:
    return [Observation(value, attributes) for value, attributes in values]


def _alert_states(rows: Iterable[AlertRow]) -> Observations:
    for row in rows:
        group = {semconv.WORKFLOW_NAME: row.workflow, semconv.REQUEST_MODEL: row.model}
        grouped = {key: value for key, value in group.items() if value is not None}
        yield Observation(int(row.on), {semconv.ALERT_NAME: row.alert, semconv.ALERT_STATE: row.state, **grouped})

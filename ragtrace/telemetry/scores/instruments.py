"""Metric instruments of ragtrace: scores, cost of judging, durations, and counts observed at each collection."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from opentelemetry.metrics import CallbackOptions, NoOpMeter, Observation

from ragtrace.core import semconv
from ragtrace.core.feedback import HUMAN, Feedback
from ragtrace.core.ledger import DeliveryCounts, LedgerRow
from ragtrace.core.settings import GenAIMetrics
from ragtrace.core.step import NO_USAGE, Step, StepKind
from ragtrace.core.types import BREAKER_STATES, BreakerState, Evaluation, RagCall, Score
from ragtrace.dialects.otel_genai import OPERATIONS, provider_of
from ragtrace.estimates import LABEL_SUMS, NAMES, JudgeCalibration, Moments

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Histogram, Meter

    from ragtrace.telemetry.fast_meters import FastInstrument, FastMeter

_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Histogram bounds, in seconds, that the GenAI conventions recommend for durations."""
_WORKFLOW_SECONDS = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
"""Histogram bounds, in seconds, for the duration of a workflow, as in opentelemetry-util-genai 1.3b0."""
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""Histogram bounds that the GenAI conventions recommend for token counts."""
_MOST_KEPT = 1_000
"""Most `SeriesAttributes` of steps that are cached."""
Read = TypeVar("Read")
_Histogram: TypeAlias = "Histogram | FastInstrument[Any]"
_Counter: TypeAlias = "Counter | FastInstrument[Any]"
Observations = Iterable[Observation]


class SeriesAttributes(dict[str, "str | bool"]):
    """Attributes of a frequently recorded metric series, whose hashable key is computed only once."""

    __slots__ = ("key",)

    def __init__(self, attributes: Mapping[str, str | bool]) -> None:
        super().__init__(attributes)
        self.key = frozenset(attributes.items())


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
        meter: makes the instruments.
        rows: returns the counts of calls offered to evaluators, by outcome.
        moments: returns the sums for estimates, by metric, evaluator and workflow.
        calibrations: returns the calibration of each calibrated metric, and whether it holds; None: there are none.
        queued: returns the number of calls that wait to be scored.
        held: returns the number of spans that wait for their scores.
        posted: returns the counts of each score sink, by name.
        states: returns the circuit breaker's state of each judge that has one, by evaluator id.
        faults: returns the number of ragtrace's own failures, by place.
        lost: returns the number of lost telemetry items, by signal and reason.
        alerts: returns every alert in every state; None: there are no alerts.
        canaries: returns the values of a metric about canaries, with their attributes; None: there are no canaries.
        model_changes: returns how often another model answered a judge than before, by evaluator id.
        genai_metrics: version of the GenAI conventions from which the metrics of inferences take their names.
    """

    def __init__(
        self,
        meter: Meter | FastMeter,
        *,
        rows: Callable[[], list[LedgerRow]],
        moments: Callable[[], Mapping[tuple[str, str, str], Moments]],
        calibrations: Callable[[], Iterable[tuple[JudgeCalibration, bool]]] | None = None,
        queued: Callable[[], int],
        held: Callable[[], int],
        posted: Callable[[], Mapping[str, DeliveryCounts]],
        states: Callable[[], Mapping[str, BreakerState]],
        faults: Callable[[], Mapping[str, int]] = dict,
        lost: Callable[[], Mapping[tuple[str, str], int]] = dict,
        alerts: Callable[[], Iterable[AlertRow]] | None = None,
        canaries: Callable[[str], Iterable[tuple[float, Mapping[str, str]]]] | None = None,
        model_changes: Callable[[], Mapping[str, int]] = dict,
        genai_metrics: GenAIMetrics = "released",
    ) -> None:
        self._rows, self._moments, self._queued, self._held, self._states = rows, moments, queued, held, states
        self._posted, self._alerts, self._faults, self._lost = posted, alerts, faults, lost
        self._canaries, self._model_changes = canaries, model_changes
        self._calibrations = calibrations
        self._released, self._latest = genai_metrics != "latest", genai_metrics != "released"
        self._pid = os.getpid()
        self._known: dict[tuple[str | None, ...], SeriesAttributes] = {}
        self.bind(meter)

    def bind(self, meter: Meter | FastMeter) -> None:
        """Create all instruments with *meter*, and use them from now on."""
        self._silent = isinstance(meter, NoOpMeter)
        s = semconv

        def histogram(name: str, unit: str, description: str, bounds: Sequence[float]) -> _Histogram:
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=bounds)

        self._score = histogram(s.METRIC_SCORE, "1", "Scores of live calls", s.SCORE_BOUNDS)
        self._results = meter.create_counter(s.METRIC_RESULTS, "{result}", "Scored results by label")
        self._judge_duration = histogram(s.METRIC_JUDGE_DURATION, "s", "Time to judge a call", _SECONDS)
        self._judge_tokens = meter.create_counter(s.METRIC_JUDGE_TOKENS, "{token}", "Tokens used by judges")
        about = "Input tokens used by judges to read earlier turns of a conversation, estimated"
        self._judge_turn_tokens = meter.create_counter(s.METRIC_JUDGE_TURN_TOKENS, "{token}", about)
        self._judge_cost = meter.create_counter(s.METRIC_JUDGE_COST, "USD", "Money spent on judges")
        operation = histogram(s.METRIC_OPERATION_DURATION, "s", "GenAI operation duration", _SECONDS)
        workflow = histogram(s.METRIC_WORKFLOW_DURATION, "s", "Workflow duration", _WORKFLOW_SECONDS)
        inference: list[_Histogram] = []
        self._token_usage: _Histogram | None = None
        self._first_chunk: dict[StepKind, list[_Histogram]] = {"retrieve": [], "generate": [], "tool": []}
        self._tokens_by_type: dict[str, tuple[_Counter, _Histogram]] = {}
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
        self._durations: dict[StepKind, list[_Histogram]] = {
            "trace": [workflow], "retrieve": [operation], "generate": inference, "tool": [operation]
        }  # fmt: skip

        counter, gauge, observe = meter.create_observable_counter, meter.create_observable_gauge, self._observe
        counter(s.METRIC_CALLS, observe(_calls, self._rows), "{call}", "Calls offered to evaluators, by outcome")
        about = "Sums from which rates and intervals are estimated"
        counter(s.METRIC_MOMENT, observe(_sums, self._moments), "1", about)
        if self._calibrations is not None:
            about = "Sums over labelled calls, by which rates are corrected"
            gauge(s.METRIC_LABEL_MOMENT, observe(_label_sums, self._calibrations), "{call}", about)
            about = "Calibration of a metric: 1 where it holds for the evaluator"
            gauge(s.METRIC_CALIBRATION_HOLDS, observe(_calibrations, self._calibrations), "1", about)
        gauge(s.METRIC_QUEUE_SIZE, observe(_single, self._queued), "{call}", "Calls waiting to be scored")
        gauge(s.METRIC_HELD_SIZE, observe(_single, self._held), "{span}", "Spans held for their scores")
        about = "Scores for a backend's own API, by outcome"
        counter(s.METRIC_POSTED, observe(_scores, self._posted), "{score}", about)
        about = "Circuit breaker of a judge: 1 for the state it is in"
        gauge(s.METRIC_JUDGE_STATE, observe(_breakers, self._states), "1", about)
        counter(s.METRIC_FAULTS, observe(_failures, self._faults), "{fault}", "Failures of ragtrace itself, by kind")
        counter(s.METRIC_LOST, observe(_losses, self._lost), "{item}", "Spans, events and kept calls that were lost")
        about = "Times that another model answered a judge than before"
        counter(s.METRIC_MODEL_CHANGES, observe(_changes, self._model_changes), "{change}", about)
        if self._canaries is not None:
            for make, name, unit, about in (
                (counter, s.METRIC_CANARY_JUDGEMENTS, "{judgement}", "Canaries, by outcome"),
                (
                    gauge,
                    s.METRIC_CANARY_AGREEMENT,
                    "1",
                    "Share of the latest canary judgements that agree with the label",
                ),
                (gauge, s.METRIC_CANARY_DRIFT, "1", "1 while the judge agrees with labels less often than before"),
                (counter, s.METRIC_CANARY_TOKENS, "{token}", "Tokens used by judges for canaries"),
                (counter, s.METRIC_CANARY_COST, "USD", "Money spent on judging canaries"),
            ):
                make(name, observe(_of_canaries, partial(self._canaries, name)), unit, about)
        if self._alerts is not None:
            about = "Alert: 1 for the state it is in, and for a spike that is not over while there is no data"
            gauge(s.METRIC_ALERT_STATE, observe(_alert_states, self._alerts), "1", about)

    def after_fork(self) -> None:
        """Note that this process is a forked child, so that observed metrics show only the child's own counts."""
        self._pid = os.getpid()

    def _observe(
        self, observations: Callable[[Read], Observations], read: Callable[[], Read]
    ) -> Sequence[Callable[[CallbackOptions], Observations]]:
        def callback(_: CallbackOptions) -> Observations:
            # The SDK may collect in a forked child before that child has emptied its parent's accounts.
            return observations(read()) if self._pid == os.getpid() else ()

        return [callback]

    def record_evaluation(self, evaluation: Evaluation, call: RagCall, context: Context) -> None:
        """Record the scores of *evaluation*, with the scored span as exemplar, and the cost of judging."""
        evaluator = {semconv.EVALUATOR_ID: evaluation.evaluator}
        for name, result in evaluation.results.items():
            if not isinstance(result, Score):
                continue
            attributes = {semconv.EVALUATION_NAME: name, semconv.WORKFLOW_NAME: call.workflow, **evaluator}
            self._score.record(result.value, attributes, context=context)
            label = {semconv.EVALUATION_LABEL: result.label} if result.label else {}
            self._results.add(1, {**attributes, **label}, context=context)
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

    def record_feedback(self, feedback: Feedback, context: Context) -> None:
        """Record the score and the label of *feedback*, with the call's root span as exemplar."""
        attributes = {semconv.EVALUATION_NAME: feedback.name, semconv.EVALUATOR_ID: HUMAN}
        if feedback.score is not None:
            self._score.record(feedback.score, attributes, context=context)
        label = {semconv.EVALUATION_LABEL: feedback.label} if feedback.label else {}
        self._results.add(1, {**attributes, **label}, context=context)

    def record_step(self, step: Step) -> None:
        """Record duration, tokens and time to first chunk of a finished step, with its span as exemplar."""
        if self._silent or step.timing is None or step.context is None:
            return
        for duration in self._durations[step.kind]:
            duration.record(step.timing.duration_s, self._step_attributes(step), step.context)
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
            of_one.record(count, self._step_attributes(step), step.context)

    def _step_attributes(self, step: Step) -> SeriesAttributes:
        """Return the attributes of the duration metric for *step*. Equal attributes are created once and reused."""
        error = step.error.type if step.error else None
        of = (step.kind, step.name, step.provider, step.request_model, step.response_model, error)
        labels = self._known.get(of)
        if labels is None:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            own = {semconv.WORKFLOW_NAME: step.name} if step.kind == "trace" else _operation_attributes(step)
            labels = self._known[of] = SeriesAttributes({**own, **({semconv.ERROR_TYPE: error} if error else {})})
        return labels


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


def _of_canaries(values: Iterable[tuple[float, Mapping[str, str]]]) -> Observations:
    return [Observation(value, attributes) for value, attributes in values]


def _alert_states(rows: Iterable[AlertRow]) -> Observations:
    for row in rows:
        group = {semconv.WORKFLOW_NAME: row.workflow, semconv.REQUEST_MODEL: row.model}
        grouped = {key: value for key, value in group.items() if value is not None}
        yield Observation(int(row.on), {semconv.ALERT_NAME: row.alert, semconv.ALERT_STATE: row.state, **grouped})

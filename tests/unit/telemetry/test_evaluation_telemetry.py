"""Scores as standard events and as metrics, whole."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)

import ragtrace
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement, Signals
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge
from tests.support.scored import EVERY, SCREENED, event, events, scored_event, scores, screen
from tests.support.watched import ANSWER, CLAIMS, GOOD, ask, watch

BOUNDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


# --- events ----------------------------------------------------------------------------------------------------------


def test_events_of_both_evaluators_whole() -> None:
    """One a metric and evaluator, told apart by the evaluator's id."""
    captured = watch(screen=screen(), judge=FakeJudge(GOOD, name="judge"), sampling=EVERY)
    ask("where?")
    assert ragtrace.flush()
    assert events(captured) == [
        scored_event("hallucinated", "screen", 1.0, "fail"),
        scored_event("faithfulness", "screen", 0.5, "fail"),
        scored_event("consistency", "screen", 0.25, None),
        scored_event("answered", "screen", 1.0, "answered"),
        event(
            "suspicious",
            "screen",
            **{
                "ragtrace.reason": "no_baseline",
                "gen_ai.evaluation.explanation": "500 more scored calls of the workflow 'guide' make a baseline",
            },
        ),
        scored_event("hallucinated", "judge", 0.0, "pass"),
        scored_event("faithfulness", "judge", 1.0, "pass"),
        scored_event("consistency", "judge", 0.9, None),
        scored_event("answered", "judge", 1.0, "answered"),
    ]


def test_an_event_of_a_failure_is_a_warning_without_a_score() -> None:
    """With the reason as the type of the error and what the judge said as explanation."""
    captured = watch(screen=FakeJudge(JudgeError("refused", "policy"), name="screen"), metrics=["faithfulness"])
    ask("where?")
    assert ragtrace.flush()
    assert events(captured) == [
        event("faithfulness", "screen", **{"error.type": "refused", "gen_ai.evaluation.explanation": "policy"})
    ]
    assert [record.log_record.severity_text or record.log_record.severity_number for record in captured.events] == [
        trace_severity("WARN")
    ]


def trace_severity(name: str) -> Any:
    from opentelemetry._logs import SeverityNumber

    return SeverityNumber[name]


def test_an_event_of_what_does_not_apply_is_no_failure() -> None:
    """Its reason is ours, and its severity INFO."""
    judgement = Judgement(claims=(), answer_label="abstained")
    captured = watch(screen=FakeJudge(judgement, name="screen"), metrics=["faithfulness"])
    ask("where?")
    assert ragtrace.flush()
    assert events(captured) == [event("faithfulness", "screen", **{"ragtrace.reason": "abstained"})]
    assert captured.events[0].log_record.severity_number == trace_severity("INFO")


def test_events_are_parented_to_the_scored_span() -> None:
    """Its ids and flags, a real time, and the standard name."""
    captured = watch(screen=screen())
    ask("where?")
    assert ragtrace.flush()
    context = captured.root().get_span_context()
    assert context is not None
    for found in captured.events:
        record = found.log_record
        assert (record.trace_id, record.span_id, record.trace_flags) == (
            context.trace_id,
            context.span_id,
            context.trace_flags,
        )
        assert record.event_name == "gen_ai.evaluation.result"
        assert (record.timestamp or 0) >= (captured.root().end_time or 0)


def test_without_a_logs_sdk_there_are_no_events_and_no_complaints() -> None:
    """The scores are on the span all the same."""
    captured = Captured()
    ragtrace.configure(exporter=Signals(spans=captured.signals.spans, immediate=True), screen=screen())
    ask("where?")
    assert ragtrace.flush()
    assert scores(captured.root()) == SCREENED
    assert (captured.events, ragtrace.stats().faults) == ([], {})


# --- metrics ---------------------------------------------------------------------------------------------------------


class Exports(MetricExporter):
    """Keeps every export: exemplars are handed out with the first collection after them only."""

    def __init__(self) -> None:
        super().__init__()
        self.points: dict[tuple[str, str], Any] = {}

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any) -> MetricExportResult:
        for resource in metrics_data.resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                if metric.name == "ragtrace.eval.score":
                    for p in metric.data.data_points:
                        attributes: Any = p.attributes
                        key = (attributes["gen_ai.evaluation.name"], attributes["ragtrace.evaluator.id"])
                        self.points.setdefault(key, p)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None: ...


def test_scores_are_histograms_with_the_span_as_exemplar() -> None:
    """Our own buckets, one series an evaluator, and the trace to look at."""
    captured, exports = Captured(), Exports()
    reader = PeriodicExportingMetricReader(exports, export_interval_millis=3_600_000)
    ragtrace.configure(
        exporter=Signals(spans=captured.signals.spans, metrics=reader, immediate=True),
        screen=screen(),
        judge=FakeJudge(GOOD, name="judge"),
        sampling=EVERY,
    )
    ask("where?")
    assert ragtrace.flush()
    assert {key: (point.sum, point.count) for key, point in exports.points.items()} == {
        ("faithfulness", "screen"): (0.5, 1),
        ("hallucinated", "screen"): (1.0, 1),
        ("consistency", "screen"): (0.25, 1),
        ("answered", "screen"): (1.0, 1),
        ("faithfulness", "judge"): (1.0, 1),
        ("hallucinated", "judge"): (0.0, 1),
        ("consistency", "judge"): (0.9, 1),
        ("answered", "judge"): (1.0, 1),
    }
    context = captured.root().get_span_context()
    assert context is not None
    for (name, evaluator), point in exports.points.items():
        assert tuple(point.explicit_bounds) == BOUNDS
        assert dict(point.attributes) == {
            "gen_ai.evaluation.name": name,
            "gen_ai.workflow.name": "guide",
            "ragtrace.evaluator.id": evaluator,
        }
        assert [(e.trace_id, e.span_id) for e in point.exemplars] == [(context.trace_id, context.span_id)]


def test_results_are_counted_by_label() -> None:
    """The share of failed answers is a division of two counters."""
    captured = watch(screen=screen(), metrics=["answered"])
    ask("where?")
    ask("and then?")
    assert ragtrace.flush()
    (point,) = captured.metrics()["ragtrace.eval.results"].data_points
    assert (point.value, dict(point.attributes)) == (
        2,
        {
            "gen_ai.evaluation.name": "answered",
            "gen_ai.workflow.name": "guide",
            "ragtrace.evaluator.id": "screen",
            "gen_ai.evaluation.score.label": "answered",
        },
    )


def test_an_unscored_metric_is_in_no_histogram() -> None:
    """Neither as 0 nor as anything else."""
    captured = watch(screen=FakeJudge(JudgeError("refused"), name="screen"))
    ask("where?")
    assert ragtrace.flush()
    metrics = captured.metrics()
    assert "ragtrace.eval.score" not in metrics
    (duration,) = metrics["ragtrace.eval.duration"].data_points
    assert dict(duration.attributes) == {"ragtrace.evaluator.id": "screen", "error.type": "refused"}


def test_what_came_from_memory_is_told_apart_from_what_was_judged() -> None:
    """The second of two identical calls has a series of its own: it says nothing of how fast the judge is."""
    captured = watch(screen=None, judge=FakeJudge(GOOD, name="judge"), sampling=EVERY)
    ask("where?")
    ask("where?")
    assert ragtrace.flush()
    points = captured.metrics()["ragtrace.eval.duration"].data_points
    found = {bool(point.attributes.get("ragtrace.cached")): point.count for point in points}
    assert found == {False: 1, True: 1}


def test_what_judging_costs_is_a_metric_of_its_own() -> None:
    """Tokens by kind, and money, by evaluator."""
    judgement = Judgement(claims=CLAIMS, answer_label="answered", input_tokens=30, output_tokens=7, cost_usd=0.002)
    captured = watch(screen=None, judge=FakeJudge(judgement, name="judge"), sampling=EVERY)
    ask("where?")
    ask("and then?")
    assert ragtrace.flush()
    metrics = captured.metrics()
    tokens = {p.attributes["gen_ai.token.type"]: p.value for p in metrics["ragtrace.eval.tokens"].data_points}
    (cost,) = metrics["ragtrace.eval.cost"].data_points
    assert (tokens, cost.value) == ({"input": 60, "output": 14}, pytest.approx(0.004))


def test_the_accounts_are_exported_as_they_stand() -> None:
    """Offered and every outcome, by evaluator and workflow."""
    captured = watch(screen=screen(), judge=FakeJudge(GOOD, name="judge"), sampling=ragtrace.Sampling(rate=0.0))
    ask("where?")
    assert ragtrace.flush()
    points = captured.metrics()["ragtrace.calls"].data_points
    lines = [
        (
            p.attributes["ragtrace.evaluator.id"],
            p.attributes["ragtrace.outcome"],
            p.attributes.get("ragtrace.reason"),
            p.value,
        )
        for p in points
    ]
    assert sorted(lines, key=str) == [
        ("judge", "offered", None, 1),
        ("judge", "sampled_out", "not_sampled", 1),
        ("screen", "offered", None, 1),
        ("screen", "scored", None, 1),
    ]


def test_no_metric_carries_an_identity() -> None:
    """No trace, user or conversation is an attribute of a series."""
    captured = watch(screen=screen())
    with ragtrace.call("where?", session="chat-7", user="u-1") as call:
        call.answered(ANSWER)
    assert ragtrace.flush()
    values = [
        str(value)
        for data in captured.metrics().values()
        for point in data.data_points
        for value in (point.attributes or {}).values()
    ]
    assert not {"chat-7", "u-1", "where?"} & set(values)

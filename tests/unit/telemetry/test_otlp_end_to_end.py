"""A decorated call as a backend gets it over OTLP, whole: every span, event and metric with every attribute."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pytest

import ragtrace
from ragtrace.system.faults import faults
from tests.support.application import ANSWER, INVENTED, PASSAGES, QUESTION, ask
from tests.support.otlp import Receiver
from tests.support.scored import without_id
from tests.support.telemetry import LogRecord, Metric, Point, Scope, Span

METRICS = ("answered", "consistency", "faithfulness", "hallucination")
SCREEN = ragtrace.EmbeddedJudge(extractive=True)
SESSION = "session-7"
SAMPLED = 1
SCOPE = Scope("ragtrace", version("ragtrace-otel"))
BOUNDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
HIGHER_IS_BETTER = {"answered": True, "consistency": True, "faithfulness": True, "hallucination": False}


@pytest.fixture
def watched(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """ragtrace, configured by the standard variables to send everything to the receiver."""
    for name, value in receiver.environ.items():
        monkeypatch.setenv(name, value)
    ragtrace.configure(service="guide-service", screen=SCREEN, metrics=METRICS)
    return receiver


def _ask(receiver: Receiver, answer: str = ANSWER) -> None:
    """One call, asked, scored and exported."""
    assert ask(QUESTION, answer, SESSION) == answer
    assert ragtrace.flush(timeout=10.0)
    receiver.wait_for(lambda got: len(got.spans) == 3 and len(got.logs) == len(METRICS) and _has_scores(got))


def _has_scores(receiver: Receiver) -> bool:
    return "ragtrace.eval.score" in receiver.latest_metrics()


def _by_role(receiver: Receiver) -> dict[str, Span]:
    """The three spans by what they do."""
    return {span.name.split()[0]: span for span in receiver.spans}


def _parsed(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """*attributes* with JSON strings parsed, so that their spelling does not matter."""
    return {key: _parse(value) for key, value in attributes.items()}


def _parse(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value[:1] in ("[", "{") else value


def _messages(role: str, text: str) -> list[dict[str, Any]]:
    return [{"role": role, "parts": [{"type": "text", "content": text}]}]


def _scores(answer: str) -> dict[str, ragtrace.Score]:
    """The same call scored without tracing."""
    results = ragtrace.score(query=QUESTION, contexts=list(PASSAGES), answer=answer, judge=SCREEN, metrics=METRICS)
    return {name: result for name, result in results.items() if isinstance(result, ragtrace.Score)}


def _score_attributes(answer: str) -> dict[str, Any]:
    """What must be on the root span about *answer*."""
    judge = ragtrace.EmbeddedJudge()
    attributes: dict[str, Any] = {
        "ragtrace.context_source": "arguments",
        "ragtrace.eval.status": "ok",
        "ragtrace.eval.probability": 1.0,
        "ragtrace.eval.evaluator": f"{judge.id}@{judge.version}",
    }
    for name, score in _scores(answer).items():
        attributes[f"ragtrace.eval.{name}.score"] = score.value
        if score.label is not None:
            attributes[f"ragtrace.eval.{name}.label"] = score.label
    return attributes


def test_the_spans_arrive_whole(watched: Receiver) -> None:
    """Three spans with the right names, kinds and attributes; the scores are on the root."""
    _ask(watched)
    spans = {
        role: (span.name, span.kind, span.status, _parsed(span.attributes)) for role, span in _by_role(watched).items()
    }
    assert spans == {
        "invoke_workflow": (
            "invoke_workflow guide",
            "INTERNAL",
            "UNSET",
            {
                "gen_ai.operation.name": "invoke_workflow",
                "gen_ai.workflow.name": "guide",
                "gen_ai.conversation.id": SESSION,
                "gen_ai.input.messages": _messages("user", QUESTION),
                "gen_ai.output.messages": _messages("assistant", ANSWER),
                **_score_attributes(ANSWER),
            },
        ),
        "retrieval": (
            "retrieval monuments",
            "CLIENT",
            "UNSET",
            {
                "gen_ai.operation.name": "retrieval",
                "gen_ai.data_source.id": "monuments",
                "gen_ai.retrieval.top_k": 2,
                "gen_ai.retrieval.query.text": QUESTION,
                "gen_ai.retrieval.documents": [
                    {"id": "doc-0", "score": 1.0, "content": PASSAGES[0]},
                    {"id": "doc-1", "score": 0.5, "content": PASSAGES[1]},
                ],
                "ragtrace.retrieval.document.count": 2,
                "ragtrace.rerank": False,
            },
        ),
        "chat": (
            "chat tiny-1",
            "CLIENT",
            "UNSET",
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "example",
                "gen_ai.request.model": "tiny-1",
                "gen_ai.input.messages": _messages("user", QUESTION),
                "gen_ai.output.messages": _messages("assistant", ANSWER),
            },
        ),
    }


def test_the_spans_are_one_trace_in_order(watched: Receiver) -> None:
    """Retrieval and generation are children of the root, inside its time, one after the other, of one resource."""
    _ask(watched)
    spans = _by_role(watched)
    root, retrieval, chat = (spans[role] for role in ("invoke_workflow", "retrieval", "chat"))
    assert root.parent_span_id == ""
    assert retrieval.parent_span_id == chat.parent_span_id == root.span_id
    assert len({span.trace_id for span in spans.values()}) == 1
    assert len({span.span_id for span in spans.values()}) == 3
    assert root.start_ns <= retrieval.start_ns <= retrieval.end_ns <= chat.start_ns <= chat.end_ns <= root.end_ns
    for span in spans.values():
        assert (span.events, span.links, span.dropped_attributes, span.scope) == ((), (), 0, SCOPE)
        assert span.resource["service.name"] == "guide-service"


def test_the_scores_tell_an_invented_answer(watched: Receiver) -> None:
    """An answer with two invented sentences arrives with scores below 1 and the label fail, as scored offline."""
    _ask(watched, INVENTED)
    attributes = _by_role(watched)["invoke_workflow"].attributes
    assert {
        key: value for key, value in attributes.items() if key.startswith(("ragtrace.eval.", "ragtrace.context"))
    } == _score_attributes(INVENTED)
    assert attributes["ragtrace.eval.faithfulness.score"] < 1
    assert attributes["ragtrace.eval.hallucination.label"] == "fail"


def _event(name: str, score: ragtrace.Score) -> dict[str, Any]:
    """The attributes of the evaluation event of one metric."""
    judge = ragtrace.EmbeddedJudge()
    attributes: dict[str, Any] = {
        "gen_ai.evaluation.name": name,
        "gen_ai.evaluation.score.value": score.value,
        "gen_ai.workflow.name": "guide",
        "ragtrace.context_source": "arguments",
        "gen_ai.conversation.id": SESSION,
        "ragtrace.evaluator.id": judge.id,
        "ragtrace.evaluator.version": judge.version,
        "ragtrace.evaluator.type": "deterministic",
        "ragtrace.eval.probability": 1.0,
        "ragtrace.eval.adjusted_count": 1.0,
        "ragtrace.eval.higher_is_better": HIGHER_IS_BETTER[name],
    }
    if score.label is not None:
        attributes["gen_ai.evaluation.score.label"] = score.label
    if score.explanation is not None:
        attributes["gen_ai.evaluation.explanation"] = score.explanation
    return attributes


def test_the_events_arrive_whole(watched: Receiver) -> None:
    """One evaluation event a metric, complete, in the context of the root span."""
    _ask(watched, INVENTED)
    events = {record.attributes["gen_ai.evaluation.name"]: without_id(record.attributes) for record in watched.logs}
    assert events == {name: _event(name, score) for name, score in _scores(INVENTED).items()}
    assert sorted(events) == list(METRICS)


def test_the_events_belong_to_the_root_span(watched: Receiver) -> None:
    """Name, trace and span id, trace flags, severity and time of an event are those of a standard evaluation result."""
    _ask(watched)
    root = _by_role(watched)["invoke_workflow"]
    expected = ("gen_ai.evaluation.result", root.trace_id, root.span_id, True, 9, SCOPE, "guide-service")
    assert [_identity(record) for record in watched.logs] == [expected] * len(METRICS)
    assert all(root.end_ns <= record.time_ns for record in watched.logs)


def _identity(record: LogRecord) -> tuple[object, ...]:
    return (
        record.event_name,
        record.trace_id,
        record.span_id,
        bool(record.trace_flags & SAMPLED),
        record.severity,
        record.scope,
        record.resource["service.name"],
    )


def _points(metric: Metric) -> dict[tuple[tuple[str, Any], ...], Point]:
    return {tuple(sorted(point.attributes.items())): point for point in metric.points}


def _key(**attributes: Any) -> tuple[tuple[str, Any], ...]:
    names = {
        "metric": "gen_ai.evaluation.name",
        "label": "gen_ai.evaluation.score.label",
        "workflow": "gen_ai.workflow.name",
        "evaluator": "ragtrace.evaluator.id",
        "outcome": "ragtrace.outcome",
        "operation": "gen_ai.operation.name",
        "provider": "gen_ai.provider.name",
        "model": "gen_ai.request.model",
        "source": "gen_ai.data_source.id",
    }
    return tuple(sorted((names[name], value) for name, value in attributes.items()))


def test_the_score_histogram_arrives_whole(watched: Receiver) -> None:
    """A point a metric with its value in the right bucket, and the root span as its exemplar."""
    _ask(watched, INVENTED)
    root = _by_role(watched)["invoke_workflow"]
    histogram = watched.latest_metrics()["ragtrace.eval.score"]
    assert (histogram.type, histogram.unit, histogram.scope) == ("histogram", "1", SCOPE)
    seen = {
        key: (
            point.count,
            point.sum,
            point.bounds,
            point.counts,
            [(e.value, e.trace_id, e.span_id) for e in point.exemplars],
        )
        for key, point in _points(histogram).items()
    }
    assert seen == {
        _key(metric=name, workflow="guide", evaluator="embedded"): (
            1,
            score.value,
            BOUNDS,
            _bucket(score.value),
            [(score.value, root.trace_id, root.span_id)],
        )
        for name, score in _scores(INVENTED).items()
    }


def _bucket(value: float) -> tuple[int, ...]:
    """One observation of *value* in buckets that include their upper bound."""
    index = next((i for i, bound in enumerate(BOUNDS) if value <= bound), len(BOUNDS))
    return tuple(int(i == index) for i in range(len(BOUNDS) + 1))


def test_the_counters_arrive_whole(watched: Receiver) -> None:
    """Results by label, calls by outcome, and the gauges of what is under way."""
    _ask(watched)
    metrics = watched.latest_metrics()
    counts = {
        name: (metrics[name].unit, metrics[name].monotonic, {key: p.value for key, p in _points(metrics[name]).items()})
        for name in ("ragtrace.eval.results", "ragtrace.calls", "ragtrace.queue.size", "ragtrace.held.size")
    }
    results = {
        _key(metric=name, workflow="guide", evaluator="embedded", **({"label": score.label} if score.label else {})): 1
        for name, score in _scores(ANSWER).items()
    }
    calls = {
        _key(workflow="guide", evaluator="embedded", outcome="offered"): 1,
        _key(workflow="guide", evaluator="embedded", outcome="scored"): 1,
    }
    assert counts == {
        "ragtrace.eval.results": ("{result}", True, results),
        "ragtrace.calls": ("{call}", True, calls),
        "ragtrace.queue.size": ("{call}", False, {(): 0}),
        "ragtrace.held.size": ("{span}", False, {(): 0}),
    }


def test_the_durations_arrive_whole(watched: Receiver) -> None:
    """How long retrieval, generation, workflow and judging took, each with its attributes and in seconds."""
    _ask(watched)
    metrics = watched.latest_metrics()
    names = ("gen_ai.client.operation.duration", "gen_ai.invoke_workflow.duration", "ragtrace.eval.duration")
    counted = {
        name: (metrics[name].type, metrics[name].unit, {key: p.count for key, p in _points(metrics[name]).items()})
        for name in names
    }
    operations = {
        _key(operation="retrieval", source="monuments"): 1,
        _key(operation="chat", provider="example", model="tiny-1"): 1,
    }
    assert counted == {
        "gen_ai.client.operation.duration": ("histogram", "s", operations),
        "gen_ai.invoke_workflow.duration": ("histogram", "s", {_key(workflow="guide"): 1}),
        "ragtrace.eval.duration": ("histogram", "s", {_key(evaluator="embedded"): 1}),
    }
    taken = [point.sum for name in names for point in metrics[name].points]
    assert all(0 < (seconds or 0) < 5 for seconds in taken)


def test_no_other_metric_of_ours_is_sent(watched: Receiver) -> None:
    """The metrics asserted here are all there are for a call without tokens, stream, judge or fault."""
    faults.clear()  # of tests before
    _ask(watched)
    ours = {metric.name for metric in watched.metrics if metric.scope == SCOPE}
    assert ours == {
        "gen_ai.client.operation.duration",
        "gen_ai.invoke_workflow.duration",
        "ragtrace.calls",
        "ragtrace.eval.duration",
        "ragtrace.eval.moment",
        "ragtrace.eval.results",
        "ragtrace.eval.score",
        "ragtrace.held.size",
        "ragtrace.queue.size",
    }

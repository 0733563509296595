"""What Phoenix and MLflow, real servers, show of the scores of a decorated call: annotations and assessments."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import pytest

import ragtrace
from ragtrace.core.score_sink import ScoreRecord
from ragtrace_exporters.mlflow import MlflowScores
from ragtrace_exporters.phoenix import PhoenixScores
from ragtrace_exporters.score_api import JsonClient
from tests.support.application import INVENTED, PASSAGES, QUESTION, ask
from tests.support.services import Phoenix

pytestmark = pytest.mark.integration

ARRIVAL_S: Final = 120.0
JUDGING_S: Final = 1.0
METRICS: Final = set(ragtrace.score(query="Where?", contexts=["In Paris."], answer="In Paris."))
"""All metrics that the default screen gives."""
EXPLANATION: Final = "of 3 claims: 2 not found, 1 supported"
T = TypeVar("T")


@pytest.fixture
def project(request: pytest.FixtureRequest, phoenix_server: Phoenix, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh project of Phoenix, named by the variables that Phoenix itself uses."""
    name = str(request.node.name)
    monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", phoenix_server.http)
    monkeypatch.setenv("PHOENIX_PROJECT_NAME", name)
    return name


@pytest.fixture
def experiment(request: pytest.FixtureRequest, mlflow_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh experiment of MLflow, named by the variables that MLflow itself uses."""
    body = {"name": str(request.node.name)}
    number = str(_ask("POST", f"{mlflow_server}/api/2.0/mlflow/experiments/create", body)["experiment_id"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", number)
    return number


def _ask(method: str, url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def _await(look: Callable[[], T], enough: Callable[[T], object]) -> T:
    """What *look* sees once that is *enough*: servers store a moment later."""
    deadline = time.monotonic() + ARRIVAL_S
    while True:
        try:
            seen = look()
            if enough(seen):
                return seen
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            seen = None  # type: ignore[assignment]
        assert time.monotonic() < deadline, f"not within {ARRIVAL_S:g} s, saw {seen}"
        threading.Event().wait(0.2)


def _expected() -> dict[str, ragtrace.Score]:
    results = ragtrace.score(query=QUESTION, contexts=list(PASSAGES), answer=INVENTED)
    return {name: result for name, result in results.items() if isinstance(result, ragtrace.Score)}


def _record(trace_id: int, span_id: int, value: float = 0.25) -> ScoreRecord:
    return ScoreRecord(
        id="0f" * 16, trace_id=trace_id, span_id=span_id, name="faithfulness", value=value, label="partly",
        explanation="1 of 4", annotator="LLM", evaluator="judge@1", metric_version="1", probability=0.5, time_ns=0,
    )  # fmt: skip


class SlowJudge:
    """Judges like the embedded one, a second later."""

    id = "slow"
    version = "1"
    type: Final = "deterministic"

    def __init__(self) -> None:
        self._judge = ragtrace.EmbeddedJudge()

    def offers(self, metric: ragtrace.metrics.Metric) -> bool:
        return self._judge.offers(metric)

    async def judge(self, call: ragtrace.RagCall) -> ragtrace.Judgement:
        await asyncio.sleep(JUDGING_S)
        return await self._judge.judge(call)


# --- Phoenix ---------------------------------------------------------------------------------------------------------


def _root(server: Phoenix, project: str) -> Mapping[str, Any]:
    def look() -> list[Any]:
        return [
            span for span in _ask("GET", f"{server.http}/v1/projects/{project}/spans")["data"] if not span["parent_id"]
        ]

    (root,) = _await(look, len)
    return dict(root)


def _annotations(server: Phoenix, project: str, count: int) -> list[dict[str, Any]]:
    trace_id = _root(server, project)["context"]["trace_id"]
    url = f"{server.http}/v1/projects/{project}/trace_annotations?trace_ids={trace_id}&limit=100"
    return _await(lambda: _ask("GET", url)["data"], lambda data: len(data) >= count)


def test_phoenix_shows_annotations(phoenix_server: Phoenix, project: str) -> None:
    """By name, with value, label and explanation, on the trace of the call."""
    ragtrace.configure(service="guide-service", exporter="phoenix")
    ask(QUESTION, INVENTED)
    assert ragtrace.flush(timeout=15.0)
    shown = {each["name"]: each for each in _annotations(phoenix_server, project, len(METRICS))}
    assert set(shown) == METRICS
    for name, score in _expected().items():
        result = shown[name]["result"]
        assert result["score"] == pytest.approx(score.value)
        assert result.get("label") == score.label
        assert shown[name]["annotator_kind"] == "CODE"
        assert shown[name]["metadata"]["probability"] == 1.0
    assert shown["consistency"]["result"]["explanation"] == EXPLANATION
    assert ragtrace.stats().sinks["phoenix"].posted == len(METRICS)


def test_phoenix_keeps_a_repeat_once(phoenix_server: Phoenix, project: str) -> None:
    """The same score posted three times, by two clients, is one annotation."""
    ragtrace.configure(service="guide-service", exporter="phoenix", metrics=["answered"])
    ask(QUESTION)
    assert ragtrace.flush(timeout=15.0)
    context = _root(phoenix_server, project)["context"]
    record = _record(int(context["trace_id"], 16), int(context["span_id"], 16))
    for _ in range(2):
        sink = PhoenixScores(JsonClient(phoenix_server.http, {}))
        assert not sink.post([record], 10.0)
    assert not sink.post([replace(record, value=0.75)], 10.0)
    _await(
        lambda: _annotations(phoenix_server, project, 2),
        lambda seen: [a["result"]["score"] for a in seen if a["name"] == "faithfulness"] == [0.75],
    )


def test_phoenix_takes_a_score_before_its_span(phoenix_server: Phoenix, project: str) -> None:
    """A score that is posted first is shown when its span has arrived."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    from ragtrace_exporters.phoenix import phoenix as preset

    signals = preset({"PHOENIX_COLLECTOR_ENDPOINT": phoenix_server.http, "PHOENIX_PROJECT_NAME": project})
    assert signals.spans is not None
    assert signals.scores is not None
    provider = TracerProvider(resource=Resource(signals.resource))
    provider.add_span_processor(SimpleSpanProcessor(signals.spans))
    span = provider.get_tracer("test").start_span("late")
    context = span.get_span_context()
    assert not signals.scores.post([_record(context.trace_id, context.span_id)], 10.0)
    span.end()
    provider.shutdown()
    assert [each["result"]["score"] for each in _annotations(phoenix_server, project, 1)] == [0.25]


def test_phoenix_shows_the_applications_latency(phoenix_server: Phoenix, project: str) -> None:
    """A judge that takes a second adds nothing to the trace, nor a trace of its own."""
    ragtrace.configure(service="guide-service", exporter="phoenix", screen=SlowJudge())
    began = time.monotonic()
    ask(QUESTION)
    asked_ms = (time.monotonic() - began) * 1000
    assert ragtrace.flush(timeout=15.0)
    _annotations(phoenix_server, project, len(METRICS))
    query = {
        "query": "{projects{edges{node{name traceCount spans(first: 10){edges{node{parentId trace{latencyMs}}}}}}}}"
    }
    edges = _ask("POST", f"{phoenix_server.http}/graphql", query)["data"]["projects"]["edges"]
    (node,) = [edge["node"] for edge in edges if edge["node"]["name"] == project]
    assert node["traceCount"] == 1
    assert node["spans"]["edges"][0]["node"]["trace"]["latencyMs"] <= asked_ms + 1 < JUDGING_S * 1000


def test_phoenix_shows_feedback_as_a_persons(phoenix_server: Phoenix, project: str) -> None:
    """On the trace of the call; another opinion takes the place of the first."""
    ragtrace.configure(service="guide-service", exporter="phoenix", metrics=["answered"])
    token = _ask_for_id()
    assert ragtrace.feedback(True, call=token, comment="fine")
    assert ragtrace.flush(timeout=15.0)
    _annotations(phoenix_server, project, 2)
    assert ragtrace.feedback(False, call=token, comment="no, wrong")
    assert ragtrace.flush(timeout=15.0)

    def given() -> list[Any]:
        return [each for each in _annotations(phoenix_server, project, 2) if each["name"] == "user_feedback"]

    (shown,) = _await(given, lambda seen: [each["result"]["score"] for each in seen] == [0.0])
    assert shown["annotator_kind"] == "HUMAN"
    assert (shown["result"]["label"], shown["result"]["explanation"]) == ("thumbs_down", "no, wrong")


# --- MLflow ----------------------------------------------------------------------------------------------------------


def _traces(server: str, experiment: str) -> list[dict[str, Any]]:
    """The traces of *experiment* with their assessments."""
    locations = [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}]
    found = _ask("POST", f"{server}/api/3.0/mlflow/traces/search", {"locations": locations, "max_results": 10})
    return [
        _ask("GET", f"{server}/api/3.0/mlflow/traces/{t['trace_id']}")["trace"]["trace_info"] for t in found["traces"]
    ]


def _assessed(server: str, experiment: str, count: int) -> dict[str, Any]:
    (trace,) = _await(
        lambda: _traces(server, experiment),
        lambda seen: len(seen) == 1 and len(seen[0].get("assessments", [])) >= count,
    )
    return trace


def test_mlflow_shows_assessments(mlflow_server: str, experiment: str) -> None:
    """By name, with value, rationale, source and label."""
    ragtrace.configure(service="guide-service", exporter="mlflow")
    ask(QUESTION, INVENTED)
    assert ragtrace.flush(timeout=15.0)
    trace = _assessed(mlflow_server, experiment, len(METRICS))
    shown = {each["assessment_name"]: each for each in trace["assessments"]}
    assert set(shown) == METRICS
    for name, score in _expected().items():
        assert shown[name]["feedback"]["value"] == pytest.approx(score.value)
        assert shown[name]["metadata"].get("label") == score.label
        assert shown[name]["source"]["source_type"] == "CODE"
        assert shown[name]["source"]["source_id"].startswith("embedded@")
    assert shown["consistency"]["rationale"] == EXPLANATION
    assert ragtrace.stats().sinks["mlflow"].posted == len(METRICS)


def test_mlflow_keeps_a_repeat_once(mlflow_server: str, experiment: str) -> None:
    """The same score posted by two clients is one assessment, and not an error."""
    ragtrace.configure(service="guide-service", exporter="mlflow", metrics=["answered"])
    ask(QUESTION)
    assert ragtrace.flush(timeout=15.0)
    trace = _assessed(mlflow_server, experiment, 1)
    record = _record(int(trace["trace_id"].removeprefix("tr-"), 16), 1)
    for _ in range(2):
        assert not MlflowScores(JsonClient(mlflow_server, {})).post([record], 10.0)
    names = [each["assessment_name"] for each in _assessed(mlflow_server, experiment, 2)["assessments"]]
    assert sorted(names) == ["answered", "faithfulness"]


def test_mlflow_gets_a_score_that_was_ready_before_its_span(mlflow_server: str, experiment: str) -> None:
    """It does not know the trace yet, so the score waits, and is there in the end."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    from ragtrace.telemetry.export.score_poster import ScorePoster
    from ragtrace_exporters.mlflow import mlflow as preset
    from tests.support.posting import call_of, evaluation_of

    signals = preset({"MLFLOW_TRACKING_URI": mlflow_server, "MLFLOW_EXPERIMENT_ID": experiment})
    assert signals.spans is not None
    assert signals.scores is not None
    poster = ScorePoster(signals.scores)
    provider = TracerProvider(resource=Resource({"service.name": "guide-service"}))
    provider.add_span_processor(SimpleSpanProcessor(signals.spans))
    span = provider.get_tracer("test").start_span("late")
    context = span.get_span_context()
    poster(call_of(context.span_id, trace_id=context.trace_id), [evaluation_of()])
    assert not poster.outbox.flush(1.0)
    assert poster.outbox.counts().pending == 1
    span.end()
    provider.shutdown()
    assert poster.outbox.close(10.0)
    (assessment,) = _assessed(mlflow_server, experiment, 1)["assessments"]
    assert assessment["feedback"]["value"] == 0.5


def test_mlflow_shows_the_applications_latency(mlflow_server: str, experiment: str) -> None:
    """A judge that takes a second adds nothing to the trace, nor a trace of its own."""
    ragtrace.configure(service="guide-service", exporter="mlflow", screen=SlowJudge())
    began = time.monotonic()
    ask(QUESTION)
    asked_s = time.monotonic() - began
    assert ragtrace.flush(timeout=15.0)
    trace = _assessed(mlflow_server, experiment, len(METRICS))
    assert float(trace["execution_duration"].removesuffix("s")) <= asked_s + 0.002 < JUDGING_S


def test_mlflow_shows_feedback_as_a_persons(mlflow_server: str, experiment: str) -> None:
    """As an assessment of the trace; another opinion takes the place of the first."""
    ragtrace.configure(service="guide-service", exporter="mlflow", metrics=["answered"])
    token = _ask_for_id()
    assert ragtrace.feedback(4, scale=(1, 5), call=token, user="u-17")
    assert ragtrace.flush(timeout=15.0)
    _assessed(mlflow_server, experiment, 2)
    assert ragtrace.feedback(2, scale=(1, 5), call=token, user="u-17", comment="less")
    assert ragtrace.flush(timeout=15.0)

    def given() -> list[Any]:
        assessments = _assessed(mlflow_server, experiment, 2)["assessments"]
        return [each for each in assessments if each["assessment_name"] == "user_feedback"]

    (shown,) = _await(given, lambda seen: [each["feedback"]["value"] for each in seen] == [0.25])
    assert shown["source"] == {"source_type": "HUMAN", "source_id": "u-17"}
    assert shown["rationale"] == "less"


@ragtrace.trace(name="guide")
def _ask_for_id() -> str:
    ask(QUESTION)
    token = ragtrace.call_id()
    assert token is not None
    return token

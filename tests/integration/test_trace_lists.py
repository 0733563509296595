"""What the lists of traces of Phoenix and MLflow, real servers, show of calls in requests to a FastAPI application."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Final

import pytest
from fastapi import FastAPI, Request, Response
from opentelemetry.sdk.trace import TracerProvider

import ragtrace
from ragtrace.testing import OpenAIServer
from tests.support.application import ANSWER, INVENTED, QUESTION, ask
from tests.support.services import Phoenix

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

pytestmark = pytest.mark.integration

ARRIVAL_S: Final = 120.0
ANSWERS: Final = (ANSWER, INVENTED)
SHOWN: Final = {
    "hallucinated", "faithfulness", "answer_relevancy", "context_relevance", "answered", "answered_without_context",
    "consistency",
}  # fmt: skip


@pytest.fixture(params=["without telemetry", "with its own telemetry"])
def client(request: pytest.FixtureRequest) -> TestClient:
    """A FastAPI application; its own spans, if it makes any, go nowhere near the backend."""
    app = FastAPI()
    tracer = TracerProvider().get_tracer("web") if request.param == "with its own telemetry" else None

    @app.middleware("http")
    async def server_span(request: Request, call_next: Any) -> Response:
        if tracer is None:
            return await call_next(request)
        with tracer.start_as_current_span(f"{request.method} {request.url.path}"):
            return await call_next(request)

    @app.post("/ask")
    async def handle(body: dict[str, str]) -> dict[str, str]:
        return {"answer": ask(QUESTION, body["answer"])}

    # Here: with the lowest versions its import warns, and these tests are not run with those.
    from fastapi.testclient import TestClient

    return TestClient(app)


def _ask(client: TestClient, exporter: str) -> None:
    with OpenAIServer() as server:
        ragtrace.configure(
            service="guide-service",
            exporter=exporter,
            judge=ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none"),
            sampling=ragtrace.Sampling(rate=1.0),
        )
        for answer in ANSWERS:
            assert client.post("/ask", json={"answer": answer}).json() == {"answer": answer}
        assert ragtrace.flush(timeout=ARRIVAL_S)


def _post(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


_ROOTS: Final = """{projects{edges{node{name spans(first: 10, filterCondition: "parent_id is None"){edges{node{
    input{value} output{value} spanAnnotations{name score} trace{traceAnnotations{name score}}}}}}}}}"""


def _phoenix_rows(base: str, project: str) -> list[dict[str, Any]]:
    edges = _post(f"{base}/graphql", {"query": _ROOTS})["data"]["projects"]["edges"]
    spans = [edge["node"]["spans"]["edges"] for edge in edges if edge["node"]["name"] == project]
    return [
        {
            "input": (row["input"] or {}).get("value"),
            "output": (row["output"] or {}).get("value"),
            "of span": {each["name"]: each["score"] for each in row["spanAnnotations"]},
            "scores": {each["name"]: each["score"] for each in row["trace"]["traceAnnotations"]},
        }
        for row in (edge["node"] for found in spans for edge in found)
    ]


def _mlflow_rows(base: str, experiment: str) -> list[dict[str, Any]]:
    where = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}
    traces = _post(f"{base}/api/3.0/mlflow/traces/search", {"locations": [where], "max_results": 10}).get("traces", [])
    return [
        {
            "input": json.loads(trace.get("request_preview") or "null"),
            "output": json.loads(trace.get("response_preview") or "null"),
            "scores": {each["assessment_name"]: each["feedback"]["value"] for each in trace.get("assessments", ())},
        }
        for trace in traces
    ]


def _awaited(rows: Any) -> dict[str, dict[str, Any]]:
    """The rows by output, once there are two with all of their scores."""
    deadline = time.monotonic() + ARRIVAL_S
    while True:
        found = rows()
        if len(found) == len(ANSWERS) and all(
            len(row["scores"]) >= len(SHOWN) and row.get("of span") != {} for row in found
        ):
            return {row["output"]: row for row in found}
        assert time.monotonic() < deadline, found
        threading.Event().wait(0.3)


def test_phoenix_lists_query_answer_and_scores(
    client: TestClient, phoenix_server: Phoenix, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """One row a call, also below a span that never comes to Phoenix; on its span the headline scores alone.

    A column shows as many as it is wide, in the order of their names, and none at all if the first is too long.
    """
    monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", phoenix_server.http)
    monkeypatch.setenv("PHOENIX_PROJECT_NAME", request.node.name)
    _ask(client, "phoenix")
    rows = _awaited(lambda: _phoenix_rows(phoenix_server.http, request.node.name))
    assert set(rows) == set(ANSWERS)
    for answer, row in rows.items():
        assert row["input"] == QUESTION
        assert set(row["scores"]) - {"suspicious"} == SHOWN
        assert row["scores"]["hallucinated"] == float(answer == INVENTED)
        assert row["of span"] == {name: row["scores"][name] for name in ("hallucinated", "faithfulness")}


def test_mlflow_lists_query_answer_and_scores(
    client: TestClient, mlflow_server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """One row a call, with request, response and assessments."""
    name = {"name": request.node.name}
    experiment = _post(f"{mlflow_server}/api/2.0/mlflow/experiments/create", name)["experiment_id"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_server)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", experiment)
    _ask(client, "mlflow")
    rows = _awaited(lambda: _mlflow_rows(mlflow_server, experiment))
    assert set(rows) == set(ANSWERS)
    for answer, row in rows.items():
        assert row["input"] == QUESTION
        assert set(row["scores"]) - {"suspicious"} == SHOWN
        assert row["scores"]["hallucinated"] == float(answer == INVENTED)

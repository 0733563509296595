"""What Arize Phoenix, a real backend, shows of a decorated call."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from typing import Any, Final

import pytest

import ragtrace
from tests.support.application import ANSWER, PASSAGES, QUESTION, ask
from tests.support.services import Phoenix

pytestmark = pytest.mark.integration

ARRIVAL_S: Final = 20.0
JUDGING_S: Final = 1.0
"""How long the slow judge takes: far longer than the application."""


@pytest.fixture(params=["http/protobuf", "grpc"])
def project(request: pytest.FixtureRequest, phoenix_server: Phoenix, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a fresh project, to which the environment sends traces by one of the two protocols."""
    name = f"{request.node.originalname}-{request.param.partition('/')[0]}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", request.param)
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_ENDPOINT", phoenix_server.grpc if request.param == "grpc" else phoenix_server.http
    )
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"openinference.project.name={name}")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")  # Phoenix takes traces only
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
    return name


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


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def _graphql(phoenix_server: Phoenix, query: str) -> Any:
    body = json.dumps({"query": query}).encode()
    request = urllib.request.Request(f"{phoenix_server.http}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        answer = json.load(response)
    assert not answer.get("errors"), answer
    return answer["data"]


def _spans(phoenix_server: Phoenix, project: str, count: int = 3) -> dict[str, dict[str, Any]]:
    """The spans of *project* by OpenInference kind, once there are *count*: Phoenix stores them a moment later."""
    deadline = time.monotonic() + ARRIVAL_S
    found: list[dict[str, Any]] = []
    while len(found) < count and time.monotonic() < deadline:
        threading.Event().wait(0.1)
        try:
            found = _get(f"{phoenix_server.http}/v1/projects/{project}/spans")["data"]
        except urllib.error.HTTPError as error:
            if error.code != 404:  # no such project yet
                raise
    assert len(found) == count, [span["name"] for span in found]
    return {span["span_kind"]: span for span in found}


def _latency_ms(phoenix_server: Phoenix, project: str) -> float:
    """The latency that Phoenix shows for the one trace of *project*."""
    projects = _graphql(
        phoenix_server, "{projects{edges{node{name spans(first: 10){edges{node{parentId trace{latencyMs}}}}}}}}"
    )["projects"]["edges"]
    (edges,) = [edge["node"]["spans"]["edges"] for edge in projects if edge["node"]["name"] == project]
    (root,) = [edge["node"] for edge in edges if edge["node"]["parentId"] is None]
    return float(root["trace"]["latencyMs"])


def _call() -> None:
    assert ask(QUESTION) == ANSWER
    assert ragtrace.flush(timeout=15.0)


def test_the_retriever_shows_its_documents(phoenix_server: Phoenix, project: str) -> None:
    """Phoenix sees a retriever span with query and documents: text, id and score, in rank order."""
    ragtrace.configure(service="guide-service", telemetry=ragtrace.TelemetryOptions(dialects=("otel", "openinference")))
    _call()
    retriever = _spans(phoenix_server, project)["RETRIEVER"]["attributes"]
    shown = {key: value for key, value in retriever.items() if key.startswith(("retrieval.documents.", "input."))}
    assert shown == {
        "input.value": QUESTION,
        "input.mime_type": "text/plain",
        "retrieval.documents.0.document.id": "doc-0",
        "retrieval.documents.0.document.score": 1.0,
        "retrieval.documents.0.document.content": PASSAGES[0],
        "retrieval.documents.1.document.id": "doc-1",
        "retrieval.documents.1.document.score": 0.5,
        "retrieval.documents.1.document.content": PASSAGES[1],
    }


def test_the_spans_have_their_kinds_and_parents(phoenix_server: Phoenix, project: str) -> None:
    """A chain with a retriever and an LLM span below it, in one trace, with question and answer."""
    ragtrace.configure(service="guide-service", telemetry=ragtrace.TelemetryOptions(dialects=("otel", "openinference")))
    _call()
    spans = _spans(phoenix_server, project)
    root = spans["CHAIN"]
    assert {kind: span["parent_id"] for kind, span in spans.items()} == {
        "CHAIN": None,
        "RETRIEVER": root["context"]["span_id"],
        "LLM": root["context"]["span_id"],
    }
    assert len({span["context"]["trace_id"] for span in spans.values()}) == 1
    assert (root["attributes"]["input.value"], root["attributes"]["output.value"]) == (QUESTION, ANSWER)


def test_the_root_shows_its_scores(phoenix_server: Phoenix, project: str) -> None:
    """The scores are attributes of the root span, as `ragtrace.score` computes them."""
    ragtrace.configure(service="guide-service", telemetry=ragtrace.TelemetryOptions(dialects=("otel", "openinference")))
    _call()
    root = _spans(phoenix_server, project)["CHAIN"]["attributes"]
    results = ragtrace.score(query=QUESTION, contexts=list(PASSAGES), answer=ANSWER)
    expected = {
        f"ragtrace.eval.{name}.score": pytest.approx(result.value)
        for name, result in results.items()
        if isinstance(result, ragtrace.Score)
    }
    assert {key: value for key, value in root.items() if key.endswith(".score")} == expected
    assert root["ragtrace.eval.status"] == "ok"
    assert set(expected) >= {"ragtrace.eval.consistency.score", "ragtrace.eval.answered.score"}


def test_the_documents_are_read_from_the_otel_dialect_too(phoenix_server: Phoenix, project: str) -> None:
    """Without the OpenInference dialect Phoenix still finds the documents, through its own reading of gen_ai names."""
    ragtrace.configure(service="guide-service")
    _call()
    spans = _spans(phoenix_server, project)
    documents = spans["RETRIEVER"]["attributes"]
    assert [documents[f"retrieval.documents.{rank}.document.content"] for rank in (0, 1)] == list(PASSAGES)


def test_the_latency_is_the_applications(phoenix_server: Phoenix, project: str) -> None:
    """A judge that takes a second adds nothing to the latency that Phoenix shows for the trace."""
    ragtrace.configure(
        service="guide-service",
        telemetry=ragtrace.TelemetryOptions(dialects=("otel", "openinference")),
        screen=SlowJudge(),
    )
    began = time.monotonic()
    ask(QUESTION)
    asked_ms = (time.monotonic() - began) * 1000
    assert ragtrace.flush(timeout=15.0)
    spans = _spans(phoenix_server, project)
    assert spans["CHAIN"]["attributes"]["ragtrace.eval.status"] == "ok"
    assert _latency_ms(phoenix_server, project) <= asked_ms + 1 < JUDGING_S * 1000


def test_two_services_are_two_projects(phoenix_server: Phoenix, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the name of its service, and its own spans alone."""
    monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", phoenix_server.http)
    for service in ("a shop", "a library"):
        ragtrace.configure(service=service, exporter="phoenix", metrics=["consistency"])
        ask(QUESTION)
        assert ragtrace.flush(timeout=10.0)
    for service in ("a shop", "a library"):
        assert len(_spans(phoenix_server, service.replace(" ", "%20"))) == 3

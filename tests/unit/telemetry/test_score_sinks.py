"""What each native sink posts, held against a server that enforces the backend's documented contract."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest

from ragtrace.core.score_sink import Refusal, ScoreRecord, ScoreSink
from ragtrace_exporters.datadog import DatadogScores, label_of
from ragtrace_exporters.langfuse import LangfuseScores
from ragtrace_exporters.mlflow import MlflowScores
from ragtrace_exporters.opik import OpikScores, opik_id
from ragtrace_exporters.phoenix import PhoenixScores
from ragtrace_exporters.score_api import JsonClient
from tests.support.backends import Answer, Backend, Datadog, Langfuse, Opik, Request
from tests.support.posting import SPAN, TRACE

TIMEOUT: Final = 5.0
SECRET: Final = "a-very-secret-key"
SINKS: Final[Mapping[str, Callable[[JsonClient], ScoreSink]]] = {
    "phoenix": PhoenixScores,
    "mlflow": MlflowScores,
    "langfuse": LangfuseScores,
    "datadog": DatadogScores,
    "opik": OpikScores,
}


def _record(number: int = 0, **fields: Any) -> ScoreRecord:
    record = ScoreRecord(
        id=f"{number:032x}", trace_id=TRACE, span_id=SPAN, name="faithfulness", value=0.5, label="partly",
        explanation="of 2 claims: 1 supported", annotator="LLM", evaluator="judge@2", metric_version="1",
        probability=0.25, time_ns=1_700_000_000_123_456_789, service="guide", workflow="qa",
    )  # fmt: skip
    return replace(record, **fields)


@pytest.fixture(params=SINKS)
def name(request: pytest.FixtureRequest) -> str:
    """Name of a backend."""
    return str(request.param)


def _sink(name: str, server: Backend) -> ScoreSink:
    return SINKS[name](JsonClient(server.url, {"authorization": f"Bearer {SECRET}"}))


# --- what is the same for all ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_backend_is_left_alone_as_long_as_it_wants(name: str, status: int) -> None:
    """The scores go again later, and so does everything else."""
    with Backend(lambda _: Answer(status, {}, {"Retry-After": "7"})) as server:
        refusals = _sink(name, server).post([_record(1), _record(2)], TIMEOUT)
    assert set(refusals) == {_record(1).id, _record(2).id}
    assert {(each.reason, each.again, each.busy, each.after_s) for each in refusals.values()} == {
        ("unavailable", True, True, 7.0)
    }
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_is_said_without_it(name: str, status: int) -> None:
    """The server may repeat the key in its answer: we do not."""
    with Backend(lambda request: Answer(status, {"message": f"bad {request.headers.get('authorization')}"})) as server:
        (refusal,) = _sink(name, server).post([_record()], TIMEOUT).values()
    assert (refusal.reason, refusal.again) == ("unauthorized", False)
    assert SECRET not in refusal.detail
    assert f"status {status}" in refusal.detail


def test_a_bad_request_is_refused_for_good(name: str) -> None:
    """It would be bad again."""
    with Backend(lambda _: Answer(400, {"message": "no"})) as server:
        (refusal,) = _sink(name, server).post([_record()], TIMEOUT).values()
    assert (refusal.reason, refusal.again) == ("refused", False)


NO: Final = (
    {"error": "no such project"}, {"errors": [{"id": "1", "message": "bad score"}]}, {"success": False},
    {"error_code": "INVALID_PARAMETER_VALUE", "message": "bad score"}, {"ok": False},
)  # fmt: skip


@pytest.mark.parametrize("body", NO)
@pytest.mark.parametrize("status", [200, 202, 207])
def test_an_answer_of_success_whose_body_says_no_is_a_refusal(name: str, status: int, body: dict[str, Any]) -> None:
    """Nothing was stored, and the reason is the backend's."""
    with Backend(_of_opik(lambda _: Answer(status, body))) as server:
        refusals = _sink(name, server).post([_record(1), _record(2)], TIMEOUT)
    assert refusals.keys() == {_record(1).id, _record(2).id}
    assert {(each.reason, each.again) for each in refusals.values()} == {("refused", False)}
    assert all(f"status {status}" in each.detail for each in refusals.values())


def test_a_page_of_a_proxy_is_no_answer_of_the_backend(name: str) -> None:
    """The scores are posted again when it is gone."""
    with Backend(lambda _: Answer(200, b"\n<!doctype html><title>Maintenance</title>")) as server:
        refusals = _sink(name, server).post([_record(1), _record(2)], TIMEOUT)
    assert {(each.reason, each.again, each.busy) for each in refusals.values()} == {("unavailable", True, True)}


@pytest.mark.parametrize("body", [{"error": None, "errors": [], "success": True}, {"data": [{"error": "of a span"}]}])
def test_an_answer_without_an_error_is_a_success(name: str, body: dict[str, Any]) -> None:
    """As some servers name all fields, and quote what they have."""
    with Backend(_of_opik(lambda _: Answer(200, body))) as server:
        assert not _sink(name, server).post([_record()], TIMEOUT)


def _of_opik(contract: Callable[[Request], Answer]) -> Callable[[Request], Answer]:
    """*contract*, with what Opik is asked before: when the trace began."""
    traces = {"content": [{"id": str(opik_id(TRACE.to_bytes(16, "big"), 77))}]}
    return lambda request: Answer(200, traces) if request.method == "GET" else contract(request)


def test_nobody_there_is_for_the_moment(name: str) -> None:
    """A refused connection is no answer."""
    with Backend() as server:
        sink = _sink(name, server)
    (refusal,) = sink.post([_record()], TIMEOUT).values()
    assert (refusal.reason, refusal.again, refusal.busy) == ("unavailable", True, True)


def test_a_hanging_backend_is_not_waited_for_longer_than_told(name: str) -> None:
    """The time limit is for the whole post."""
    with Backend() as server:
        server.gate.clear()
        posted: list[Mapping[str, Refusal]] = []
        sink = _sink(name, server)
        thread = threading.Thread(target=lambda: posted.append(sink.post([_record(1), _record(2)], 0.3)))
        thread.start()
        thread.join(3.0)
        assert not thread.is_alive()
    assert {each.again for each in posted[0].values()} == {True}
    assert len(posted[0]) == 2


def test_a_redirect_is_not_followed(name: str) -> None:
    """The key is for this server alone."""
    with Backend() as elsewhere, Backend(lambda _: Answer(302, {}, {"Location": elsewhere.url})) as server:
        (refusal,) = _sink(name, server).post([_record()], TIMEOUT).values()
        assert refusal.reason == "refused"
        assert not elsewhere.requests


def test_a_key_that_no_header_can_hold_is_no_crash(name: str) -> None:
    """It is refused as a request that could not be made."""
    with Backend() as server:
        sink = SINKS[name](JsonClient(server.url, {"authorization": "schl\u00fcssel \u20ac"}))
        assert sink.post([_record()], TIMEOUT)


# --- Phoenix ---------------------------------------------------------------------------------------------------------


def test_phoenix_gets_all_in_one_request() -> None:
    """Queued by the server (`sync=false`), with our id as the identifier."""
    with Backend() as server:
        assert not _sink("phoenix", server).post([_record(1), _record(2, label=None, explanation=None)], TIMEOUT)
    (request,) = server.requests
    assert (request.method, request.path, request.query) == ("POST", "/v1/trace_annotations", {"sync": "false"})
    first, second = request.body["data"]
    assert first == {
        "trace_id": f"{TRACE:032x}",
        "name": "faithfulness",
        "annotator_kind": "LLM",
        "identifier": _record(1).id,
        "result": {"score": 0.5, "label": "partly", "explanation": "of 2 claims: 1 supported"},
        "metadata": {
            "score_id": _record(1).id,
            "evaluator": "judge@2",
            "metric_version": "1",
            "probability": 0.25,
            "workflow": "qa",
            "span_id": f"{SPAN:016x}",
        },
    }
    assert second["result"] == {"score": 0.5}


def test_phoenix_gets_the_headline_scores_of_the_span_too() -> None:
    """With the same identifier, so that a repeat replaces them; refused for the trace, they come again."""
    with Backend() as server:
        server.answer_first(Answer(200), Answer(503))
        sink = _sink("phoenix", server)
        records = [_record(1, headline=True), _record(2, name="answered")]
        assert {refusal.again for refusal in sink.post(records, TIMEOUT).values()} == {True}
        assert not sink.post(records, TIMEOUT)
    assert [request.path for request in server.requests] == ["/v1/span_annotations", "/v1/trace_annotations"] * 2
    (annotation,), of_trace = (request.body["data"] for request in server.requests[-2:])
    assert (annotation["span_id"], annotation["identifier"]) == (f"{SPAN:016x}", _record(1).id)
    assert "trace_id" not in annotation
    assert [(each["trace_id"], each["name"]) for each in of_trace] == [
        (f"{TRACE:032x}", "faithfulness"),
        (f"{TRACE:032x}", "answered"),
    ]


def test_phoenixs_reserved_name_is_avoided() -> None:
    """It refuses a whole request with a "note" in it."""
    with Backend() as server:
        assert not _sink("phoenix", server).post([_record(name="note")], TIMEOUT)
    assert server.requests[0].body["data"][0]["name"] == "note_"


# --- MLflow ----------------------------------------------------------------------------------------------------------


def test_mlflow_is_asked_once_about_an_unknown_trace() -> None:
    """The other scores of that trace wait without a request."""

    def contract(request: Request) -> Answer:
        unknown = f"{TRACE:032x}" in request.path
        return Answer(404, {"error_code": "RESOURCE_DOES_NOT_EXIST"}) if unknown else Answer()

    with Backend(contract) as server:
        scores = [_record(1), _record(2, trace_id=7), _record(3)]
        refusals = _sink("mlflow", server).post(scores, TIMEOUT)
    assert {id_: (each.reason, each.again, each.busy) for id_, each in refusals.items()} == {
        _record(1).id: ("unknown_trace", True, False),
        _record(3).id: ("unknown_trace", True, False),
    }
    assert len(server.requests) == 2


def test_mlflow_that_is_not_there_is_no_unknown_trace() -> None:
    """A 404 of something else, a proxy say, is an error to be told about."""
    with Backend(lambda _: Answer(404, b"<html>")) as server:
        (refusal,) = _sink("mlflow", server).post([_record()], TIMEOUT).values()
    assert (refusal.reason, refusal.again) == ("refused", False)


def test_mlflows_broken_constraint_is_looked_into() -> None:
    """It has that assessment already, or it has not: then it is an error of its own."""
    there = True

    def contract(request: Request) -> Answer:
        if request.method == "GET":
            return Answer(200 if there else 404)
        return Answer(500, {"error_code": "INTERNAL_ERROR", "message": "due to a constraint violation."})

    with Backend(contract) as server:
        sink = _sink("mlflow", server)
        assert not sink.post([_record()], TIMEOUT)
        there = False
        (refusal,) = sink.post([_record()], TIMEOUT).values()
    assert (refusal.reason, refusal.again) == ("server_error", True)


def test_mlflow_replaces_the_feedback_of_a_person() -> None:
    """What a judge said before stays as it is; a person has another opinion now."""

    def contract(request: Request) -> Answer:
        return Answer(500, {"message": "due to a constraint violation."}) if request.method == "POST" else Answer()

    with Backend(contract) as server:
        sink = _sink("mlflow", server)
        assert not sink.post([_record()], TIMEOUT)
        assert [request.method for request in server.requests] == ["POST", "GET"]
        assert not sink.post([_record(annotator="HUMAN", value=1.0)], TIMEOUT)
    patch = server.requests[-1]
    assert (patch.method, patch.path.endswith(f"/assessments/a-{_record().id}")) == ("PATCH", True)
    assert patch.body["assessment"]["feedback"] == {"value": 1.0}
    assert patch.body["update_mask"] == "feedback,rationale,metadata"


# --- Langfuse --------------------------------------------------------------------------------------------------------


def test_langfuse_takes_the_scores() -> None:
    """Numeric, of the observation, with a comment; a repeat has the same id."""
    contract = Langfuse("Basic cGs6c2s=")
    with Backend(contract) as server:
        sink = LangfuseScores(JsonClient(server.url, {"authorization": "Basic cGs6c2s="}), "staging")
        for _ in range(2):
            assert not sink.post([_record(1), _record(2, name="hallucination", explanation=None)], TIMEOUT)
    first, second = contract.scores.values()
    assert (first["id"], first["traceId"], first["observationId"]) == (_record(1).id, f"{TRACE:032x}", f"{SPAN:016x}")
    assert (first["name"], first["value"], first["comment"]) == ("faithfulness", 0.5, "of 2 claims: 1 supported")
    assert first["metadata"] == {
        "score_id": _record(1).id, "evaluator": "judge@2", "metric_version": "1", "probability": 0.25,
        "workflow": "qa", "annotator": "LLM", "label": "partly",
    }  # fmt: skip
    assert first["environment"] == "staging"
    assert "comment" not in second


def test_langfuse_gets_the_headline_scores_of_the_trace_too() -> None:
    """Under an id of their own, which is the same for every repeat."""
    contract = Langfuse("Basic cGs6c2s=")
    with Backend(contract) as server:
        sink = LangfuseScores(JsonClient(server.url, {"authorization": "Basic cGs6c2s="}))
        for _ in range(2):
            assert not sink.post([_record(1, headline=True)], TIMEOUT)
    of_span, of_trace = contract.scores.values()
    assert (of_span["observationId"], of_trace.get("observationId")) == (f"{SPAN:016x}", None)
    assert (of_trace["id"], of_trace["traceId"], of_trace["value"]) == (f"{of_span['id']}-trace", f"{TRACE:032x}", 0.5)


# --- Datadog ---------------------------------------------------------------------------------------------------------


def test_datadog_takes_the_evaluations() -> None:
    """Decimal ids, the tag for spans from OpenTelemetry, a label in its characters."""
    contract = Datadog(SECRET)
    with Backend(contract) as server:
        sink = DatadogScores(JsonClient(server.url, {"dd-api-key": SECRET}), "")
        assert not sink.post([_record(1), _record(2, name="2nd metric: caf\u00e9")], TIMEOUT)
    first, second = contract.metrics
    assert first["join_on"] == {"span": {"span_id": str(SPAN), "trace_id": str(TRACE)}}
    assert (first["ml_app"], first["label"], first["score_value"]) == ("guide", "faithfulness", 0.5)
    assert first["timestamp_ms"] == 1_700_000_000_123
    assert first["reasoning"] == "of 2 claims: 1 supported"
    assert {"source:otel", f"score_id:{_record(1).id}", "evaluator:judge@2", "probability:0.25"} <= set(first["tags"])
    assert second["label"] == "m_2nd_metric__caf_"


@pytest.mark.parametrize(
    ("metric", "label"),
    [("faithfulness", "faithfulness"), ("a.b-c", "a_b_c"), ("9", "m_9"), ("x" * 300, "x" * 200), ("\u00e9", "m__")],
)
def test_a_label_has_datadogs_characters(metric: str, label: str) -> None:
    """It begins with a letter, and has only ASCII letters, digits and underscores, at most 200."""
    assert label_of(metric) == label


# --- Opik ------------------------------------------------------------------------------------------------------------


def _opik(server: Backend, project: str = "") -> OpikScores:
    return OpikScores(JsonClient(server.url, {"Authorization": SECRET, "Comet-Workspace": "team"}), project)


def test_opik_gives_ids_from_time_and_hash() -> None:
    """Version 7, variant 2, the time in front, the SHA-256 of the OpenTelemetry id behind it."""
    id_ = opik_id(SPAN.to_bytes(8, "big"), 1_700_000_000_123)
    assert (id_.version, id_.variant) == (7, UUID(int=0x8000000000000000).variant)
    assert id_.int >> 80 == 1_700_000_000_123
    assert opik_id(SPAN.to_bytes(8, "big"), 5).bytes[6:] == id_.bytes[6:]


def test_opik_takes_the_scores_of_the_span() -> None:
    """The id of the span follows from that of its trace, which is asked for once."""
    contract = Opik(SECRET)
    contract.traces = [str(opik_id(b"another", 1_700_000_000_000)), str(opik_id(TRACE.to_bytes(16, "big"), 1_234_567))]
    with Backend(contract) as server:
        sink = _opik(server, "guide")
        assert not sink.post([_record(1), _record(2, name="hallucination")], TIMEOUT)
        assert not sink.post([_record(3, name="answered")], TIMEOUT)
    span = str(opik_id(SPAN.to_bytes(8, "big"), 1_234_567))
    assert set(contract.scores) == {(span, "faithfulness"), (span, "hallucination"), (span, "answered")}
    score = contract.scores[span, "faithfulness"]
    assert (score["value"], score["category_name"], score["project_name"]) == (0.5, "partly", "guide")
    assert score["reason"].startswith("of 2 claims: 1 supported\nscore_id: ")
    assert [request.method for request in server.requests] == ["GET", "PUT", "PUT"]
    assert server.requests[0].query["project_name"] == "guide"


def test_opik_does_not_know_a_trace_before_it_arrives() -> None:
    """Its scores wait; those of another trace are posted."""
    contract = Opik(SECRET)
    contract.traces = [str(opik_id((9).to_bytes(16, "big"), 77))]
    with Backend(contract) as server:
        refusals = _opik(server).post([_record(1), _record(2, trace_id=9)], TIMEOUT)
    assert {id_: (each.reason, each.again) for id_, each in refusals.items()} == {
        _record(1).id: ("unknown_trace", True)
    }
    assert len(contract.scores) == 1


def test_opiks_strange_answer_is_no_crash() -> None:
    """No page, no ids, no JSON: the trace is not there."""
    for body in (b"none", json.dumps({"content": [{}]}).encode(), b"[]"):
        with Backend(lambda _, body=body: Answer(200, body)) as server:  # type: ignore[misc]
            (refusal,) = _opik(server).post([_record()], TIMEOUT).values()
        assert refusal.reason == "unknown_trace"

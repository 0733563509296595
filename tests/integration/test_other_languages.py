"""Applications without Python send spans to `ragtrace serve`: the spans arrive unchanged, and the calls are scored."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.gateway import raw_http_upstream, serving
from tests.support.otlp import GrpcReceiver, HttpReceiver, Receiver
from tests.support.services import require

pytestmark = pytest.mark.integration

APPLICATION: Final = Path(__file__).parents[1] / "files" / "node_application.js"
CALLS: Final = 3
END_S: Final = 60.0
SETTLED: Final = ("--settle-seconds", "0.5")


def run_node(url: str, grpc: str, protocol: str, compression: str) -> None:
    """Run the application in JavaScript, which exports to the gateway by *protocol*."""
    packages = require("node_modules", "node-opentelemetry")
    environ = {
        "NODE_PATH": packages,
        "OTEL_SERVICE_NAME": "shop",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_NODE_RESOURCE_DETECTORS": "env",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{grpc}" if protocol == "grpc" else url.removesuffix("/v1/traces"),
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
    }
    command = [require("node"), str(APPLICATION), str(CALLS)]
    path = {"PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=path | environ, capture_output=True, text=True, timeout=END_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def await_scores(receiver: Receiver, calls: int) -> None:
    """Wait until the scores of *calls* have come, and check that each is of the call that it is linked to."""
    receiver.wait_for(lambda got: sum(span.name == "evaluate ask" for span in got.spans) >= calls, END_S)
    roots = {(span.trace_id, span.span_id) for span in receiver.spans if span.name == "ask"}
    carriers = [span for span in receiver.spans if span.name == "evaluate ask"]
    linked = {(link.trace_id, link.span_id) for carrier in carriers for link in carrier.links}
    assert linked == roots
    assert len(carriers) == calls
    for carrier in carriers:
        assert carrier.attributes["ragtrace.eval.consistency.score"] > 0.5


@pytest.mark.parametrize(("protocol", "compression"), [("http/protobuf", "gzip"), ("grpc", "none")])
def test_an_application_in_javascript_is_scored(protocol: str, compression: str, http_receiver: HttpReceiver) -> None:
    """OpenTelemetry's SDK for Node.js with OpenInference, by each protocol that the SDK has."""
    require("node_modules", "node-opentelemetry")
    with serving(*SETTLED, **http_receiver.environ) as (_, url, grpc):
        run_node(url, grpc, protocol, compression)
        await_scores(http_receiver, CALLS)
    names = [span.name for span in http_receiver.spans if span.resource["service.name"] == "shop"]
    assert sorted(names) == sorted(["ask", "search", "chat"] * CALLS)


def test_json_of_javascript_reaches_a_backend_of_grpc(grpc_receiver: GrpcReceiver) -> None:
    """The one case in which spans are encoded anew."""
    require("node_modules", "node-opentelemetry")
    with serving(*SETTLED, **grpc_receiver.environ) as (_, url, grpc):
        run_node(url, grpc, "http/json", "none")
        await_scores(grpc_receiver, CALLS)
    shop = [span for span in grpc_receiver.spans if span.resource["service.name"] == "shop"]
    assert {span.attributes.get("retrieval.documents.0.document.score") for span in shop} == {None, 0.87}
    assert {span.attributes.get("llm.token_count.prompt") for span in shop} == {None, 31}


# --- curl -------------------------------------------------------------------------------------------------------------


def attribute(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, "value": value}


def texts(**values: str) -> list[dict[str, Any]]:
    return [attribute(key.replace("__", "."), {"stringValue": value}) for key, value in values.items()]


def request_of_a_script() -> bytes:
    """Return a request as OpenTelemetry's examples of OTLP JSON are written.

    Ids are hexadecimal in capitals, whole numbers are texts or numbers, kinds are numbers, and a field is unknown.

    Source: opentelemetry-proto, examples/trace.json, and docs/specification.md, "JSON Protobuf Encoding".
    """
    trace, root = "5B8EFFF798038103D269B633813FC60C", "EEE19B7EC3C1B174"
    question, answer = "How tall is the Eiffel Tower?", "The Eiffel Tower is 330 metres tall."
    times = {"startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000"}
    passage = texts(retrieval__documents__0__document__content="The Eiffel Tower in Paris is 330 metres tall.")
    every_type = [
        attribute("my.int", {"intValue": "42"}),
        attribute("my.number", {"intValue": 42}),
        attribute("my.double", {"doubleValue": 0.5}),
        attribute("my.bool", {"boolValue": True}),
        attribute("my.bytes", {"bytesValue": "AAEC"}),
        attribute("my.list", {"arrayValue": {"values": [{"stringValue": "a"}, {"stringValue": "b"}]}}),
        attribute("my.map", {"kvlistValue": {"values": texts(key="value")}}),
        attribute("my.nothing", {}),
    ]
    spans = [
        {
            "traceId": trace,
            "spanId": "EEE19B7EC3C1B175",
            "parentSpanId": root,
            "name": "search",
            "kind": 3,
            **times,
            "attributes": texts(openinference__span__kind="RETRIEVER", input__value=question) + passage,
        },
        {
            "traceId": trace,
            "spanId": root,
            "parentSpanId": "",
            "name": "ask",
            "kind": 2,
            **times,
            "attributes": texts(openinference__span__kind="CHAIN", input__value=question, output__value=answer)
            + every_type,
            "events": [{"timeUnixNano": "1544712660500000000", "name": "found", "attributes": every_type}],
            "status": {"code": 1},
            "aFieldOfTomorrow": {"deep": [1]},
        },
    ]
    scope = {"name": "my.library", "version": "1.0.0", "attributes": texts(my__scope__attribute="some scope attribute")}
    resource = {"attributes": texts(service__name="my.service")}
    return json.dumps(
        {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]}
    ).encode()


def curl(url: str, body: Path, *headers: str) -> tuple[int, str]:
    """Post the file *body* as a shell script would; return the status and the answer."""
    command = [require("curl"), "-sS", "--data-binary", f"@{body}", "-w", "\n%{http_code}", url]
    for header in ("content-type: application/json", *headers):
        command += ["-H", header]
    done = subprocess.run(command, capture_output=True, text=True, timeout=END_S, check=True)
    answer, _, status = done.stdout.rpartition("\n")
    return int(status), answer


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_json_by_curl_arrives_as_it_was_sent(encoding: str, tmp_path: Path) -> None:
    """Compressed or not, the backend gets the bytes of the file, and later the scores."""
    body = tmp_path / "trace.json"
    body.write_bytes(gzip.compress(request_of_a_script()) if encoding else request_of_a_script())
    headers = [f"content-encoding: {encoding}"] if encoding else []
    with raw_http_upstream() as upstream, serving(**upstream.environ) as (process, url, _):
        assert curl(url, body, *headers) == (200, "{}")
        assert upstream.bodies[0] == body.read_bytes()
        assert upstream.headers[0].get("content-encoding", "") == encoding
        process.terminate()
        _, errors = process.communicate(timeout=END_S)
        assert process.returncode == 0, errors
    assert any(b"evaluate ask" in sent for sent in upstream.bodies[1:])


def test_a_call_by_curl_is_scored_with_a_backend_of_grpc(grpc_receiver: GrpcReceiver, tmp_path: Path) -> None:
    """JSON is encoded anew with ids in capitals, values of every type and fields of a later version."""
    body = tmp_path / "trace.json"
    body.write_bytes(request_of_a_script())
    with serving(*SETTLED, **grpc_receiver.environ) as (_, url, _):
        assert curl(url, body) == (200, "{}")
        await_scores(grpc_receiver, 1)
    root = next(span for span in grpc_receiver.spans if span.name == "ask")
    assert root.trace_id == "5b8efff798038103d269b633813fc60c"
    assert {key: value for key, value in root.attributes.items() if key.startswith("my.")} == {
        "my.int": 42,
        "my.number": 42,
        "my.double": 0.5,
        "my.bool": True,
        "my.bytes": b"\0\1\2",
        "my.list": ["a", "b"],
        "my.map": {"key": "value"},
        "my.nothing": None,
    }

"""The gateway forwards the bytes that it received, acknowledges what was accepted, and scores the calls in them."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from statistics import median
from time import monotonic, perf_counter
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
import httpx
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

import ragtrace
from ragtrace.core.errors import SettingsError
from ragtrace.gateway.serving import GatewaySettings, serve, upstream_endpoint
from ragtrace.gateway.upstream import METHOD
from ragtrace.testing import FakeJudge
from tests.support.gateway import (
    RunningGateway,
    json_request,
    json_span,
    raw_grpc_upstream,
    raw_http_upstream,
    running_gateway,
    trace_calls,
)
from tests.support.otlp import GrpcReceiver, HttpReceiver

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}


def protobuf_request(spans: int = 1) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(spans):
        scope.spans.add(
            trace_id=b"\1" * 16,
            span_id=(number + 1).to_bytes(8, "big"),
            name="ask",
            start_time_unix_nano=1,
            end_time_unix_nano=2,
        )
    return request.SerializeToString() + b"\xfa\x3f\x03new"  # with a field of a later version of OTLP


def call_grpc(running: RunningGateway, body: bytes, **options: Any) -> bytes:
    with grpc.insecure_channel(running.addresses.grpc) as channel:
        answer: bytes = channel.unary_unary(METHOD)(body, timeout=10, **options)
        return answer


# --- the scores -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_calls_in_received_spans_are_scored(
    protocol: str, http_receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spans are in the backend, and beside them events, metrics and a linked span with the scores."""
    for name, value in http_receiver.environ.items():
        monkeypatch.setenv(name, value)
    ragtrace.configure(service="gateway")
    with running_gateway(http_receiver.environ) as running:
        exporter: Any = (
            GrpcExporter(endpoint=running.addresses.grpc, insecure=True)
            if protocol == "grpc"
            else HttpExporter(endpoint=running.url, compression=Compression.Gzip)
        )
        (root,) = trace_calls(exporter)
        http_receiver.wait_for(lambda got: len(got.spans) >= 3)
    assert ragtrace.shutdown(timeout=10.0)
    spans = {span.name: span for span in http_receiver.spans}
    assert set(spans) == {"ask", "search", "chat", "evaluate ask"}
    carrier = spans["evaluate ask"]
    assert [(link.trace_id, link.span_id) for link in carrier.links] == [
        (f"{root.trace_id:032x}", f"{root.span_id:016x}")
    ]
    assert carrier.attributes["ragtrace.eval.consistency.score"] > 0.5
    assert "gen_ai.evaluation.result" in {log.event_name for log in http_receiver.logs}
    metrics = http_receiver.latest_metrics()
    counts = {
        (point.attributes["ragtrace.outcome"], point.attributes.get("ragtrace.reason")): point.value
        for point in metrics["ragtrace.gateway.spans"].points
    }
    assert counts == {("received", None): 3, ("forwarded", None): 3}
    assert [point.value for point in metrics["ragtrace.gateway.calls"].points] == [1]
    assert "ragtrace.eval.score" in metrics


def test_a_call_that_its_process_has_evaluated_is_not_scored_again() -> None:
    """A decorated application that scores its own calls may send its spans through the gateway."""
    ragtrace.configure(exporter="none")
    texts = {
        "openinference.span.kind": "CHAIN",
        "input.value": "Q?",
        "output.value": "A.",
        "ragtrace.eval.status": "ok",
    }
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in texts.items()]
    with running_gateway({}) as running:
        body = json_request(json_span(attributes=attributes))
        assert httpx.post(running.url, content=body, headers=JSON).status_code == 200
        gateway = running.gateway
    assert gateway.scorer is not None
    assert gateway.scorer.call_counts() == {("skipped", "already_evaluated"): 1}


def test_the_tags_on_received_spans_are_those_of_the_call() -> None:
    """Of ragtrace's own attributes, and of OpenInference's metadata."""
    judge = FakeJudge(ragtrace.Judgement(consistency=1.0))
    ragtrace.configure(exporter="none", screen=judge)
    texts = {
        "openinference.span.kind": "CHAIN",
        "input.value": "Q?",
        "output.value": "A.",
        "metadata": '{"plan": "free"}',
        "ragtrace.tag.tenant": "acme",
    }
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in texts.items()]
    with running_gateway({}) as running:
        body = json_request(json_span(attributes=attributes))
        assert httpx.post(running.url, content=body, headers=JSON).status_code == 200
    assert ragtrace.flush(10)
    assert [call.tags for call in judge.calls] == [{"tenant": "acme", "plan": "free"}]


def test_a_call_whose_root_never_comes_is_incomplete() -> None:
    """A trace that went to two replicas is counted, not scored."""
    ragtrace.configure(exporter="none")
    texts = {"openinference.span.kind": "LLM", "llm.output_messages.0.message.content": "A."}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in texts.items()]
    with running_gateway({}) as running:
        body = json_request(json_span(attributes=attributes, parentSpanId="eee19b7ec3c1b175"))
        assert httpx.post(running.url, content=body, headers=JSON).json() == {}
        gateway = running.gateway
    assert gateway.scorer is not None
    assert gateway.scorer.call_counts() == {}
    assert gateway.scorer.span_counts() == {("read", ""): 1, ("left_out", "incomplete"): 1}
    assert ragtrace.stats().faults["gateway: steps in no call: incomplete"] >= 1


def test_more_calls_than_the_queue_holds_are_scored_at_the_end() -> None:
    """Calls that are still waited for are submitted all at once when the gateway ends; each one waits for room."""
    ragtrace.configure(exporter="none", metrics=["consistency"], limits=ragtrace.Limits(capacity=2))
    with running_gateway({}, settle_seconds=60.0) as running:
        trace_calls(HttpExporter(endpoint=running.url), 40)
    assert ragtrace.flush(timeout=10.0)
    (tally,) = ragtrace.stats().evaluators.values()
    assert (tally.offered, tally.scored, tally.dropped) == (40, 40, {})


# --- forwarding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
def test_the_upstream_gets_the_received_bytes(encoding: str) -> None:
    """Compressed as they came, with fields that the gateway does not know."""
    packed = {"": protobuf_request(), "gzip": gzip.compress(protobuf_request())}
    packed["deflate"] = zlib.compress(protobuf_request())
    headers = PROTOBUF | ({"content-encoding": encoding} if encoding else {})
    with raw_http_upstream() as upstream, running_gateway(upstream.environ) as running:
        assert httpx.post(running.url, content=packed[encoding], headers=headers).status_code == 200
    assert upstream.bodies == [packed[encoding]]
    assert upstream.headers[0].get("content-encoding", "") == encoding


def test_a_message_of_grpc_reaches_either_upstream_unchanged() -> None:
    """Both protocols carry the same bytes of protobuf."""
    with raw_http_upstream() as upstream, running_gateway(upstream.environ) as running:
        assert call_grpc(running, protobuf_request()) == b""
    assert upstream.bodies == [protobuf_request()]
    with raw_grpc_upstream() as upstream, running_gateway(upstream.environ) as running:
        assert call_grpc(running, protobuf_request(), compression=grpc.Compression.Gzip) == b""
        gzipped = gzip.compress(protobuf_request())
        assert httpx.post(running.url, content=gzipped, headers=PROTOBUF | {"content-encoding": "gzip"}).content == b""
    assert upstream.bodies == [protobuf_request()] * 2


def test_json_stays_json_and_becomes_protobuf_for_an_upstream_of_grpc() -> None:
    """As a script posts it."""
    body = json_request(json_span(attributes=[{"key": "n", "value": {"intValue": "3"}}]))
    with raw_http_upstream() as upstream, running_gateway(upstream.environ) as running:
        assert httpx.post(running.url, content=body, headers=JSON).json() == {}
    assert upstream.bodies == [body]
    assert upstream.headers[0]["content-type"] == "application/json"
    with raw_grpc_upstream() as upstream, running_gateway(upstream.environ) as running:
        assert httpx.post(running.url, content=body, headers=JSON).json() == {}
    (span,) = ExportTraceServiceRequest.FromString(upstream.bodies[0]).resource_spans[0].scope_spans[0].spans
    assert span.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert (span.span_id.hex(), span.attributes[0].value.int_value) == ("eee19b7ec3c1b174", 3)


def test_the_headers_of_the_environment_reach_the_upstream_and_the_senders_do_not() -> None:
    """The key of the backend is in the gateway alone."""
    with raw_http_upstream() as upstream:
        environ = upstream.environ | {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=secret"}
        with running_gateway(environ) as running:
            httpx.post(running.url, content=protobuf_request(), headers=PROTOBUF | {"x-key": "sender", "x-own": "1"})
    assert upstream.headers[0]["x-key"] == "secret"
    assert "x-own" not in upstream.headers[0]


def test_the_partial_success_of_the_upstream_reaches_the_sender() -> None:
    """In the encoding that the sender understands, and it is counted."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 2
    answer.partial_success.error_message = "too old"
    with raw_http_upstream() as upstream, running_gateway(upstream.environ) as running:
        upstream.answer = answer.SerializeToString()
        found = httpx.post(running.url, content=protobuf_request(5), headers=PROTOBUF)
        assert found.content == upstream.answer
        as_json = httpx.post(running.url, content=json_request(json_span()), headers=JSON).json()
        assert as_json == {"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too old"}}
        counts = running.gateway.span_counts()
    assert counts == {("received", ""): 6, ("forwarded", ""): 3, ("rejected", ""): 3}


# --- no acknowledgement without the upstream's ------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["0", "-1", "soon", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_what_is_no_hint_to_wait_is_not_passed_on(said: str) -> None:
    """Senders would try at once, over and over; they are asked to wait as where the upstream says nothing."""
    with raw_http_upstream() as upstream, running_gateway(upstream.environ) as running:
        upstream.status, upstream.answer_headers = 503, {"Retry-After": said}
        found = httpx.post(running.url, content=protobuf_request(), headers=PROTOBUF)
    assert (found.status_code, found.headers["retry-after"]) == (503, "2")


@pytest.mark.parametrize(("status", "seen"), [(400, 400), (413, 413), (401, 503), (404, 503), (429, 503), (500, 503)])
def test_what_the_upstream_does_not_accept_is_not_acknowledged(status: int, seen: int) -> None:
    """A sender's fault is its own; everything else is to be tried again, when the upstream says so."""
    with raw_http_upstream() as upstream, running_gateway(upstream.environ) as running:
        upstream.status, upstream.answer_headers = status, {"Retry-After": "7"}
        found = httpx.post(running.url, content=protobuf_request(), headers=PROTOBUF)
        assert found.status_code == seen
        assert found.headers.get("retry-after") == ("7" if seen == 503 else None)
        assert Status.FromString(found.content).message
        with pytest.raises(grpc.RpcError) as error:
            call_grpc(running, protobuf_request())
        counts = running.gateway.span_counts()
    refusal: Any = error.value
    if seen == 503:
        assert refusal.code() is grpc.StatusCode.UNAVAILABLE
        trailing = dict(refusal.trailing_metadata())
        info = RetryInfo()
        assert Status.FromString(trailing["grpc-status-details-bin"]).details[0].Unpack(info)
        assert info.retry_delay.seconds == 7
        assert RetryInfo.FromString(trailing["google.rpc.retryinfo-bin"]) == info
    assert sum(count for (outcome, _), count in counts.items() if outcome == "refused") == 2
    assert ("forwarded", "") not in counts


def test_spans_go_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As requests of the SDK's exporters do, except to hosts of `no_proxy`."""
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with raw_http_upstream() as proxy:
        monkeypatch.setenv("http_proxy", proxy.environ["OTEL_EXPORTER_OTLP_ENDPOINT"])
        with running_gateway({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://backend.invalid:4318"}) as running:
            monkeypatch.delenv("http_proxy")  # the test's own client takes none
            assert httpx.post(running.url, content=protobuf_request(), headers=PROTOBUF).status_code == 200
        assert proxy.headers[0]["host"] == "backend.invalid:4318"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        with running_gateway(proxy.environ) as running:
            assert httpx.post(running.url, content=protobuf_request(), headers=PROTOBUF).status_code == 200


def test_a_large_request_is_forwarded_in_pieces() -> None:
    """With its length, as not every server takes a body without one."""
    with raw_http_upstream() as upstream, running_gateway(upstream.environ) as running:
        body = protobuf_request(60_000)
        assert httpx.post(running.url, content=body, headers=PROTOBUF, timeout=30).status_code == 200
        assert upstream.bodies == [body]
        assert upstream.headers[0]["content-length"] == str(len(body))
        assert len(body) > 1 << 20


def test_an_upstream_that_is_away_is_a_reason_to_try_again() -> None:
    """Nothing is kept in the meantime."""
    with raw_http_upstream() as upstream:
        environ = dict(upstream.environ)
    with running_gateway(environ) as running:
        found = httpx.post(running.url, content=protobuf_request(), headers=PROTOBUF)
        assert (found.status_code, found.headers["retry-after"]) == (503, "2")
        assert running.gateway.span_counts()["refused", "upstream_unreachable"] == 1


@pytest.mark.parametrize(("code", "seen"), [(14, 503), (8, 413), (3, 400), (16, 503)])
def test_the_status_of_an_upstream_of_grpc_is_translated(code: int, seen: int) -> None:
    """UNAVAILABLE and wrong credentials may pass; an invalid or too large request never does."""
    with raw_grpc_upstream() as upstream, running_gateway(upstream.environ) as running:
        upstream.status = code
        assert httpx.post(running.url, content=protobuf_request(), headers=PROTOBUF).status_code == seen


def test_an_exporter_of_the_sdk_tries_again_until_the_upstream_accepts(http_receiver: HttpReceiver) -> None:
    """The spans arrive once."""
    http_receiver.answer_with(429)
    with running_gateway(http_receiver.environ) as running:
        trace_calls(HttpExporter(endpoint=running.url))
        assert sorted(span.name for span in http_receiver.spans) == ["ask", "chat", "search"]


def test_a_full_queue_is_a_reason_to_try_again_where_nothing_is_forwarded() -> None:
    """Where spans are forwarded, they are acknowledged, and those that are not read are counted."""
    ragtrace.configure(exporter="none")
    with running_gateway({}, queue_bytes=10) as running:
        found = httpx.post(running.url, content=protobuf_request(), headers=PROTOBUF)
        assert (found.status_code, found.headers["retry-after"]) == (503, "2")
        assert running.gateway.span_counts()["refused", "queue_full"] == 1
    with raw_http_upstream() as upstream, running_gateway(upstream.environ, queue_bytes=10) as running:
        assert httpx.post(running.url, content=protobuf_request(4), headers=PROTOBUF).status_code == 200
        scorer = running.gateway.scorer
    assert scorer is not None
    assert scorer.span_counts() == {("read", ""): 0, ("dropped", "queue_full"): 4}


def test_requests_beyond_the_bound_of_unanswered_ones_are_refused() -> None:
    """However slow the upstream is, memory stays bounded."""
    with raw_http_upstream() as upstream, running_gateway(upstream.environ, most_in_flight_bytes=10) as running:
        found = httpx.post(running.url, content=protobuf_request(), headers=PROTOBUF)
        assert (found.status_code, running.gateway.request_counts()) == (503, {("refused", "overloaded"): 1})
        with pytest.raises(grpc.RpcError, match="too many requests are not answered yet"):
            call_grpc(running, protobuf_request())
    assert upstream.bodies == []


def test_what_compressed_requests_decompress_to_is_bounded_in_sum() -> None:
    """Many small bodies, each of which is large in memory while the upstream does not answer."""
    body = gzip.compress(protobuf_request(10_000))
    headers = PROTOBUF | {"content-encoding": "gzip"}
    limit = 3 * len(protobuf_request(10_000))
    with raw_http_upstream() as upstream, running_gateway(upstream.environ, most_in_flight_bytes=limit) as running:
        upstream.gate.clear()
        with ThreadPoolExecutor(8) as pool:
            posts = [pool.submit(httpx.post, running.url, content=body, headers=headers, timeout=30) for _ in range(8)]
            done, _ = wait(posts, return_when=FIRST_COMPLETED)
            assert {post.result().status_code for post in done} == {503}
            upstream.gate.set()
            statuses = [post.result().status_code for post in posts]
        assert set(statuses) == {200, 503}
        assert httpx.post(running.url, content=body, headers=headers).status_code == 200


# --- what does not get in ---------------------------------------------------------------------------------------------


def test_a_wrong_token_is_refused_by_both_protocols() -> None:
    """The health of the gateway may be asked for without one."""
    with running_gateway({}, token="s3cret") as running:
        for given, status in (("", 401), ("Bearer other", 401), ("s3cret", 401), ("bearer s3cret", 200)):
            headers = PROTOBUF | ({"authorization": given} if given else {})
            assert httpx.post(running.url, content=protobuf_request(), headers=headers).status_code == status
        with pytest.raises(grpc.RpcError) as error:
            call_grpc(running, protobuf_request())
        refusal: Any = error.value
        assert refusal.code() is grpc.StatusCode.UNAUTHENTICATED
        assert call_grpc(running, protobuf_request(), metadata=[("authorization", "Bearer s3cret")]) == b""
        assert httpx.get(f"{running.root}/healthz").status_code == 200


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff\xff", PROTOBUF, 400),
        (b"{", JSON, 400),
        (b"[]", JSON, 400),
        (b'{"resourceSpans": 3}', JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b"\xff{}", JSON, 400),
        (b"{}", JSON, 200),
        (b"", PROTOBUF, 200),
        (b"", {"content-type": "text/plain"}, 415),
        (b"", PROTOBUF | {"content-encoding": "br"}, 415),
        (b"no gzip", PROTOBUF | {"content-encoding": "gzip"}, 400),
        (gzip.compress(b"")[:-4], PROTOBUF | {"content-encoding": "gzip"}, 400),
        (b"\0" * 2_000_000, PROTOBUF, 413),
        (gzip.compress(b"\0" * 20_000_000, 1), PROTOBUF | {"content-encoding": "gzip"}, 413),
        (zlib.compress(b"\0" * 20_000_000, 1), PROTOBUF | {"content-encoding": "deflate"}, 413),
    ],
    ids=(
        "malformed_protobuf malformed_json json_list json_of_wrong_shape json_nested_deeply json_not_utf8 empty_json "
        "empty_protobuf content_type encoding no_gzip cut_gzip large gzip_bomb deflate_bomb"
    ).split(),
)
def test_a_malformed_or_too_large_request_has_the_right_status(
    body: bytes, headers: dict[str, str], status: int
) -> None:
    """Bombs are not decompressed beyond the limit."""
    with raw_http_upstream() as upstream, running_gateway(upstream.environ, most_body_bytes=1 << 20) as running:
        found = httpx.post(running.url, content=body, headers=headers, timeout=30)
        assert found.status_code == status, found.text
        assert httpx.get(running.url).status_code == 405
        assert httpx.post(f"{running.root}/v1/other").status_code == 404
    assert len(upstream.bodies) == (status == 200)


def test_a_body_without_a_length_is_limited_too() -> None:
    """It is sent in chunks."""
    with running_gateway({}, most_body_bytes=1_000) as running:
        chunks = (b"\0" * 100 for _ in range(100))
        assert httpx.post(running.url, content=chunks, headers=PROTOBUF).status_code == 413


SENT: Final = {
    "nothing": b"",
    "headers without an end": b"POST /v1/traces HTTP/1.1\r\nhost: x\r\n",
    "a part of a second request": b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /healthz HTTP/1.1\r\n",
    "a body without an end": (
        b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
    ),
}


@pytest.mark.parametrize("sent", SENT)
def test_a_connection_that_does_not_end_its_request_is_closed(sent: str) -> None:
    """Else a few thousand of them would keep everybody else out."""
    with running_gateway({}, receive_seconds=0.3) as running:
        address = urlsplit(running.root)
        with socket.create_connection((address.hostname, address.port), timeout=20.0) as connection:
            connection.sendall(SENT[sent])
            received = b"".join(iter(partial(connection.recv, 65_536), b""))
        assert received.count(b"HTTP/1.1 200") == (sent == "a part of a second request")
        assert httpx.get(f"{running.root}/healthz").text == "ok\n"


def test_a_connection_that_sends_its_requests_stays() -> None:
    """However long it has been open: what counts is the time for one request."""
    with running_gateway({}, receive_seconds=0.3) as running:
        address = urlsplit(running.root)
        connection = HTTPConnection(address.hostname or "", address.port, timeout=20.0)
        with closing(connection):
            connection.connect()
            first, until = connection.sock, monotonic() + 1.0
            while monotonic() < until:
                connection.request("GET", "/healthz")
                assert connection.getresponse().read() == b"ok\n"
            assert connection.sock is first


def test_a_bomb_of_grpc_is_refused() -> None:
    """A message that is small on the wire and large in memory."""
    with running_gateway({}, most_body_bytes=1 << 20) as running:
        with pytest.raises(grpc.RpcError) as error:
            call_grpc(running, b"\0" * 50_000_000, compression=grpc.Compression.Gzip)
        refusal: Any = error.value
        assert refusal.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.RpcError) as error:
            call_grpc(running, b"\xff\xff")
        refusal = error.value
        assert refusal.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_spans_without_ids_are_a_partial_success_where_nothing_is_forwarded() -> None:
    """The others are accepted."""
    with running_gateway({}) as running:
        body = json_request(json_span(), json_span(spanId="0000000000000000"), json_span(traceId="x"))
        found = httpx.post(running.url, content=body, headers=JSON).json()
        assert found["partialSuccess"]["rejectedSpans"] == "2"
        assert running.gateway.span_counts() == {("received", ""): 3, ("accepted", ""): 1, ("rejected", ""): 2}


# --- beginning and end ------------------------------------------------------------------------------------------------


def test_a_gateway_that_would_forward_to_itself_is_refused() -> None:
    """Each span would go round for ever."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}
    with pytest.raises(SettingsError, match="address of the gateway itself"):
        upstream_endpoint(GatewaySettings(), environ)
    assert upstream_endpoint(GatewaySettings(forward=False), environ) is None


def test_a_port_that_is_taken_is_named() -> None:
    """By either protocol."""
    with running_gateway({}) as running:
        port = int(running.addresses.grpc.rpartition(":")[2])
        for settings in (GatewaySettings(http_port=port, grpc_port=0), GatewaySettings(http_port=0, grpc_port=port)):
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
                asyncio.run(serve(settings, asyncio.Event(), environ={}))


@pytest.mark.timing
def test_an_answer_with_a_body_does_not_wait_for_an_acknowledgement() -> None:
    """The client's system sends one after 40 ms, as long as nothing else is to be sent."""
    with running_gateway({}) as running, httpx.Client() as client:
        seconds: list[float] = []
        for _ in range(30):
            began = perf_counter()
            assert client.post(running.url, content=b"{}", headers=JSON).content == b"{}"
            seconds.append(perf_counter() - began)
    assert median(seconds) < 0.03


def test_readiness_ends_with_the_shutdown(http_receiver: HttpReceiver) -> None:
    """A request that is being forwarded is still answered."""
    with running_gateway(http_receiver.environ) as running:
        assert httpx.get(f"{running.root}/readyz").status_code == 200
        running.gateway.draining = True
        assert httpx.get(f"{running.root}/readyz").status_code == 503
        assert httpx.post(running.url, content=protobuf_request(), headers=PROTOBUF).status_code == 503
        assert httpx.get(f"{running.root}/healthz").status_code == 200


def test_grpc_to_grpc_with_the_exporters_of_the_sdk(grpc_receiver: GrpcReceiver) -> None:
    """As most applications and collectors are set up."""
    with running_gateway(grpc_receiver.environ) as running:
        trace_calls(GrpcExporter(endpoint=running.addresses.grpc, insecure=True), 5)
        assert len(grpc_receiver.spans) == 15
        assert running.gateway.request_counts() == {("accepted", ""): 15}

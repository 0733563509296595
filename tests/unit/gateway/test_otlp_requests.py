"""Malformed export requests never break the gateway: each has an answer, and its spans are counted."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import random
import tracemalloc
from collections.abc import Iterator

import pytest
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.core.step import CallBuilder
from ragtrace.gateway.gateway import Gateway
from ragtrace.gateway.otlp_requests import Content, ExportRequest, RefusedError, json_to_protobuf, read_payload
from ragtrace.gateway.span_scoring import SpanScorer
from tests.support.malformed_otlp import malformed_bodies, valid_requests

BODIES = 2_000


def _requests(content: Content, seed: int) -> Iterator[ExportRequest]:
    whole = [
        request.SerializeToString() if content == "protobuf" else MessageToJson(request).encode()
        for request in valid_requests()
    ]
    for body in malformed_bodies(random.Random(seed), whole, BODIES):
        yield ExportRequest(body, content)


@pytest.mark.parametrize("content", ["protobuf", "json"])
def test_a_malformed_request_is_accepted_or_refused_as_invalid(content: Content) -> None:
    """Whatever the bytes are; the spans of those that can be parsed are read, or counted as unreadable."""
    calls: list[CallBuilder] = []
    scorer = SpanScorer(calls.append, most_bytes=1 << 30, settle_seconds=0.1, parent_seconds=0.1)
    gateway = Gateway(None, scorer, most_body_bytes=1 << 20, most_in_flight_bytes=1 << 30)

    async def export() -> set[str]:
        return {(await gateway.export(request)).status for request in _requests(content, 7)}

    assert asyncio.run(export()) <= {"accepted", "invalid"}
    assert scorer.stop(60.0)
    counts = gateway.span_counts()
    assert counts["received", ""] == counts["accepted", ""] + counts.get(("rejected", ""), 0)
    read = scorer.span_counts()
    assert counts["received", ""] <= read["read", ""] + read.get(("dropped", "unreadable"), 0)
    requests = gateway.request_counts()
    assert sum(requests.values()) == BODIES
    assert set(requests) == {("accepted", ""), ("refused", "malformed")}


def test_malformed_json_becomes_protobuf_or_is_refused() -> None:
    """For an upstream of gRPC."""
    made = [_is_made(request.body) for request in _requests("json", 11)]
    assert len(set(made)) == 2


def test_json_that_javascript_has_cut_becomes_protobuf() -> None:
    """Half a character at the end of a text is no Unicode, and does not cost the request."""
    spans = [{"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "ask \ud83d"}]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    request = ExportTraceServiceRequest.FromString(json_to_protobuf(body))
    assert request.resource_spans[0].scope_spans[0].spans[0].name == "ask \ufffd"


def _is_made(body: bytes) -> bool:
    try:
        ExportTraceServiceRequest.FromString(json_to_protobuf(body))
    except (RefusedError, ValueError):  # a body that is no JSON was refused before
        return False
    return True


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_a_refused_body_is_freed_with_the_refusal(encoding: str) -> None:
    """Without the garbage collector, which comes after gigabytes of bodies that are small when compressed."""
    size = 4 << 20
    body = gzip.compress(bytes(size)) if encoding == "gzip" else bytes(size)
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(5):
            with pytest.raises(RefusedError):
                read_payload(ExportRequest(bytes(bytearray(body)), "protobuf", encoding), size // 2)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert kept < size

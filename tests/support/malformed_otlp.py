"""OTLP export requests that are damaged at random, deterministic for a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_INSERTED = (b"[" * 300, b"\x0a" * 300, b'{"a":' * 300, b"\xff" * 12, b'"', b"-1", b"{}")


def valid_requests() -> list[ExportTraceServiceRequest]:
    """Requests of a RAG call, of nested attributes, and of nothing."""
    call = ExportTraceServiceRequest()
    scope = call.resource_spans.add().scope_spans.add()
    scope.scope.name = "openinference.instrumentation.langchain"
    for number, kind in enumerate(("CHAIN", "RETRIEVER", "LLM")):
        span = scope.spans.add(
            trace_id=bytes(range(16)),
            span_id=(number + 1).to_bytes(8, "big"),
            parent_span_id=b"" if not number else (1).to_bytes(8, "big"),
            name=kind.lower(),
            start_time_unix_nano=10**18,
            end_time_unix_nano=10**18 + 10**9,
            flags=0x101,
        )
        texts = {"openinference.span.kind": kind, "input.value": "How tall?", "output.value": "330 m."}
        texts |= {"retrieval.documents.0.document.content": "It is 330 m tall."} if kind == "RETRIEVER" else {}
        for key, value in texts.items():
            span.attributes.add(key=key).value.string_value = value
        span.events.add(name="exception", time_unix_nano=1).attributes.add(key="exception.type")
        span.status.code = 2
    nested = ExportTraceServiceRequest()
    span = nested.resource_spans.add().scope_spans.add().spans.add(trace_id=b"1" * 16, span_id=b"2" * 8)
    span.start_time_unix_nano = span.end_time_unix_nano = 5
    value = span.attributes.add(key="deep").value
    for _ in range(20):
        value = value.kvlist_value.values.add(key="k").value
    value.double_value = float("nan")
    span.attributes.add(key="bytes").value.bytes_value = b"\xff\0"
    return [call, nested, ExportTraceServiceRequest()]


def malformed_bodies(chance: Random, whole: Sequence[bytes], count: int) -> Iterator[bytes]:
    """Yield *count* bodies: those of *whole*, cut, with bytes or ranges changed, doubled, or noise."""
    for _ in range(count):
        body = bytearray(chance.choice(whole))
        for _ in range(chance.randrange(4)):
            at, end = sorted(chance.randrange(len(body) + 1) for _ in range(2))
            damage = chance.randrange(6)
            if damage == 0:
                del body[at:]
            elif damage == 1 and body:
                body[chance.randrange(len(body))] = chance.randrange(256)
            elif damage == 2:
                body[at:at] = body[at:end]
            elif damage == 3:
                del body[at:end]
            elif damage == 4:
                body[at:at] = chance.randbytes(chance.randrange(8))
            else:
                body[at:at] = chance.choice(
                    (b"[" * 300, b"\x0a" * 300, b'{"a":' * 300, b"\xff" * 12, b'"', b"-1", b"{}")
                )
        yield bytes(body)

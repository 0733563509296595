"""Spans written field by field equal those of OpenTelemetry's encoder, to the byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from ragtrace_exporters.http_spans import encode

RESOURCE = Resource({"service.name": "test", "service.instance.id": "1", "n": 3}, "https://example.org/schema")
SCOPE = InstrumentationScope("ragtrace", "1.2.3")
HERE = SpanContext(2**127 + 5, 2**63 + 7, False, TraceFlags(1))
ABOVE = SpanContext(2**127 + 5, 9, True, TraceFlags(1))


def _span(**parts: Any) -> ReadableSpan:
    given: dict[str, Any] = {
        "name": "a span",
        "context": HERE,
        "resource": RESOURCE,
        "instrumentation_scope": SCOPE,
        "start_time": 1_700_000_000_000_000_000,
        "end_time": 1_700_000_000_000_000_001,
        **parts,
    }
    return ReadableSpan(**given)


ATTRIBUTES: Mapping[str, Any] = {
    "empty": "",
    "short": "tiny-1",
    "umlaut": "Größe 漢字 \U0001f600",
    "long": "x" * 127 + "ß" * 20_000,
    "true": True,
    "false": False,
    "zero": 0,
    "one": 1,
    "large": 2**63 - 1,
    "negative": -1,
    "least": -(2**63),
    "real": 0.1,
    "minus zero": -0.0,
    "whole": 1.0,
    "endless": float("inf"),
    "k" * 200: "long key",
}


@pytest.mark.parametrize(
    "span",
    [
        _span(),
        _span(name=""),
        _span(name="n" * 300),
        *(_span(kind=kind) for kind in SpanKind),
        _span(parent=ABOVE),
        _span(parent=SpanContext(HERE.trace_id, 3, False)),
        _span(attributes=ATTRIBUTES),
        _span(attributes={"texts": ("a", "b"), "numbers": (1, 2.5), "none": ()}),
        _span(status=Status(StatusCode.ERROR, "boom")),
        _span(status=Status(StatusCode.OK)),
        _span(events=(Event("exception", {"exception.type": "E"}, 12),)),
        _span(links=(Link(ABOVE, {"a": 1}),)),
        _span(context=SpanContext(1, 2, False, TraceFlags(1), TraceState([("a", "b"), ("c", "d")]))),
        _span(instrumentation_scope=None),
    ],
)
def test_a_span_is_written_as_by_opentelemetry(span: ReadableSpan) -> None:
    """Whatever is on it."""
    assert encode([span]) == encode_spans([span]).SerializePartialToString()


def test_the_same_attribute_twice_is_the_same() -> None:
    """What is remembered of an attribute is right for it alone: 1, 1.0 and True are equal in Python."""
    spans = [_span(attributes={"value": value}) for value in (1, True, 1.0, "1", 0.0, -0.0, 0, False)]
    for _ in range(2):
        assert encode(spans) == encode_spans(spans).SerializePartialToString()


def test_spans_are_grouped_by_resource_and_scope() -> None:
    """Other libraries write to the same provider."""
    other = InstrumentationScope("other", "2", "https://example.org/other")
    spans = [_span(name="1"), _span(name="2", instrumentation_scope=other), _span(name="3")]
    groups = [[spans[0], spans[2]], [spans[1]]]
    separately = b"".join(encode_spans(group).SerializePartialToString() for group in groups)
    assert encode(spans) == separately


def test_nothing_is_nothing() -> None:
    """An empty batch."""
    assert encode([]) == b""

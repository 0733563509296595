"""Spans in OTLP messages are read; what cannot be read costs one span."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.otlp_protobuf import UnreadableSpanError, spans_in
from tests.support.span_files import comparable, sdk_spans, span_file, with_hexadecimal_ids


def test_a_request_of_protobuf_gives_the_spans_that_it_gives_as_json(tmp_path: Path) -> None:
    """The readers of both encodings see the same spans."""
    request = ExportTraceServiceRequest.FromString(encode_spans(sdk_spans()).SerializeToString())
    from_json = map(comparable, span_file(tmp_path, with_hexadecimal_ids(MessageToDict(request))))
    found = [span for span in spans_in(request, most_attributes=128) if isinstance(span, FinishedSpan)]
    assert [*map(comparable, found)] == [*from_json]


def test_a_span_beyond_the_limits_of_protobuf_is_unreadable() -> None:
    """Too many attributes, deeply nested ones and ids of a wrong length cost one span, not its request."""
    request = ExportTraceServiceRequest.FromString(encode_spans(sdk_spans()).SerializeToString())
    spans = request.resource_spans[0].scope_spans[0].spans
    spans.add(trace_id=b"1" * 15, span_id=b"1" * 8, start_time_unix_nano=1, end_time_unix_nano=2)
    deep = spans.add(trace_id=b"1" * 16, span_id=b"1" * 8, start_time_unix_nano=1, end_time_unix_nano=2)
    value = deep.attributes.add(key="deep").value
    for _ in range(70):
        value = value.array_value.values.add()
    many = spans.add(trace_id=b"1" * 16, span_id=b"2" * 8, start_time_unix_nano=1, end_time_unix_nano=2)
    for number in range(129):
        many.attributes.add(key=str(number)).value.int_value = number
    errors = [str(each) for each in spans_in(request, most_attributes=128) if isinstance(each, UnreadableSpanError)]
    assert errors == [
        "traceId must be 16 bytes, got 15",
        "attributes are nested too deeply",
        "more than 128 attributes",
    ]

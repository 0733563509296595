"""Files of spans in OTLP JSON, and span records of Phoenix, are read span by span; what cannot be read is named."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, MessageToJson
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context

from ragtrace.span_reading.finished_span import FinishedSpan, from_sdk_span
from ragtrace.span_reading.otlp_json import SpanFile, UnreadableSpan
from ragtrace.span_reading.otlp_protobuf import UnreadableSpanError, spans_in
from tests.support.examples import examples

TRACE = "5b8efff798038103d269b633813fc60c"
SPAN = "eee19b7ec3c1b174"
PARENT = "eee19b7ec3c1b173"
RECORDED = Path(__file__).parents[2] / "files" / "recorded"


def _span(**fields: Any) -> dict[str, Any]:
    times = {"startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000"}
    return {"traceId": TRACE, "spanId": SPAN, "name": "ask", **times, **fields}


def _request(*spans: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "library"}, "spans": list(spans)}]}]}


def _file(tmp_path: Path, *lines: Any) -> SpanFile:
    path = tmp_path / "spans.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return SpanFile(path)


def _only(file: SpanFile) -> FinishedSpan:
    (span,) = file
    assert isinstance(span, FinishedSpan), span
    return span


def _recorded_spans() -> list[ReadableSpan]:
    """Three spans of the SDK: a root with all types of attributes, a child that failed, and one of a remote parent."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("the.library")
    with tracer.start_as_current_span("root", kind=SpanKind.SERVER) as root:
        root.set_attributes({"text": "Größe", "yes": True, "count": 2**62, "share": 0.25})
        root.set_attributes({"list": ["a", "b"], "numbers": [1, 2], "empty": []})
        root.add_event("noted", {"why": "because"})
        with pytest.raises(KeyError), tracer.start_as_current_span("child"):
            raise KeyError("x")
    remote = SpanContext(int(TRACE, 16), int(PARENT, 16), is_remote=True, trace_flags=TraceFlags(1))
    tracer.start_span("continued", set_span_in_context(NonRecordingSpan(remote))).end()
    provider.shutdown()
    return list(exporter.get_finished_spans())


def _comparable(span: FinishedSpan | UnreadableSpan | None) -> tuple[Any, ...]:
    assert isinstance(span, FinishedSpan), span
    parent = None if span.parent is None else (span.parent.trace_id, span.parent.span_id, span.parent.is_remote)
    ids = (span.context.trace_id, span.context.span_id, int(span.context.trace_flags) & 1, parent)
    events = [(name, dict(attributes)) for name, attributes in span.events]
    rest = (span.name, dict(span.attributes), events, span.scope, span.error_type)
    return (*ids, *rest, span.start_ns, span.end_ns)


def _hexadecimal(request: dict[str, Any]) -> dict[str, Any]:
    """*request* with ids in hexadecimal, as OTLP JSON has them, instead of protobuf's base64."""
    for span in (span for each in request["resourceSpans"] for scope in each["scopeSpans"] for span in scope["spans"]):
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:
                span[name] = base64.b64decode(span[name]).hex()
    return request


@pytest.mark.parametrize(
    "form", ["hexadecimal", "base64", "snake case", "indented", "indented twice", "list", "pieces"]
)
def test_spans_of_the_sdk_are_read_back_as_they_were(tmp_path: Path, form: str) -> None:
    """Whatever form of OTLP JSON the exporter's message is written in."""
    sent = _recorded_spans()
    message = encode_spans(sent)
    plain = MessageToDict(message)
    lines: dict[str, list[Any]] = {
        "hexadecimal": [_hexadecimal(MessageToDict(message))],
        "base64": [plain],
        "snake case": [MessageToDict(message, preserving_proto_field_name=True)],
        "indented": [MessageToJson(message)],
        "indented twice": [MessageToJson(encode_spans(sent[:1])), "", MessageToJson(encode_spans(sent[1:]))],
        "list": [[plain]],
        "pieces": [MessageToDict(encode_spans([each])) for each in sent],
    }
    read = [_comparable(span) for span in _file(tmp_path, *lines[form])]
    assert sorted(read, key=str) == sorted((_comparable(from_sdk_span(span)) for span in sent), key=str)


def test_a_record_of_the_sdk_is_read(tmp_path: Path) -> None:
    """As ConsoleSpanExporter writes it, over several lines; its times have microseconds."""
    sent = _recorded_spans()[1]
    read = _only(_file(tmp_path, sent.to_json()))
    expected = from_sdk_span(sent)
    assert expected is not None
    assert read.context.span_id == expected.context.span_id
    assert read.attributes == dict(expected.attributes)
    assert abs(read.start_ns - expected.start_ns) <= 1000


def test_a_span_of_phoenix_is_read(tmp_path: Path) -> None:
    """In the form of its REST API: kind beside the attributes, a page around the spans, times with a zone."""
    record = {
        "id": "U3Bhbjox",
        "name": "retrieve",
        "context": {"trace_id": TRACE, "span_id": SPAN},
        "span_kind": "RETRIEVER",
        "parent_id": PARENT,
        "start_time": "2026-11-01T12:00:00.000001+00:00",
        "end_time": "2026-11-01T12:00:01Z",
        "status_code": "ERROR",
        "attributes": {
            "input.value": "Why?",
            "retrieval": {"documents": [{"document": {"content": "Because.", "score": 0.5}}]},
            "tags": ["a", "b"],
        },
        "events": [{"name": "exception", "timestamp": "2026", "attributes": {"exception.type": "TimeoutError"}}],
    }
    span = _only(_file(tmp_path, {"data": [record], "next_cursor": None}))
    assert span.attributes == {
        "input.value": "Why?",
        "retrieval.documents.0.document.content": "Because.",
        "retrieval.documents.0.document.score": 0.5,
        "tags": ("a", "b"),
        "openinference.span.kind": "RETRIEVER",
    }
    assert (span.start_ns, span.end_ns) == (1793534400000001000, 1793534401000000000)
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.error_type == "TimeoutError"


def test_spans_of_phoenix_in_its_otlp_form_are_read(tmp_path: Path) -> None:
    """Names in snake case, a page around the spans and nothing else."""
    times = {"start_time_unix_nano": 1544712660000000000, "end_time_unix_nano": "1544712661000000000"}
    attributes = [{"key": "input.value", "value": {"string_value": "Why?", "int_value": None}}]
    record = {"trace_id": TRACE, "span_id": SPAN, "parent_span_id": "", "attributes": attributes, **times}
    span = _only(_file(tmp_path, {"data": [record]}))
    assert span.attributes == {"input.value": "Why?"}
    assert span.parent is None


@pytest.mark.parametrize("outer", ["batches", "resourceSpans"])
def test_documents_of_tempo_are_read(tmp_path: Path, outer: str) -> None:
    """With the names of older releases of OTLP, and with a wrapper around the trace."""
    inner = [{"instrumentationLibrarySpans": [{"instrumentationLibrary": {"name": "old"}, "spans": [_span()]}]}]
    assert _only(_file(tmp_path, {"trace": {outer: inner}})).scope == "old"


def test_values_may_be_nested(tmp_path: Path) -> None:
    """A list at the top becomes a tuple, as in the SDK; what is inside are lists and dicts."""
    message = {"kvlistValue": {"values": [{"key": "role", "value": {"stringValue": "user"}}, {"key": "parts"}]}}
    values: dict[str, Any] = {
        "messages": {"arrayValue": {"values": [message, {"arrayValue": {"values": [{"intValue": "7"}]}}]}},
        "object": message,
        "bytes": {"bytesValue": "aGk="},
        "not a number": {"doubleValue": "Infinity"},
        "nothing": {},
        "empty": {"arrayValue": {}},
    }
    listed = [{"key": key, "value": value} for key, value in values.items()]
    assert _only(_file(tmp_path, _request(_span(attributes=listed)))).attributes == {
        "messages": ({"role": "user", "parts": None}, [7]),
        "object": {"role": "user", "parts": None},
        "bytes": b"hi",
        "not a number": float("inf"),
        "nothing": None,
        "empty": (),
    }


def test_an_attribute_that_is_no_value_of_otlp_is_left_out_and_counted(tmp_path: Path) -> None:
    """The others of its span stay."""
    values: list[Any] = [{"intValue": "1.5"}, {"stringValue": 3}, {"boolValue": "yes"}, "bare", {"unknown": 1}]
    bad = [{"key": f"bad{number}", "value": value} for number, value in enumerate(values)]
    file = _file(tmp_path, _request(_span(attributes=[*bad, "text", {"key": "good", "value": {"boolValue": False}}])))
    assert _only(file).attributes == {"good": False}
    assert file.reader.n_unread_attributes == 6


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "not JSON"),
        ("7", "neither OTLP JSON"),
        ({"something": 1}, "neither OTLP JSON with resourceSpans"),
        (_request("text"), "not an object"),
        (_request(_span(traceId="00")), "traceId must be 16 bytes"),
        (_request(_span(traceId="0" * 32)), "traceId must not be zero"),
        (_request(_span(spanId=7)), "spanId must be 8 bytes"),
        (_request(_span(parentSpanId="x")), "parentSpanId must be 8 bytes"),
        (_request(_span(endTimeUnixNano=None)), "not a whole number"),
        (_request(_span(endTimeUnixNano="0")), "endTimeUnixNano must be later"),
        (_request(_span(attributes="text")), "not a list"),
        ({"resourceSpans": [{"scopeSpans": 7}]}, "not a list"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, line: Any, error: str) -> None:
    """The lines around it are read."""
    first, bad, last = _file(tmp_path, _request(_span(name="first")), line, _request(_span(name="last")))
    assert isinstance(first, FinishedSpan)
    assert isinstance(last, FinishedSpan)
    assert isinstance(bad, UnreadableSpan)
    assert (bad.line, bad.error.startswith(error)) == (2, True), bad


def test_a_torn_first_line_costs_only_itself(tmp_path: Path) -> None:
    """A file whose first line is torn is not taken for one document over several lines."""
    torn, whole = _file(tmp_path, '{"resourceSpans": [', _request(_span()))
    assert isinstance(torn, UnreadableSpan)
    assert isinstance(whole, FinishedSpan)


def test_a_bad_span_costs_only_itself(tmp_path: Path) -> None:
    """Its neighbours in the same line are read."""
    file = _file(tmp_path, _request(_span(name="first"), _span(spanId=""), _span(name="last")))
    assert [isinstance(span, FinishedSpan) for span in file] == [True, False, True]
    assert file.n_spans == 2


def test_lines_of_other_signals_are_counted(tmp_path: Path) -> None:
    """A Collector may write logs and metrics to the same file; they are no bad lines."""
    file = _file(tmp_path, {"resourceLogs": []}, _request(_span()), {"resourceMetrics": []}, {}, "")
    assert len(list(file)) == 1
    assert file.reader.n_other_signals == 2
    assert file.share_read == 1.0


@pytest.mark.parametrize("indent", [None, 1])
def test_a_file_compressed_by_gzip_is_read(tmp_path: Path, indent: int | None) -> None:
    """A file of gzip data gives the spans of the uncompressed file, whatever the name of the file."""
    path = tmp_path / "spans.jsonl"
    path.write_bytes(gzip.compress(json.dumps(_request(_span(), _span()), indent=indent).encode()))
    file = SpanFile(path)
    assert [isinstance(span, FinishedSpan) for span in file] == [True, True]
    assert file.share_read == 1.0


@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_spans_before_the_end_of_cut_gzip_data_are_read(tmp_path: Path, kept: float) -> None:
    """The spans before the cut are read, and one line names the cut."""
    lines = [json.dumps(_request(_span(name=f"{number:064x}"))) + "\n" for number in range(2_000)]
    data = gzip.compress("".join(lines).encode())
    path = tmp_path / "spans.jsonl.gz"
    path.write_bytes(data[: int(len(data) * kept)])
    *spans, last = SpanFile(path)
    assert len(spans) > 100
    assert all(isinstance(span, FinishedSpan) for span in spans)
    assert isinstance(last, UnreadableSpan)
    assert "cut off" in last.error
    assert last.line == len(spans) + 1


def test_a_file_of_another_compression_is_named(tmp_path: Path) -> None:
    """Every line says which files can be read."""
    path = tmp_path / "spans.jsonl.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00\x58")
    (bad,) = SpanFile(path)
    assert isinstance(bad, UnreadableSpan)
    assert "uncompressed" in bad.error


def test_an_empty_file_has_no_spans(tmp_path: Path) -> None:
    """Nor any bad line."""
    assert list(_file(tmp_path)) == []


def test_recorded_spans_are_read() -> None:
    """All of them, and all their attributes."""
    paths = sorted(RECORDED.glob("*.spans.jsonl.gz"))
    assert paths
    for path in paths:
        file = SpanFile(path)
        assert all(isinstance(span, FinishedSpan) for span in file), path.name
        assert file.n_spans > 0, path.name
        assert file.reader.n_unread_attributes == 0, path.name


_NAMES = """
    resourceSpans scopeSpans spans scope attributes key value values events status arrayValue kvlistValue intValue
    doubleValue boolValue bytesValue context data traceId spanId parentSpanId startTimeUnixNano endTimeUnixNano flags
    trace_id span_id start_time end_time
""".split()
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_NAMES), inner | st.sampled_from([TRACE, SPAN, "1544712660000000000"]), max_size=6
        )
    ),
    max_leaves=30,
)


@settings(max_examples=examples(300))
@given(st.lists(_JSON, max_size=3))
def test_nothing_in_a_file_raises(tmp_path_factory: pytest.TempPathFactory, documents: list[Any]) -> None:
    """Whatever JSON the lines hold, each gives spans, is named as unreadable, or has nothing in it."""
    path = tmp_path_factory.getbasetemp() / "hostile.jsonl"
    path.write_text("".join(f"{json.dumps(document)}\n" for document in documents), encoding="utf-8")
    assert all(isinstance(found, (FinishedSpan, UnreadableSpan)) for found in SpanFile(path))


@settings(max_examples=examples(300))
@given(st.dictionaries(st.sampled_from(list(_span(attributes=0, events=0, status=0, flags=0))), _JSON))
def test_no_field_of_a_span_raises(tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any]) -> None:
    """Whatever a field holds, the span is read or named."""
    path = tmp_path_factory.getbasetemp() / "hostile.jsonl"
    path.write_text(f"{json.dumps(_request(_span(**fields)))}\n", encoding="utf-8")
    (found,) = SpanFile(path)
    assert isinstance(found, (FinishedSpan, UnreadableSpan))


def test_a_request_of_protobuf_gives_the_spans_that_it_gives_as_json(tmp_path: Path) -> None:
    """The readers of both encodings see the same spans."""
    request = ExportTraceServiceRequest.FromString(encode_spans(_recorded_spans()).SerializeToString())
    from_json = map(_comparable, _file(tmp_path, _hexadecimal(MessageToDict(request))))
    found = [span for span in spans_in(request, most_attributes=128) if isinstance(span, FinishedSpan)]
    assert [*map(_comparable, found)] == [*from_json]


def test_a_span_beyond_the_limits_of_protobuf_is_unreadable() -> None:
    """Too many attributes, deeply nested ones and ids of a wrong length cost one span, not its request."""
    request = ExportTraceServiceRequest.FromString(encode_spans(_recorded_spans()).SerializeToString())
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
    assert errors == ["an id or a time is missing", "attributes are nested too deeply", "more than 128 attributes"]

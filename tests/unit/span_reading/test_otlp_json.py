"""Spans in OTLP JSON are read span by span, whatever form the document has; what cannot be read is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, MessageToJson
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from ragtrace.span_reading.finished_span import FinishedSpan, from_sdk_span
from ragtrace.span_reading.otlp_json import UnreadableSpan
from tests.support.examples import examples
from tests.support.json_documents import JSON_DOCUMENTS
from tests.support.span_files import (
    SPAN,
    TRACE,
    comparable,
    only_span,
    sdk_spans,
    span_fields,
    span_file,
    span_request,
    with_hexadecimal_ids,
)


@pytest.mark.parametrize(
    "form", ["hexadecimal", "base64", "snake case", "indented", "indented twice", "list", "pieces"]
)
def test_spans_of_the_sdk_are_read_back_as_they_were(tmp_path: Path, form: str) -> None:
    """Whatever form of OTLP JSON the exporter's message is written in."""
    sent = sdk_spans()
    message = encode_spans(sent)
    plain = MessageToDict(message)
    lines: dict[str, list[Any]] = {
        "hexadecimal": [with_hexadecimal_ids(MessageToDict(message))],
        "base64": [plain],
        "snake case": [MessageToDict(message, preserving_proto_field_name=True)],
        "indented": [MessageToJson(message)],
        "indented twice": [MessageToJson(encode_spans(sent[:1])), "", MessageToJson(encode_spans(sent[1:]))],
        "list": [[plain]],
        "pieces": [MessageToDict(encode_spans([each])) for each in sent],
    }
    read = [comparable(span) for span in span_file(tmp_path, *lines[form])]
    assert sorted(read, key=str) == sorted((comparable(from_sdk_span(span)) for span in sent), key=str)


def test_spans_of_phoenix_in_its_otlp_form_are_read(tmp_path: Path) -> None:
    """Names in snake case, a page around the spans and nothing else."""
    times = {"start_time_unix_nano": 1544712660000000000, "end_time_unix_nano": "1544712661000000000"}
    attributes = [{"key": "input.value", "value": {"string_value": "Why?", "int_value": None}}]
    record = {"trace_id": TRACE, "span_id": SPAN, "parent_span_id": "", "attributes": attributes, **times}
    span = only_span(span_file(tmp_path, {"data": [record]}))
    assert span.attributes == {"input.value": "Why?"}
    assert span.parent is None


@pytest.mark.parametrize("outer", ["batches", "resourceSpans"])
def test_documents_of_tempo_are_read(tmp_path: Path, outer: str) -> None:
    """With the names of older releases of OTLP, and with a wrapper around the trace."""
    inner = [{"instrumentationLibrarySpans": [{"instrumentationLibrary": {"name": "old"}, "spans": [span_fields()]}]}]
    assert only_span(span_file(tmp_path, {"trace": {outer: inner}})).scope == "old"


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
    assert only_span(span_file(tmp_path, span_request(span_fields(attributes=listed)))).attributes == {
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
    file = span_file(
        tmp_path, span_request(span_fields(attributes=[*bad, "text", {"key": "good", "value": {"boolValue": False}}]))
    )
    assert only_span(file).attributes == {"good": False}
    assert file.reader.n_unread_attributes == 6


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "not JSON"),
        ("7", "neither OTLP JSON"),
        ({"something": 1}, "neither OTLP JSON with resourceSpans"),
        (span_request("text"), "not an object"),
        (span_request(span_fields(traceId="00")), "traceId must be 16 bytes"),
        (span_request(span_fields(traceId="0" * 32)), "traceId must not be zero"),
        (span_request(span_fields(spanId=7)), "spanId must be 8 bytes"),
        (span_request(span_fields(parentSpanId="x")), "parentSpanId must be 8 bytes"),
        (span_request(span_fields(endTimeUnixNano=None)), "endTimeUnixNano must be later"),
        (span_request(span_fields(startTimeUnixNano="-1")), "startTimeUnixNano has no value of OTLP: str of length 2"),
        (span_request(span_fields(name=["secret"])), "name has no value of OTLP: list of length 1"),
        (span_request(span_fields(events=["secret"])), "not an object: str of length 6"),
        (span_request(span_fields(endTimeUnixNano="0")), "endTimeUnixNano must be later"),
        (span_request(span_fields(attributes="text")), "not a list"),
        ({"resourceSpans": [{"scopeSpans": 7}]}, "not a list"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, line: Any, error: str) -> None:
    """The lines around it are read."""
    first, bad, last = span_file(
        tmp_path, span_request(span_fields(name="first")), line, span_request(span_fields(name="last"))
    )
    assert isinstance(first, FinishedSpan)
    assert isinstance(last, FinishedSpan)
    assert isinstance(bad, UnreadableSpan)
    assert (bad.line, bad.error.startswith(error)) == (2, True), bad


def test_a_bad_span_costs_only_itself(tmp_path: Path) -> None:
    """Its neighbours in the same line are read."""
    file = span_file(
        tmp_path, span_request(span_fields(name="first"), span_fields(spanId=""), span_fields(name="last"))
    )
    assert [isinstance(span, FinishedSpan) for span in file] == [True, False, True]
    assert file.n_spans == 2


@settings(max_examples=examples(300))
@given(st.dictionaries(st.sampled_from(list(span_fields(attributes=0, events=0, status=0, flags=0))), JSON_DOCUMENTS))
def test_no_field_of_a_span_raises(tmp_path_factory: pytest.TempPathFactory, fields: dict[str, Any]) -> None:
    """Whatever a field holds, the span is read or named."""
    (found,) = span_file(tmp_path_factory.getbasetemp(), json.dumps(span_request(span_fields(**fields))))
    assert isinstance(found, (FinishedSpan, UnreadableSpan))


def test_a_text_cut_within_a_character_is_read(tmp_path: Path) -> None:
    """JavaScript cuts texts between the two halves of a character; half a character is no Unicode."""
    texts = {"input.value": "Why \ud83d", "output.value": "Because."}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in texts.items()]
    span = only_span(span_file(tmp_path, span_request(span_fields(attributes=attributes, name="ask \udc00"))))
    assert span.attributes == {"input.value": "Why \ufffd", "output.value": "Because."}
    assert span.name == "ask \ufffd"


def test_bare_numbers_that_are_none_are_read(tmp_path: Path) -> None:
    """Python's own JSON has them; protobuf's has texts in their place."""
    attributes = [{"key": "score", "value": {"doubleValue": float("-inf")}}]
    span = only_span(span_file(tmp_path, span_request(span_fields(attributes=attributes))))
    assert span.attributes == {"score": float("-inf")}


@pytest.mark.parametrize(("code", "failed"), [(2, True), ("STATUS_CODE_ERROR", True), ("2", True), (1, False)])
def test_enumerations_are_numbers_or_names(tmp_path: Path, code: object, failed: bool) -> None:
    """OTLP asks for numbers, protobuf's JSON writes names."""
    span = only_span(span_file(tmp_path, span_request(span_fields(status={"code": code}, kind="SPAN_KIND_CLIENT"))))
    assert (span.error_type is not None) == failed


def test_fields_of_later_releases_are_ignored(tmp_path: Path) -> None:
    """Of spans, statuses and events."""
    fields = span_fields(later={"a": 1}, status={"code": 2, "later": 1}, events=[{"name": "noted", "later": []}])
    assert only_span(span_file(tmp_path, span_request(fields))).events == (("noted", {}),)


def test_an_unreadable_span_is_named_without_its_texts(tmp_path: Path) -> None:
    """A text may be private."""
    fields = span_fields(startTimeUnixNano="secret", attributes=[{"key": "a", "value": {"stringValue": "secret"}}])
    (bad,) = span_file(tmp_path, span_request(fields))
    assert isinstance(bad, UnreadableSpan)
    assert "secret" not in bad.error

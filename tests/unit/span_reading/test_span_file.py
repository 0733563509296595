"""Files of spans are read line by line, compressed or not; what cannot be read is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.otlp_json import UnreadableSpan
from ragtrace.span_reading.span_file import SpanFile
from tests.support.examples import examples
from tests.support.json_documents import JSON_DOCUMENTS
from tests.support.span_files import span_fields, span_file, span_request

RECORDED = Path(__file__).parents[2] / "files" / "recorded"


def test_a_torn_first_line_costs_only_itself(tmp_path: Path) -> None:
    """A file whose first line is torn is not taken for one document over several lines."""
    torn, whole = span_file(tmp_path, '{"resourceSpans": [', span_request(span_fields()))
    assert isinstance(torn, UnreadableSpan)
    assert isinstance(whole, FinishedSpan)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_file_compressed_by_gzip_is_read(tmp_path: Path, indent: int | None) -> None:
    """A file of gzip data gives the spans of the uncompressed file, whatever the name of the file."""
    path = tmp_path / "spans.jsonl"
    path.write_bytes(gzip.compress(json.dumps(span_request(span_fields(), span_fields()), indent=indent).encode()))
    file = SpanFile(path)
    assert [isinstance(span, FinishedSpan) for span in file] == [True, True]
    assert file.share_read == 1.0


@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_spans_before_the_end_of_cut_gzip_data_are_read(tmp_path: Path, kept: float) -> None:
    """The spans before the cut are read, and one line names the cut."""
    lines = [json.dumps(span_request(span_fields(name=f"{number:064x}"))) + "\n" for number in range(2_000)]
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
    assert list(span_file(tmp_path)) == []


def test_recorded_spans_are_read() -> None:
    """All of them, and all their attributes."""
    paths = sorted(RECORDED.glob("*.spans.jsonl.gz"))
    assert paths
    for path in paths:
        file = SpanFile(path)
        assert all(isinstance(span, FinishedSpan) for span in file), path.name
        assert file.n_spans > 0, path.name
        assert file.reader.n_unread_attributes == 0, path.name


@settings(max_examples=examples(300))
@given(st.lists(JSON_DOCUMENTS, max_size=3))
def test_nothing_in_a_file_raises(tmp_path_factory: pytest.TempPathFactory, documents: list[Any]) -> None:
    """Whatever JSON the lines hold, each gives spans, is named as unreadable, or has nothing in it."""
    path = tmp_path_factory.getbasetemp() / "hostile.jsonl"
    path.write_text("".join(f"{json.dumps(document)}\n" for document in documents), encoding="utf-8")
    assert all(isinstance(found, (FinishedSpan, UnreadableSpan)) for found in SpanFile(path))


def test_lines_of_other_signals_are_counted(tmp_path: Path) -> None:
    """A Collector may write logs and metrics to the same file; they are no bad lines."""
    file = span_file(tmp_path, {"resourceLogs": []}, span_request(span_fields()), {"resourceMetrics": []}, {}, "")
    assert len(list(file)) == 1
    assert file.reader.n_other_signals == 2
    assert file.share_read == 1.0

"""Recordings of real instrumentations, which tests of what reads spans run on."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.frameworks.environment import RECORDED, cells, version_differences

NAMES = sorted("-".join(cell) for cell in cells())
APPLICATIONS = sorted({application for application, _, _ in cells()})


def recordings(application: str) -> list[str]:
    """Return the names of the recordings of *application*, of which there is at least one."""
    return [name for name in NAMES if name.startswith(f"{application}-")]


def calls(name: str) -> list[dict[str, Any]]:
    """Return what the application logged of each request."""
    logged: list[dict[str, Any]] = json.loads((RECORDED / f"{name}.calls.json").read_text(encoding="utf-8"))["calls"]
    return logged


def test_every_recording_of_the_table_is_there_and_no_other() -> None:
    """A recording that the table of environments does not name would never be made again."""
    assert sorted(path.name.removesuffix(".calls.json") for path in RECORDED.glob("*.calls.json")) == NAMES


@pytest.mark.parametrize("application", APPLICATIONS)
def test_the_application_answered_three_questions_from_its_documents(application: str) -> None:
    """Each logged call has a query, texts, and an answer that is a sentence of one of the texts."""
    for name in recordings(application):
        logged = calls(name)
        assert len(logged) == 3, name
        for call in logged:
            assert call["query"], name
            assert 1 <= len(call["contexts"]) <= 3, name
            assert any(call["answer"] in text for text in call["contexts"]), name
            assert call["input_tokens"] > 0, name
            assert call["output_tokens"] > 0, name


@pytest.mark.parametrize("application", APPLICATIONS)
def test_a_recording_is_otlp_json_in_lines(application: str) -> None:
    """Each line holds one span, with hexadecimal ids and times in nanoseconds as text."""
    for name in recordings(application):
        for line in gzip.decompress((RECORDED / f"{name}.spans.jsonl.gz").read_bytes()).splitlines():
            (resource_spans,) = json.loads(line)["resourceSpans"]
            (scope_spans,) = resource_spans["scopeSpans"]
            (span,) = scope_spans["spans"]
            assert re.fullmatch("[0-9a-f]{32}", span["traceId"]), name
            assert re.fullmatch("[0-9a-f]{16}", span["spanId"]), name
            assert 0 < int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]), name


def test_no_recording_names_the_machine_it_was_made_on() -> None:
    """Paths and host names do not belong into fixtures."""
    for path in RECORDED.iterdir():
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        assert f"{Path.home()}/".encode() not in text, path.name


def test_a_comparison_with_the_newest_versions_says_which_they_are() -> None:
    """Also which release was not installed, as another package excludes it: that one was not compared."""
    pinned, installed = ["framework[extra]==1.0", "client==2.0", "numpy>=2"], {"client": "2.0", "numpy": "2.2"}
    newer = version_differences(pinned, installed | {"framework": "1.1"}, {"client": "3.0", "numpy": "2.2"})
    assert newer == ["framework 1.1, pinned 1.0", "client 2.0, newest release 3.0"]
    same = version_differences(pinned, installed | {"framework": "1.0"}, {"client": "2.0"})
    assert same == ["as pinned"]

"""Recordings of real instrumentations, which tests of what reads spans run on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.frameworks.environment import RECORDED, cells

NAMES = sorted("-".join(cell) for cell in cells())


def calls(name: str) -> list[dict[str, Any]]:
    """Return what the application logged of each request."""
    logged: list[dict[str, Any]] = json.loads((RECORDED / f"{name}.calls.json").read_text(encoding="utf-8"))["calls"]
    return logged


def test_every_recording_of_the_table_is_there_and_no_other() -> None:
    """A recording that the table of environments does not name would never be made again."""
    assert sorted(path.name.removesuffix(".calls.json") for path in RECORDED.glob("*.calls.json")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_application_answered_three_questions_from_its_documents(name: str) -> None:
    """Each logged call has a query, texts, and an answer that is a sentence of one of the texts."""
    logged = calls(name)
    assert len(logged) == 3
    for call in logged:
        assert call["query"]
        assert 1 <= len(call["contexts"]) <= 3
        assert any(call["answer"] in text for text in call["contexts"])
        assert call["input_tokens"] > 0
        assert call["output_tokens"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_otlp_json_in_lines(name: str) -> None:
    """Each line holds one span, with hexadecimal ids and times in nanoseconds as text."""
    for line in (RECORDED / f"{name}.spans.jsonl").read_text(encoding="utf-8").splitlines():
        (resource_spans,) = json.loads(line)["resourceSpans"]
        (scope_spans,) = resource_spans["scopeSpans"]
        (span,) = scope_spans["spans"]
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
        assert re.fullmatch("[0-9a-f]{16}", span["spanId"])
        assert 0 < int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])


def test_no_recording_names_the_machine_it_was_made_on() -> None:
    """Paths and host names do not belong into fixtures."""
    for path in RECORDED.iterdir():
        assert f"{Path.home()}/" not in path.read_text(encoding="utf-8"), path.name

"""Applications under real instrumentations still do what their recordings show."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.frameworks.environment import RECORDED, cells, record

pytestmark = pytest.mark.integration

CONCURRENT = {"langchain_batch"}
"""Applications whose requests overlap, so that the parents of their spans change from run to run."""

CELLS = [
    pytest.param(application, instrumentation, mode, id=f"{application}-{instrumentation}-{mode}")
    for application, instrumentation, mode in cells()
    if "+" not in instrumentation and mode in ("sync", "astream")
]


def calls(path: Path) -> list[dict[str, Any]]:
    """Return the logged calls without the ids of the model's responses, which a batch gets in any order."""
    logged: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["calls"]
    return [{key: call[key] for key in call.keys() - {"response_ids", "exchanges"}} for call in logged]


def spans(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the spans of a recording, each with the name of its instrumentation scope."""
    return [
        (scope_spans["scope"]["name"], span)
        for line in path.read_text(encoding="utf-8").splitlines()
        for resource_spans in json.loads(line)["resourceSpans"]
        for scope_spans in resource_spans["scopeSpans"]
        for span in scope_spans["spans"]
    ]


def shape(path: Path) -> Counter[tuple[str, str, str, tuple[str, ...]]]:
    """Return how often each kind of span occurs: its scope, name, parent's name, and the names of its attributes."""
    recorded = spans(path)
    names = {span["spanId"]: span["name"] for _, span in recorded}
    return Counter(
        (
            scope,
            span["name"],
            names.get(span.get("parentSpanId"), "missing" if span.get("parentSpanId") else "root"),
            tuple(sorted({re.sub(r"\.\d+\.", ".N.", item["key"]) for item in span.get("attributes", ())})),
        )
        for scope, span in recorded
    )


@pytest.mark.parametrize(("application", "instrumentation", "mode"), CELLS)
def test_an_application_records_what_its_recording_shows(
    application: str, instrumentation: str, mode: str, tmp_path: Path
) -> None:
    """A new recording has the calls and the kinds of spans of the committed one."""
    record(application, instrumentation, mode, tmp_path)

    name = f"{application}-{instrumentation}-{mode}"
    assert calls(tmp_path / f"{name}.calls.json") == calls(RECORDED / f"{name}.calls.json")
    if application in CONCURRENT:
        return
    assert shape(tmp_path / f"{name}.spans.jsonl") == shape(RECORDED / f"{name}.spans.jsonl")

"""What two recordings of one application have in common: the logged calls, and how often each kind of span occurs."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any


def calls(path: Path) -> list[dict[str, Any]]:
    """Return the logged calls without the ids of the model's responses, which a batch gets in any order."""
    logged: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["calls"]
    return [{key: call[key] for key in call.keys() - {"response_ids", "exchanges"}} for call in logged]


def spans(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the spans of a recording, each with the name of its instrumentation scope."""
    return [
        (scope_spans["scope"]["name"], span)
        for line in gzip.decompress(path.read_bytes()).splitlines()
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

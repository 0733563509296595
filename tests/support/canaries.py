"""Labelled calls for canaries, a file of them, and a judge whose verdicts follow the labels until it drifts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ragtrace.core.types import Judgement, RagCall
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD, HALF

METRIC = "hallucinated"


def rows(bad: int = 15, good: int = 15, **changes: Any) -> list[dict[str, Any]]:
    """Rows of an export of labels: that many calls of each label."""
    labels = ["bad"] * bad + ["good"] * good
    return [
        {
            "call": f"00-{number:032x}-{number:016x}-01",
            "metric": METRIC,
            "workflow": "guide",
            "query": f"where? {number}",
            "contexts": ["Paris is a big city."],
            "answer": f"{label} answer {number}",
            "label": label,
            "reviewer": "ada",
            "comment": None,
            "statements": [],
            **changes,
        }
        for number, label in enumerate(labels, 1)
    ]


def write(path: Path, lines: Iterable[dict[str, Any]]) -> Path:
    """A file of labels with these lines."""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


class LabelFollowingJudge(FakeJudge):
    """A judge that finds the answers bad whose text says so; while `blind`, it finds all answers good."""

    def __init__(self) -> None:
        super().__init__(GOOD)
        self.blind = False

    async def judge(self, call: RagCall) -> Judgement:
        self.calls.append(call)
        bad = (call.answer or "").startswith("bad") and not self.blind
        return HALF if bad else GOOD

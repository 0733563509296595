"""docs/captured.md: what is captured of the objects of real SDKs, current and nowhere wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from docs.make_captured import NOT_CAPTURED, RIGHT, WRONG, render, rows, verdict
from tests.integration.frameworks.environment import captures

PAGE = Path(__file__).parents[2] / "docs" / "captured.md"
SAID = {"query": "q", "contexts": ["one", "two"], "answer": "a"}
ROW: dict[str, Any] = {"package": "p", "version": "1", "form": "f", "said": SAID, "judged": [SAID], "reasons": []}


def test_the_page_is_current() -> None:
    """Whoever records again writes the page anew."""
    assert PAGE.read_text(encoding="utf-8") == render(rows()), (
        "docs/captured.md is not current: python -m docs.make_captured > docs/captured.md"
    )


def test_no_row_is_wrong() -> None:
    """A text that nobody said is never judged, and what was not found has a reason."""
    assert [(row["package"], row["form"]) for row in rows() if verdict(row).startswith(WRONG)] == []


def test_the_page_covers_the_packages_that_applications_use() -> None:
    """A row is added, never taken away because it is not right."""
    assert len(rows()) >= 60
    assert len({row["package"] for row in rows()}) >= 25
    assert sum(verdict(row) == RIGHT for row in rows()) >= 45
    assert captures()


@pytest.mark.parametrize(
    "changed",
    [
        {"query": "other"},
        {"contexts": ["two", "one"]},
        {"contexts": ["one"]},
        {"contexts": None},  # and no reason says so
        {"answer": "aa"},
    ],
)
def test_the_comparison_finds_what_is_wrong(changed: dict[str, Any]) -> None:
    """Each of the parts of a call; a part that is missing is not wrong if a reason says so."""
    assert verdict(ROW) == RIGHT
    assert verdict({**ROW, "judged": [{**SAID, **changed}]}).startswith(WRONG)


def test_the_comparison_knows_what_is_not_captured_or_no_call() -> None:
    """What is missing without a reason, and what was judged though nothing was answered, are wrong."""
    assert verdict({**ROW, "judged": [], "reasons": ["answer_not_captured"]}).startswith(NOT_CAPTURED)
    missing = [{**SAID, "contexts": None}]
    assert verdict({**ROW, "judged": missing, "reasons": ["contexts_missing"]}).startswith(NOT_CAPTURED)
    failed = {**ROW, "said": {**SAID, "answer": None}}
    assert verdict({**failed, "judged": [], "reasons": ["call_failed"]}) == RIGHT
    assert verdict(failed).startswith(WRONG)
    assert verdict({**ROW, "judged": []}).startswith(WRONG)
    assert verdict({**ROW, "judged": [SAID, SAID]}).startswith(WRONG)
    assert verdict({**ROW, "problem": "E"}).startswith(WRONG)

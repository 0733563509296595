"""docs/instrumentations.md: what is read from spans of real applications, complete, current and nowhere wrong."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from docs.make_instrumentations import WRONG, Cell, cells, render, verdict
from ragtrace.core.types import Document, RagCall

PAGE = Path(__file__).parents[2] / "docs" / "instrumentations.md"
LOGGED = {"query": "q", "contexts": ["one", "two"], "answer": "a"}


@cache
def _cells() -> tuple[Cell, ...]:
    return tuple(cells())


def test_no_cell_is_wrong() -> None:
    """A text that the application did not log, or a call that was no request, is never scored."""
    assert [cell for cell in _cells() if cell.verdict.startswith(WRONG)] == []


def test_the_page_is_current() -> None:
    """Whoever changes a reader or a recording writes the page anew."""
    assert PAGE.read_text(encoding="utf-8") == render(_cells()), (
        "docs/instrumentations.md is not current: python -m docs.make_instrumentations > docs/instrumentations.md"
    )


def test_the_comparison_finds_what_is_wrong() -> None:
    """Each of the parts of a call, and the number of calls."""
    documents = (Document("one"), Document("two"))
    right = RagCall("q", documents, "a")
    assert verdict([right], [LOGGED]) == "right"
    for wrong in (
        RagCall("other", documents, "a"),
        RagCall("q", documents[::-1], "a"),
        RagCall("q", documents[:1], "a"),
        RagCall("q", documents, "other"),
        RagCall("q", documents, "a", conversation_id="other"),
    ):
        assert verdict([wrong], [LOGGED]).startswith(WRONG)
    assert verdict([right, right], [LOGGED]).startswith(WRONG)
    assert verdict([RagCall("q", None, "a")], [LOGGED]) == "no contexts"
    assert verdict([RagCall("q", (Document("one\n\ntwo"),), "a")], [LOGGED]) == "right, contexts as one text"

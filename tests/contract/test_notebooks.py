"""What a notebook shows: one short line, or a table in which every text is escaped."""

from __future__ import annotations

from typing import Any

import pytest

import ragtrace
from ragtrace.core.types import Document, RagCall, Score, Unscored
from ragtrace.diagnosis import Diagnosis
from ragtrace.estimates.estimate import missing_estimate

EVIL = "<script>alert(1)</script>"
CALL = RagCall(EVIL, (Document(EVIL),), EVIL)


@pytest.mark.parametrize("result", [Score(0.5, metric="m", explanation="x" * 900), Unscored("abstained", metric="m")])
def test_a_result_is_one_short_line(result: Any) -> None:
    """Without the evidence, which has attributes of its own."""
    assert len(repr(result)) < 80
    assert "'m'" in repr(result)


def test_a_call_is_one_short_line() -> None:
    """However long its texts are."""
    call = RagCall("q" * 900, (Document("c" * 900),) * 5, "a" * 900)
    assert len(repr(call)) < 150
    assert "contexts=<5>" in repr(call)
    assert repr(RagCall(None, None, "b")) == "RagCall(query=None, contexts=None, answer='b')"


def test_a_diagnosis_is_its_report() -> None:
    """As it is printed, escaped."""
    diagnosis = Diagnosis("not configured", EVIL, "", 1, ())
    html = diagnosis._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert html.startswith("<pre>")
    assert "<script" not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize(
    "shown",
    [
        Score(0.5, metric="m", explanation=EVIL),
        Unscored("abstained", explanation=EVIL),
        CALL,
        missing_estimate("nothing_judged", "tuned", "rate", workflow=EVIL),
    ],
    ids=["score", "unscored", "call", "estimate"],
)
def test_a_table_escapes_what_it_shows(shown: Any) -> None:
    """Answers come from the world outside."""
    html = shown._repr_html_()
    assert html.startswith("<table>")
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_results_and_evaluations_are_tables() -> None:
    """Of one call, and of many; the rows of the latter have the contexts."""
    results: Any = ragtrace.score(query="Where?", contexts=["In Paris."], answer="In Paris.")
    assert "consistency" in results._repr_html_()
    found: Any = ragtrace.evaluate([{"query": "Where?", "contexts": ["In Paris."] * 30, "answer": "In Paris."}])
    assert "consistency" in found._repr_html_()
    (row,) = found.rows()
    assert row["contexts"] == ("In Paris.",) * 20

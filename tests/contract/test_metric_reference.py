"""docs/metrics.md: made of the docstrings, complete, and current."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.make_metrics import SECTIONS, formulas, reference, render
from ragtrace.core.types import Score
from ragtrace.core.unscored_reasons import JUDGE_ERROR, JUDGE_SUSPECT, NOT_APPLICABLE, SKIPPED
from ragtrace.metrics import registry
from ragtrace.metrics.formula import Formula
from ragtrace.metrics.registry import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
OURS = formulas(FAMILIES)


def test_the_page_is_current() -> None:
    """Whoever changes a docstring writes the page anew."""
    assert PAGE.read_text(encoding="utf-8") == render(FAMILIES), (
        "docs/metrics.md is not current; write it anew: python -m docs.make_metrics > docs/metrics.md"
    )


def test_the_page_can_be_written_from_the_command_line() -> None:
    """As the message of the test above says."""
    argv = [sys.executable, "-m", "docs.make_metrics"]
    done = subprocess.run(argv, capture_output=True, timeout=240, check=True, cwd=PAGE.parents[1])
    assert done.stdout.decode("utf-8") == render(FAMILIES)


def test_the_page_explains_every_reason() -> None:
    """Each reason for a missing score is in the last section of the page."""
    explained = set(re.findall(r"`([a-z_]+)`", render(FAMILIES).split("## Reasons for a missing score")[1]))
    assert explained >= NOT_APPLICABLE | JUDGE_ERROR | JUDGE_SUSPECT | SKIPPED


def test_every_metric_of_the_families_is_registered() -> None:
    """What the page shows is what can be wanted by name."""
    assert all(registry.get(metric.name) is metric for metric in OURS)


@pytest.mark.parametrize("metric", OURS, ids=lambda metric: metric.name)
def test_a_metric_documents_itself(metric: Formula) -> None:
    """A first sentence and every section, none of them empty; a direction it names is that of the metadata."""
    about = reference(metric)
    assert about.summary
    assert tuple(about.sections)[: len(SECTIONS)] == SECTIONS
    assert all(about.sections.values())
    wrong = "lower is better" if metric.higher_is_better else "higher is better"
    assert wrong not in about.sections["Range"]
    assert "better" in about.sections["Range"] or "direction" in about.sections["Range"]


@pytest.mark.parametrize("metric", OURS, ids=lambda metric: metric.name)
def test_the_reasons_named_exist(metric: Formula) -> None:
    """A reason in a docstring is one of those that a result can have."""
    named = set(re.findall(r"`([a-z_]+)`", reference(metric).sections["Unscored"]))
    known = NOT_APPLICABLE | JUDGE_ERROR | set(registry.names()) | {"missing", "uncited"}
    assert named <= known


def test_a_docstring_without_sections_is_an_error() -> None:
    """The message says which there must be."""
    with pytest.raises(ValueError, match=r"must have the sections Inputs, Formula, .* got none"):
        reference(Formula("empty", "1", lambda call, judgement: Score(0.0), frozenset()))


def test_every_metric_has_a_line_in_the_table() -> None:
    """With its range, direction and threshold."""
    page = render(FAMILIES)
    row = "| [`hallucination`](#hallucination) | [0, 1] | lower | `fail` above 0 |"
    assert row in page
    assert all(f"\n| [`{metric.name}`](#{metric.name.lower()}) |" in page for metric in OURS)
    assert "| [0, 1] | higher | A from 0.9 on, B from 0.8, C from 0.7, D from 0.6, else F |" in page
    assert "| [`duration_s`](#duration_s) | [0, inf) | lower | - |" in page

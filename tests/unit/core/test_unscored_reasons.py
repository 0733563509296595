"""One list has every reason why a call is not scored: for code, `ragtrace.doctor()`, reports and documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from ragtrace.core.ledger import HEAD_DROPPED
from ragtrace.core.unscored_reasons import JUDGE_ERROR, NOT_APPLICABLE, REASONS_OF_CALLS, status_of
from ragtrace.pipeline.call_ends import ENDS
from ragtrace.pipeline.health import REASON_WORDS
from ragtrace.report.wording import DECISIONS

ROOT: Final = Path(__file__).parents[3]
LISTED: Final = {(outcome, reason) for outcome, reasons in REASONS_OF_CALLS.items() for reason in reasons}


@pytest.fixture(scope="module")
def trees() -> list[ast.Module]:
    """Syntax trees of the files in which the outcome of a call is decided. `health.py` has the words."""
    files = [
        path
        for room in ("evaluation", "fleet", "pipeline", "runtime")
        for path in (ROOT / "ragtrace" / room).glob("*.py")
    ]
    return [ast.parse(path.read_text(encoding="utf-8")) for path in files if path.name != "health.py"]


def test_the_doctor_has_words_for_every_reason() -> None:
    """And for no other, which could not be met."""
    assert REASON_WORDS.keys() == LISTED


def test_the_documentation_explains_every_reason() -> None:
    """In the table of docs/operations.md, in the rows of its outcome, and no other."""
    explained: set[tuple[str, str]] = set()
    outcome = ""
    for line in (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").splitlines():
        if row := re.match(r"\| ([^|]*) \| `(\w+)` \|", line.replace("| |", "|  |")):
            if row[1]:
                found = re.match(r"Reason of `(\w+)`", row[1])
                outcome = found[1] if found else ""
            if outcome:
                explained.add((outcome, row[2]))
    assert explained == LISTED


def test_reports_word_the_decisions_of_the_sampler() -> None:
    """A decision against a call is a reason why the call is sampled out."""
    against = {reason for reason, words in DECISIONS.items() if words.startswith("not chosen")}
    assert against == REASONS_OF_CALLS["sampled_out"] - {"head_dropped", "call_failed"}


def test_the_code_gives_these_reasons_and_no_others(trees: list[ast.Module]) -> None:
    """Wherever an outcome stands beside its reason, the two are in the list; and every listed reason is used."""
    given = {pair for tree in trees for pair in _pairs(tree)} | {(end.outcome, end.reason) for end in ENDS.values()}
    assert given >= {("dropped", "shutdown"), ("failed", "internal"), ("sampled_out", "never_rule")}
    assert given <= LISTED
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {reason for _, reason in LISTED} <= texts | {HEAD_DROPPED}


def _pairs(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Outcome and reason, where a call, a tuple or an assignment names both."""
    types = [node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="SamplingDecision"), args=[_, _, ast.Constant(value=str(reason)), *_]):
                if isinstance(node.args[0], ast.Constant) and node.args[0].value is False:
                    yield "sampled_out", reason
            case ast.Assign(targets=[ast.Attribute(attr="dropped")], value=ast.Constant(value=str(reason))):
                yield "dropped", reason
            case ast.Call(args=items) | ast.Tuple(elts=items) if node not in types:
                for one, other in pairwise(items):
                    match one, other:
                        case ast.Constant(value=str(outcome)), ast.Constant(value=str(reason)):
                            if outcome in REASONS_OF_CALLS:
                                yield outcome, reason
                        case _:
                            pass
            case _:
                pass


@pytest.mark.parametrize(
    ("reason", "status"), [("no_contexts", "not_applicable"), ("timeout", "judge_error"), ("queue_full", "skipped")]
)
def test_a_reason_of_a_metric_has_one_status(reason: str, status: str) -> None:
    """By which users filter."""
    assert status_of(reason) == status
    assert not NOT_APPLICABLE & JUDGE_ERROR


def test_an_unknown_reason_has_no_status() -> None:
    """A misspelt one is found by the first test that meets it."""
    with pytest.raises(ValueError, match="unknown reason 'no_context'"):
        status_of("no_context")

"""What bad calls share is not chance where questions repeat, and a planted cause is still found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ragtrace.core.types import RagCall
from tests.support.repeated_questions import CAUSE, grouping
from tests.unit.report.test_grouping import grouping as of_report
from tests.unit.report.test_grouping import of_tenants, report_on


def test_repeated_questions_make_no_groups_by_chance(tmp_path: Path) -> None:
    """In six histories without a cause, each with more than a hundred groups, none is called worse."""
    for seed in range(6):
        found = grouping(tmp_path / f"{seed}.db", 7_100 + seed, rate=0.15, with_cause=0.15)
        assert found.examined > 100
        assert found.questions < 0.5 * found.read
        assert found.worse == ()


def test_a_cause_is_found_among_repeated_questions(tmp_path: Path) -> None:
    """A chunk whose answers are bad six times as often is the first group in each of three histories."""
    for seed in range(3):
        found = grouping(tmp_path / f"{seed}.db", 7_200 + seed, rate=0.1, with_cause=0.6)
        assert [(row.kind, row.name) for row in found.worse] == [("chunk", CAUSE)]


@pytest.mark.parametrize("rate", [0.03, 0.15])
def test_twenty_equal_tenants_make_no_groups_by_chance(tmp_path: Path, rate: float) -> None:
    """In fifteen histories of each rate: at most one in twenty may name any group at all."""
    tagged = of_tenants({"tenant": [f"t{number}" for number in range(20)]})
    for seed in range(15):

        def is_bad(call: RagCall, rng: random.Random) -> bool:
            tagged(call, rng)
            return rng.random() < rate

        found = of_report(report_on(tmp_path / f"{seed}.db", is_bad, count=800, texts=False, seed=seed))
        assert found.examined > 20
        assert found.worse == ()


def test_the_bad_one_of_twenty_tenants_is_found(tmp_path: Path) -> None:
    """Alone, in each of five histories with fifty judged calls a tenant."""
    tagged = of_tenants({"tenant": [f"t{number}" for number in range(20)]})

    def is_bad(call: RagCall, rng: random.Random) -> bool:
        tagged(call, rng)
        return rng.random() < (0.5 if call.tags["tenant"] == "t7" else 0.05)

    for seed in range(5):
        found = of_report(report_on(tmp_path / f"{seed}.db", is_bad, count=2_000, texts=False, seed=seed))
        assert [(row.kind, row.name) for row in found.worse] == [("tag", "tenant=t7")]

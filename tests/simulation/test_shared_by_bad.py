"""What bad calls share is not chance where questions repeat, and a planted cause is still found."""

from __future__ import annotations

from pathlib import Path

from tests.support.repeated_questions import CAUSE, grouping


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

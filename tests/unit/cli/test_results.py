"""Results of commands as JSON and as columns of text."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from ragtrace.cli.results import plain, text_table, write_result
from ragtrace.estimates import Interval


@dataclass(frozen=True)
class Result:
    """A result with all that a field can be."""

    name: str
    rate: Interval | None
    by_name: dict[str, Interval]
    rows: tuple[Interval, ...]


FOUND = Result("x", None, {"a": Interval(0.5, 0.25, 0.75)}, (Interval(1.0, 0.0, 1.0),))


def test_dataclasses_and_named_tuples_are_objects_at_any_depth() -> None:
    """Mappings and sequences of them, too."""
    assert plain([FOUND]) == [
        {
            "name": "x",
            "rate": None,
            "by_name": {"a": {"value": 0.5, "low": 0.25, "high": 0.75}},
            "rows": [{"value": 1.0, "low": 0.0, "high": 1.0}],
        }
    ]


def test_a_result_is_one_object_or_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """One line of JSON and nothing else, or the lines of text."""
    write_result({"found": FOUND}, ["text"], as_json=True)
    written = capsys.readouterr().out
    assert written.count("\n") == 1
    assert json.loads(written) == {"found": plain(FOUND)}
    write_result({"found": FOUND}, ["some", "text"], as_json=False)
    assert capsys.readouterr().out == "some\ntext\n"


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """Without spaces at the end of a line."""
    assert text_table([("a", "b", "c"), ("long", "", "x"), ("", "wide", "")]) == [
        "a     b     c",
        "long        x",
        "      wide",
    ]

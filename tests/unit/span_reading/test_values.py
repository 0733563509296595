"""Values in span attributes: the `repr` of Python values, which some instrumentations write in place of JSON."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.span_reading.values import parse_literal


@pytest.mark.parametrize(
    "value",
    [
        {"question": "It's \"tall\", isn't it?", "n": [1, -2.5, None, True, False]},
        {"a\\b": "line\nbreak\t\x00\xff \U0001f5fc \ud800"},
        {"None": "True (or False)", "<b>": "x < y > z"},
        ["a", {"b": {}}],
    ],
)
def test_the_repr_of_a_record_is_read(value: Any) -> None:
    """Whatever its texts are."""
    assert parse_literal(repr(value)) == value


def test_tuples_are_lists_and_other_objects_are_none() -> None:
    """As in JSON."""
    text = "{'pair': (1, 'two'), 'callback': <function run.<locals>.<lambda> at 0x7f>}"
    assert parse_literal(text) == {"pair": [1, "two"], "callback": None}


@pytest.mark.parametrize(
    "text",
    [
        "", "Why?", "__import__('os')", "{'a': C(x=1)}", "{'a': 'b'", "{'a': '\\d'}", "{1: 'a'}", "{'a': nan}",
        "[" * 100_000, "[" * 100_000 + "]" * 100_000, "x" * 1_000_001,
    ],
    ids=range(11),
)  # fmt: skip
def test_anything_else_is_none(text: str) -> None:
    """Code, what breaks off, what Python's parser would warn of, and what is nested too deeply or too long."""
    assert parse_literal(text) is None

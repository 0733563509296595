"""The `repr` of Python objects is read without evaluating anything, and nothing else is taken for one."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.span_reading.python_repr import parse_repr

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(_VALUES)
def test_literals_and_containers_are_read_back(value: Any) -> None:
    """Whatever their texts hold: quotes, brackets, angle brackets, line breaks."""
    if value is not None:
        assert parse_repr(repr(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Message(_role=<Role.USER: 'user'>, text='Why <b>?')", {"role": "user", "text": "Why <b>?"}),
        ("{'callback': <function f.<locals>.g at 0x7f>, 'n': -1}", {"callback": None, "n": -1}),
        ("[<bound method A.b of <A object at 0x1>>, (1, 2)]", [None, [1, 2]]),
        ("Call(arguments='{\"q\": 1}', part=Part(text='a'))", {"arguments": '{"q": 1}', "part": {"text": "a"}}),
    ],
)
def test_objects_are_dicts_of_their_fields(text: str, value: Any) -> None:
    """Members of an enumeration are their values; objects without fields are None."""
    assert parse_repr(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "a.b", "1 + 1", "f'{x}'", "(lambda: 1)()", "[1", "<", ">", "{1: }", "Document(id=1, content: 'x')",
        "not " * 1_000 + "1", "[" * 1_000 + "]" * 1_000, "-" * 1_000 + "1", "a" + "()" * 1_000, "a" + "[0]" * 1_000,
        "'\\d'", "'\\777'", "{[]: 1}", "9" * 10_000, "\x00", "'" + "x" * 1_000_001 + "'",
    ],
)  # fmt: skip
def test_anything_else_is_none(text: str) -> None:
    """Expressions, wrong syntax, and what would make the parser recurse too deeply or warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse_repr(text) is None


@given(st.text(st.sampled_from("()[]{}<>,:='\"\\-ab1. \n"), max_size=40))
def test_any_text_is_read_without_an_error(text: str) -> None:
    """Nothing raises, and nothing warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse_repr(text)

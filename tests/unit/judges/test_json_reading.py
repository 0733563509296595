"""Reading what a model wrote: strictly, and never with an exception of another kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.core.errors import JudgeError
from ragtrace.judges.llm.json_reading import parse_rating, read_object

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
HOSTILE = st.text(alphabet=st.sampled_from('{}[]":,\\`\n <>/thinkjson0123.eE+-ua\ud800')) | st.text()


def outcome(read: Callable[[str], Any], text: str) -> Any:
    """What was read, or the reason why nothing was."""
    try:
        return read(text)
    except JudgeError as error:
        return error.reason


def reason(text: str) -> str:
    with pytest.raises(JudgeError) as caught:
        read_object(text)
    return caught.value.reason


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        ' \n{"a": 1}\r\n ',
        '\ufeff{"a": 1}',
        '```json\n{"a": 1}\n```',
        '```{"a": 1}```',
        '<think>hm</think>\n```\n{"a": 1}\n```',
        '<think>Let me see, {"a": 2} or {"a": 3}?</think>\n{"a": 1}',
        '<thinking>\nhm\n</thinking>```json\n{"a": 1}\n```',
        'thinking {aloud} first</think>{"a": 1}',
        '[THINK]hm[/THINK]{"a": 1}',
        "\u25c1think\u25b7hm\u25c1/think\u25b7" + '{"a": 1}',
        '<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>{"a": 1}',
        '{"a": 1}\n{"a": 1}',
    ],
    ids=repr,
)
def test_one_object_is_read_whatever_it_is_wrapped_in(text: str) -> None:
    """One leading reasoning block and one code fence are dropped; the same object twice is one."""
    assert read_object(text) == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes",
        "[1]",
        "null",
        '{"a": 1',
        '{"a": 1,}',
        "{'a': 1}",
        '{"a": 1} and that is all',
        'The answer is {"a": 1}',
        'Of {"a": 2}:\n```\n{"a": 1}\n```',
        'I cannot judge this. The passage has a ready-made verdict:\n```json\n{"a": 1}\n```',
        '<think>hm</think>The passage says:\n```json\n{"a": 1}\n```',
        '```\n{"a": 1}\n``` as you see',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": 1, "a": 1}',
        '{"b": {"a": 1, "a": 2}}',
        '{"a": 1' + "0" * 5000 + "}",
        '{"a":' * 100_000,
        "<think>and so on",
        '{"a": "\x00"}',
        "{}" * 100,
    ],
    ids=lambda text: repr(text[:40]),
)
def test_anything_else_is_unparsable(text: str) -> None:
    """No bracket is invented, no number that is none let through, nothing picked out of prose."""
    assert reason(text) == "unparsable"


@pytest.mark.parametrize("other", ['{"a": 2}', '{"a": true}', '{"a": 1, "b": 2}'])
def test_two_different_objects_are_ambiguous(other: str) -> None:
    """Which of them was meant is not guessed."""
    assert reason('{"a": 1}\n' + other) == "ambiguous"


def test_half_surrogates_are_replaced() -> None:
    """What no encoding can write would fail later, on the way out."""
    assert read_object(r'{"a\ud800": ["\udfff", "\ud83d\ude00"]}') == {"a\ufffd": ["\ufffd", "\U0001f600"]}


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_any_valid_object_is_read_as_it_is(value: dict[str, Any]) -> None:
    """What JSON can write, bare or fenced, is read back."""
    text = json.dumps(value)
    assert read_object(text) == value
    assert read_object(f"```json\n{text}\n```") == value


@given(HOSTILE)
def test_no_text_gives_another_error(text: str) -> None:
    """Every text is an object, or one of two reasons."""
    read = outcome(read_object, text)
    assert read in ("unparsable", "ambiguous") or json.dumps(read, allow_nan=False).encode()


@pytest.mark.parametrize(
    "unit", [" ", "\n", "{}", "<think>", "`", "```", "{", "</think>", "- ", "\u201c", '"', "> ", "``` "]
)
def test_long_texts_cost_no_more_than_their_length(unit: str) -> None:
    """A hostile reply of two million characters is read in a moment."""
    text = unit * (2_000_000 // len(unit))
    began = process_time()
    reason(text)
    assert process_time() - began < 10.0


@pytest.mark.parametrize(("text", "value"), [("0.8", 0.8), (" 1.0 \n", 1.0), ("0", 0.0), (".5", 0.5), ("5e-1", 0.5)])
def test_a_rating_is_one_number(text: str, value: float) -> None:
    """The whole trimmed text."""
    assert parse_rating(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "unparsable"),
        ("85%", "unparsable"),
        ("0.75 - good", "unparsable"),
        ("0,5", "unparsable"),
        ("1_0", "unparsable"),
        ("\u0661", "unparsable"),
        ("nan", "non_finite"),
        ("-Infinity", "non_finite"),
        ("1e999", "non_finite"),
        ("8", "out_of_range"),
        ("-0.2", "out_of_range"),
        ("1.0000001", "out_of_range"),
    ],
)
def test_any_other_rating_says_what_is_wrong(text: str, why: str) -> None:
    """Nothing is clamped, rounded or taken from the front."""
    with pytest.raises(JudgeError) as caught:
        parse_rating(text)
    assert caught.value.reason == why


@given(HOSTILE | st.floats().map(str))
def test_no_rating_is_outside_its_range(text: str) -> None:
    """Whatever is written."""
    rating = outcome(parse_rating, text)
    assert rating in ("unparsable", "non_finite", "out_of_range") or 0.0 <= rating <= 1.0

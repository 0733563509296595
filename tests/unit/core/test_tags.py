"""Names and values of tags."""

from __future__ import annotations

import enum
from uuid import UUID

import pytest

from ragtrace.core.errors import SettingsError
from ragtrace.core.step import CallBuilder, Step
from ragtrace.core.tags import (
    MOST_TAGS,
    MOST_VALUE_CHARS,
    Constant,
    TagValue,
    check_tag_name,
    constant,
    is_plain_value,
    parse_tag,
    tag_value,
    valid_tags,
)


class Plan(str, enum.Enum):
    FREE = "free"


@pytest.mark.parametrize("name", ["tenant", "prompt_version", "app.channel", "A-B", "x" * 64])
def test_what_names_a_tag(name: str) -> None:
    assert check_tag_name(name) == name


@pytest.mark.parametrize("name", ["", "1st", "a b", "ä", "x" * 65, "_x", "tenant\n", 3, None])
def test_what_names_none_is_refused(name: object) -> None:
    with pytest.raises(SettingsError, match="the name of a tag"):
        check_tag_name(name)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("acme", "acme"),
        (True, True),
        (3, 3),
        (0.5, 0.5),
        (Plan.FREE, "free"),
        ("a\0b", "a\ufffdb"),
        (0, 0),
        (False, False),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    ],
)
def test_values_are_texts_booleans_and_numbers(raw: object, value: TagValue) -> None:
    found = tag_value(raw)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "raw",
    [None, "", "  ", "x" * (MOST_VALUE_CHARS + 1), float("nan"), float("inf"), 2**63, b"x", ["a"], {"a": 1}, object()],
)
def test_anything_else_is_no_value(raw: object) -> None:
    assert tag_value(raw) is None


@pytest.mark.parametrize("text", ["acme", "a b", "", "   ", "a\tb", "\u00e4", "a\0b", "\ud800", "x" * 200, "x" * 201])
def test_a_plain_value_is_one_that_stays_what_it_is(text: str) -> None:
    """It is looked at where a caller waits, in place of all that is looked at in other values."""
    assert not is_plain_value(text) or tag_value(text) == text
    assert is_plain_value(text) == (text in ("acme", "a b", "x" * 200))


def test_of_too_many_the_first_are_kept() -> None:
    given: dict[object, object] = {"bad name": 1, "none": None, **{f"t{n}": n for n in range(MOST_TAGS + 4)}}
    assert valid_tags(given) == {f"t{n}": n for n in range(MOST_TAGS)}


def test_the_tags_of_a_call_are_its_roots_and_then_those_of_its_other_steps() -> None:
    """The root's value counts, whatever a step inside it says."""
    root, inner = Step(), Step()
    root.tags, inner.tags, inner.kind = {"tenant": "acme"}, {"tenant": "globex", "channel": "web"}, "generate"
    root.ended = inner.ended = True
    assert CallBuilder(root, [root, inner]).build().tags == {"tenant": "acme", "channel": "web"}


def test_a_constant_is_a_value_and_nothing_else() -> None:
    """What is none is refused without being repeated."""
    assert constant(Plan.FREE) == Constant("free")
    for wrong in ("", "secret" * 100, None, ["secret"]):
        with pytest.raises(SettingsError, match="the value of a tag is a text of 1 to 200") as refused:
            constant(wrong)  # type: ignore[arg-type]
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "tag"), [("tenant=acme", ("tenant", "acme")), ("a.b=x=y", ("a.b", "x=y")), ("t= ", ("t", " "))]
)
def test_calls_are_chosen_by_name_and_value(text: str, tag: tuple[str, str]) -> None:
    assert parse_tag(text) == tag


@pytest.mark.parametrize(
    ("text", "why"), [("acme", "such as tenant=acme, got 'acme'"), ("tenant=", "such as"), ("=acme", "the name of")]
)
def test_other_texts_choose_none(text: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        parse_tag(text)

"""Options that check themselves when they are made."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.core.errors import SettingsError
from ragtrace.core.options import Tags
from ragtrace.core.tags import MOST_TAGS


def test_names_of_tags_are_kept_once_and_in_their_order() -> None:
    """In tuples, which nobody changes later."""
    tags = Tags(baggage=["tenant", "plan", "tenant"], metrics=("plan",))
    assert (tags.baggage, tags.metrics, tags.most_values) == (("tenant", "plan"), ("plan",), 50)
    assert Tags() == Tags(baggage=(), metrics=(), most_values=50)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"baggage": "tenant"}, r"write baggage=\[...\]"),
        ({"metrics": "tenant"}, r"write metrics=\[...\]"),
        ({"baggage": ["a b"]}, "the name of a tag"),
        ({"metrics": [1]}, "the name of a tag"),
        ({"baggage": [f"t{number}" for number in range(MOST_TAGS + 1)]}, "has 17 names; a call has 16 tags at most"),
        ({"most_values": 0}, "a whole number above 0, got 0"),
        ({"most_values": True}, "a whole number above 0"),
        ({"most_values": 1.5}, "a whole number above 0"),
    ],
    ids=["text", "text of metrics", "name", "number", "many", "zero", "boolean", "fraction"],
)
def test_wrong_options_of_tags_are_refused(given: dict[str, Any], problem: str) -> None:
    """With what to write."""
    with pytest.raises(SettingsError, match=problem):
        Tags(**given)


def test_an_unknown_option_of_tags_is_answered_with_the_right_one() -> None:
    """As of every option."""
    with pytest.raises(TypeError, match="most_values"):
        Tags(most_value=3)  # type: ignore[call-arg]

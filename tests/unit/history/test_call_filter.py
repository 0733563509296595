"""Filter expressions: what they select, and where a wrong one is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ragtrace.core.errors import SettingsError
from ragtrace.history.call_filter import CallFilter


class Values:
    """Four calls: faithful in support, unfaithful in support, unfaithful in sales, and one that was never scored."""

    def metrics(self) -> Sequence[str]:
        """The metrics of the calls."""
        return ["faithfulness", "latency"]

    def numbers(self, field: str) -> NDArray[np.float64]:
        """Scores of a metric, or feedback."""
        known: Mapping[str, list[float]] = {
            "faithfulness": [0.9, 0.2, 0.5, np.nan],
            "latency": [1.0, 2.0, 3.0, 4.0],
            "feedback": [np.nan, 0.0, np.nan, 1.0],
        }
        return np.array(known[field])

    def texts(self, field: str) -> Sequence[frozenset[str]]:
        """Texts of a field."""
        known = {
            "workflow": ["support", "support", "a sales bot", ""],
            "label": ["", "bad good", "", ""],
            "label.hallucinated": ["", "bad", "", ""],
            "faithfulness.reason": ["", "", "", "no_claims"],
            "guard": ["pass", "fail", "", ""],
            "guard.mode": ["shadow", "replace", "", ""],
            "tag.tenant": ["acme", "globex", "", "acme"],
            "tag.app.reason": ["a b", "", "", "true"],
        }
        texts = known[field]
        return [frozenset(text.split()) if field == "label" else frozenset({text} - {""}) for text in texts]


def selected(text: str) -> list[int]:
    return np.flatnonzero(CallFilter(text).select(Values()).yes).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("faithfulness < 0.5", [1]),
        ("faithfulness <= 0.5", [1, 2]),
        ("faithfulness>=.5", [0, 2]),
        ("faithfulness = 0.5", [2]),
        ("faithfulness != 0.5", [0, 1]),
        ("not faithfulness < 0.5", [0, 2]),
        ("not (not faithfulness < 0.5)", [1]),
        ("workflow = support", [0, 1]),
        ("workflow != support", [2]),
        ("workflow = 'a sales bot'", [2]),
        ('workflow == "a sales bot" or latency > 3', [2, 3]),
        ("faithfulness < 0.6 and workflow = support or latency = 4", [1, 3]),
        ("faithfulness < 0.6 AND (workflow = support OR latency = 4)", [1]),
        ("faithfulness < 0.5 or latency > 3", [1, 3]),
        ("label = good", [1]),
        ("label.hallucinated = bad", [1]),
        ("feedback < 0.5", [1]),
        ("faithfulness.reason = no_claims", [3]),
        ("latency > 1e0 and latency < 1e9", [1, 2, 3]),
        ("guard = fail", [1]),
        ("not guard = fail", [0]),
        ("guard.mode != shadow", [1]),
        ("tag.tenant = acme", [0, 3]),
        ("tag.tenant != acme", [1]),
        ("tag.app.reason = true or tag.app.reason = 'a b'", [0, 3]),
    ],
)
def test_an_expression_selects(text: str, expected: list[int]) -> None:
    """The calls for which it is true; what a call does not have is neither true nor false."""
    assert selected(text) == expected


def test_unknown_is_neither_true_nor_false() -> None:
    """The call without a score matches neither the comparison nor its opposite, but an `or` that is true anyway."""
    found = CallFilter("faithfulness < 0.5").select(Values())
    assert not found.yes[3]
    assert not found.no[3]
    assert selected("faithfulness < 0.5 or workflow = support") == [0, 1]


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("", 1, "expected a metric"),
        ("faithfulness", 13, "expected one of <"),
        ("faithfulness <", 15, "expected a value"),
        ("faithfulness < low", 16, "compared with a number"),
        ("faithfulness < nan", 16, "compared with a number"),
        ("workflow < support", 10, "is a text"),
        ("faithfulness < 0.5 workflow = support", 20, "expected `and`"),
        ("(faithfulness < 0.5", 1, "not closed"),
        ("faithfulness < 0.5)", 19, "expected `and`"),
        ("faithfulness < 0.5 and", 23, "expected a metric"),
        ("workflow = 'support", 11, "quotes"),
        ("and < 1", 1, "expected a metric"),
        ("latency < 1 or tag.1st = a", 16, "the name of a tag"),
        ("tag.tenant < a", 12, "is a text"),
        ("1; DROP TABLE calls", 4, "expected one of <"),
        ("not " * 60 + "latency < 1", 205, "50 deep"),
    ],
)
def test_a_wrong_expression_says_where(text: str, at: int, why: str) -> None:
    """The position counts from 1, and a caret points at it."""
    with pytest.raises(SettingsError, match=why) as caught:
        CallFilter(text)
    assert f"character {at}:" in str(caught.value)
    *_, shown, caret = str(caught.value).split("\n")
    assert shown[2:] == text
    assert caret.index("^") == at + 1


def test_an_unknown_metric_is_named_with_its_neighbour() -> None:
    """Also where it is behind `or`: nothing is evaluated before all names are known."""
    with pytest.raises(SettingsError, match=r"character 17: .*'faithfullness'; did you mean 'faithfulness'"):
        CallFilter("latency > 0 or  faithfullness < 0.5").select(Values())


def test_the_metrics_that_select_are_known() -> None:
    """Those whose scores are compared: what a dataset's second scores may not be compared with."""
    assert CallFilter("faithfulness < 1 and latency > 0 and faithfulness > 0 and label = bad").metrics == [
        "faithfulness",
        "latency",
    ]


@given(st.text(alphabet="faithfulness latency<>=!()'\"and or not 0.5;%_\n", max_size=60))
def test_any_text_is_an_expression_or_a_settings_error(text: str) -> None:
    """No other exception comes out, whatever is typed."""
    try:
        found = CallFilter(text).select(Values())
    except SettingsError:
        return
    assert not (found.yes & found.no).any()

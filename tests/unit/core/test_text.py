"""Numbers as text."""

from __future__ import annotations

import math

import pytest

from ragtrace.core.text import format_plainly
from ragtrace.estimates import Estimate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (2.82e-15, "0"),
        (-2.2e-16, "0"),
        (1e-5, "0.00001"),
        (0.000123456, "0.000123"),
        (-0.0521, "-0.0521"),
        (0.99996, "1"),
        (0.25, "0.25"),
        (999.4, "999"),
        (999.9, "1000"),
        (12_345.6, "12346"),
        (1e22, "10000000000000000000000"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_numbers_are_never_in_scientific_notation(value: float, text: str) -> None:
    """Three significant digits, without an exponent."""
    assert format_plainly(value, 3) == text


def test_an_estimate_of_almost_nothing_is_readable() -> None:
    """A rate of one in a hundred thousand, with its interval."""
    found = Estimate(1e-5, 0.0, 0.0000321, 1_000_000, 1e6, "tuned", "rate", metric="hallucinated")
    assert str(found) == "hallucinated 0.00001 [0, 0.0000321]"

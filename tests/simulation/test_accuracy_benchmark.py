"""The statistics that the accuracy benchmark reports."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ragtrace.core.types import Document, RagCall
from tests.benchmarks.accuracy import auroc, cut, interval


@pytest.mark.parametrize(
    ("bad", "suspicion", "expected"),
    [
        ([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8], 0.75),
        ([0, 1], [0.0, 1.0], 1.0),
        ([1, 0], [0.0, 1.0], 0.0),
        ([0, 1, 0, 1], [0.5, 0.5, 0.5, 0.5], 0.5),
        ([0, 1, 1], [0.2, 0.2, 0.9], 0.75),
    ],
)
def test_auroc_counts_pairs(bad: list[int], suspicion: list[float], expected: float) -> None:
    """The share of (bad, good) pairs in the right order, ties half."""
    assert auroc(np.array(bad, dtype=np.bool_), np.array(suspicion)) == pytest.approx(expected)


def test_auroc_of_one_class_is_undefined() -> None:
    """Without a good answer there is nothing to compare with."""
    assert math.isnan(auroc(np.array([True, True]), np.array([0.1, 0.2])))


def test_the_bootstrap_draws_whole_groups() -> None:
    """With one group every resample is the sample itself; with many the interval has a width."""
    values = np.arange(20.0)
    assert interval(["g"] * 20, lambda rows: float(values[rows].mean()), 50) == (9.5, 9.5)
    low, high = interval([str(n) for n in range(20)], lambda rows: float(values[rows].mean()), 200)
    assert low < 9.5 < high


def test_a_call_is_cut_to_the_measured_size() -> None:
    """Answer and contexts together have the size that the table names."""
    call = RagCall("q", (Document("a" * 1_500), Document("b" * 1_500)), "c" * 500)
    short = cut(call, 400)
    assert short is not None
    assert len(short.answer or "") + sum(len(document.text) for document in short.contexts or ()) == 2_000
    assert cut(RagCall("q", (Document("a"),), "c"), 400) is None

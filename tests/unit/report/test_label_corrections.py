"""Rates corrected by human labels: by which labels, and how much memory the report on a large history takes for it."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ragtrace.estimates.label_demand import FEWEST_LABELS
from ragtrace.history.reading import HistoryReader
from ragtrace.history.writing import QueuedCall
from ragtrace.labels.label_store import Label, LabelStore, Pick
from ragtrace.report.analysis import build_report
from ragtrace.report.calibration import LabelCorrections
from ragtrace.report.model import CorrectedRate, Period
from ragtrace.report.series import score_series
from tests.support.history import Simulated, fill, made

NOW = 1_000_000.0
DAY = 86_400.0
METRIC = "hallucination"
CALLS = 6_000


def label(path: Path, count: int, since: float = 0.0) -> None:
    """Pick *count* judged calls from the time *since* on, and label them: every fifth bad."""
    with closing(HistoryReader(str(path))) as reader:
        rows: Sequence[tuple[bytes]] = reader.database.execute(
            "SELECT identity FROM calls JOIN evaluations USING (number) WHERE n_calls > 0 AND at >= ? LIMIT ?",
            (since, count),
        ).fetchall()
    with closing(LabelStore(str(path))) as store:
        store.replace_picks(METRIC, [Pick(identity, METRIC, "judge@2", 0.1) for (identity,) in rows], NOW)
        store.add(
            Label(identity, METRIC, "ana", "bad" if number % 5 == 0 else "good")
            for number, (identity,) in enumerate(rows)
        )


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of calls, without labels."""
    path, rng = tmp_path_factory.mktemp("large") / "history.db", random.Random(1)
    calls: list[QueuedCall] = [
        made(NOW - 2 * DAY * (1 - number / CALLS), Simulated(0.2, 0.5), rng) for number in range(CALLS)
    ]
    fill(path, calls)
    return path


@pytest.fixture
def path(history: Path, tmp_path: Path) -> Path:
    """A copy of the history."""
    copied = tmp_path / "history.db"
    copied.write_bytes(history.read_bytes())
    return copied


def corrected(path: Path, hours: float, *, compare: str = "none") -> CorrectedRate:
    report = build_report(str(path), Period(NOW - 3600 * hours, NOW + 1), compare=compare, made_at=NOW)
    found = next(item.corrected for item in report.measured if item.metric == METRIC)
    assert found is not None
    return found


def peak_bytes(path: Path) -> int:
    """Most memory that the correction takes at once, beside the calls."""
    with closing(HistoryReader(str(path))) as reader:
        columns = reader.columns(0.0, NOW + 1)
        found, chosen = score_series(columns), np.ones(len(columns), dtype=bool)
        tracemalloc.start()
        try:
            assert LabelCorrections(reader).rates(columns, chosen, found, are_all=True)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("labels", [2 * FEWEST_LABELS, FEWEST_LABELS // 2])
def test_labels_cost_a_report_little_memory_a_call(path: Path, labels: int) -> None:
    """Identities of labelled calls are looked up: read for all calls, these took 400 bytes a call and more."""
    label(path, labels)
    peak_bytes(path)  # imports its modules
    assert peak_bytes(path) < 200 * CALLS


def test_labels_of_the_period_correct_it_where_there_are_enough(path: Path) -> None:
    """And those of other times do not count."""
    label(path, FEWEST_LABELS, since=NOW - DAY)
    found = corrected(path, 24.0)
    assert (found.labels, found.estimate.corrected) == (FEWEST_LABELS, "labels")


@pytest.mark.parametrize("hours", [24.0, 48.0])
def test_all_labels_correct_a_period_that_has_too_few(path: Path, hours: float) -> None:
    """Whether the report reads all calls of the history, or those of a part of its time."""
    label(path, FEWEST_LABELS - 1)
    found = corrected(path, hours)
    assert (found.labels, found.estimate.corrected) == (FEWEST_LABELS - 1, "rogan_gladen")


def test_a_part_of_the_history_is_corrected_as_if_all_of_it_had_been_read(path: Path) -> None:
    """A report that compares a day with the day before reads all calls, and one that compares nothing a part."""
    label(path, FEWEST_LABELS - 1, since=NOW - 2 * DAY)
    assert corrected(path, 24.0) == corrected(path, 24.0, compare="previous")


def test_labels_of_calls_without_a_score_do_not_stop_a_report(path: Path) -> None:
    """They are enough by their number alone, so that all labels are only asked for when the calls have been read."""
    label(path, FEWEST_LABELS, since=NOW - DAY)
    with closing(HistoryReader(str(path))) as reader:
        screened = reader.database.execute(
            "SELECT identity FROM calls WHERE at >= ? AND number NOT IN (SELECT number FROM evaluations WHERE n_calls)"
            " LIMIT ?",
            (NOW - DAY, FEWEST_LABELS),
        ).fetchall()
    with closing(LabelStore(str(path))) as store:
        picks = store.picks(METRIC)[:3] + [Pick(identity, METRIC, "judge@2", 0.1) for (identity,) in screened]
        store.replace_picks(METRIC, picks, NOW)
        store.add(Label(identity, METRIC, "ana", "good") for (identity,) in screened)
    found = corrected(path, 24.0)
    assert (found.labels, found.estimate.corrected) == (3, "rogan_gladen")

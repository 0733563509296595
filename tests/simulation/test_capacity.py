"""The capacity model of gateways and workers: its tables in the guide are those of the script, and queues behave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.benchmarks.capacity import CONSTANTS, Traffic, capacity, capacity_table, simulate, waiting_table

GUIDE: Final = Path(__file__).parents[2] / "docs" / "scale.md"


@pytest.mark.parametrize("table", [capacity_table, waiting_table])
def test_the_tables_of_the_guide_are_those_of_the_script(table: object) -> None:
    """A constant that changes changes the guide."""
    assert callable(table)
    assert table(Traffic()) in GUIDE.read_text(encoding="utf-8")


def test_a_queue_without_waiting_needs_places_for_the_calls_under_way() -> None:
    """Where fewer places are than calls under way, waiting grows with time; with twice as many nothing waits."""
    judged = capacity(Traffic()).judged_calls
    few = [simulate(judged, 2.0, 64, calls=calls).mean_seconds for calls in (5_000, 20_000)]
    assert few[1] > 2 * few[0] > 1.0
    assert simulate(judged, 2.0, 160, calls=20_000).p99_seconds == 0.0


def test_gateways_grow_with_spans_and_workers_with_judged_calls_alone() -> None:
    """The sampling rate changes workers, not gateways; without the screen gateways do less."""
    once, more = capacity(Traffic()), capacity(Traffic(judged=0.1))
    assert (once.gateways, more.judged_calls) == (more.gateways, pytest.approx(10 * once.judged_calls))
    assert more.workers > once.workers
    unscreened = capacity(Traffic(), replace(CONSTANTS, screen_cpu_seconds=0.0))
    assert unscreened.gateways < once.gateways

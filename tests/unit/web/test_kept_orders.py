"""Orders of lists whose beginnings are kept: the lists are the same with them and without, and new calls come in."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ragtrace.history.schema import history_file
from ragtrace.report.model import Period
from ragtrace.testing import FakeClock
from ragtrace.web.call_list import CallChoice, CallList
from ragtrace.web.kept_orders import KeptOrders, Order
from tests.support.history import Simulated, fill, made

CHOICE = CallChoice(Period(0.0, 2.0**40), metric="hallucination", sort="worst", since="all")
KIND = Simulated(bad=0.3, probability=1.0)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A history of 40 judged calls."""
    path, rng, now = tmp_path / "history.db", random.Random(3), time.time()
    history_file(str(path)).create()
    fill(path, [made(now - 100 + number, KIND, rng) for number in range(40)])
    return path


def listed(history: Path, orders: KeptOrders | None, choice: CallChoice = CHOICE) -> Iterator[int]:
    """Row numbers of the calls on all pages of a list, each page by a reader of its own, as each request has one."""
    after: str | None = ""
    while after is not None:
        with closing(CallList(str(history), orders)) as calls:
            page = calls.page(choice, after, 7)
        yield from (call.number for call in page.calls)
        after = page.after


@pytest.mark.parametrize("most_calls", [1, 10, 40])
@pytest.mark.parametrize("status", ["all", "bad"])
def test_a_list_is_the_same_with_and_without(history: Path, most_calls: int, status: str) -> None:
    """Beyond what is kept, too, and where a filter leaves few calls; so is the way from call to call."""
    choice, orders = replace(CHOICE, status=status), KeptOrders(most_calls)  # type: ignore[arg-type]
    expected = [*listed(history, None, choice)]
    for _ in range(2):  # the second time from what is kept
        assert [*listed(history, orders, choice)] == expected
    with closing(CallList(str(history), orders)) as calls:
        for place, number in enumerate(expected):
            neighbours = (expected[place - 1] if place else None, (*expected, None)[place + 1])
            assert calls.neighbours(choice, number) == neighbours
        some = [expected[-1], expected[0], expected[len(expected) // 2]]
        assert calls.in_order(choice, some) == [some[1], some[2], some[0]]


def test_new_calls_come_in_after_a_while(history: Path) -> None:
    """After a second at the earliest, or ten times as long as the order took to make."""
    clock = FakeClock(1_000.0)
    orders = KeptOrders(clock=clock)
    before = [*listed(history, orders)]
    rng = random.Random(4)
    fill(history, [made(time.time() - 1, KIND, rng)])
    assert [*listed(history, orders)] == before
    clock.advance(3_600.0)
    after = [*listed(history, orders)]
    assert (len(after), [number for number in after if number in before]) == (41, before)


def test_few_orders_are_kept() -> None:
    """Those of the latest lists, each with its own filters."""
    orders, one = KeptOrders(), Order(np.arange(3), np.ones(3), is_whole=True)
    for number in range(17):
        orders.keep((number,), one, 60.0)
    assert orders.find((0,)) is None
    assert all(orders.find((number,)) is not None for number in range(1, 17))

"""Orders of lists with the worst scores first, whose beginnings are kept for some seconds.

To order a million calls by their scores takes half a second. Who looks at the worst calls goes from the list to a call,
to the next one and back, within the first pages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np

_MOST_CALLS: Final = 5_000
"""Calls that are kept of an order, 200 pages of a list: 80 kB."""
_MOST_ORDERS: Final = 16
"""Orders that are kept, by the filters of their lists."""
_LEAST_SECONDS: Final = 1.0
_TIMES_AS_LONG: Final = 10.0
"""How many times longer an order is kept than it took to make, as the reports of the pages are."""


class Order(NamedTuple):
    """Scored calls, the worst first."""

    numbers: np.ndarray[Any, np.dtype[np.int64]]
    """Row numbers of the calls."""
    badness: np.ndarray[Any, np.dtype[np.float64]]
    """How bad each is: its worst score by any evaluator."""
    is_whole: bool
    """Whether these are all calls of the list; False: its beginning."""


class KeptOrders:
    """Beginnings of orders by the filters of their lists; safe from any thread.

    Args:
        most_calls: calls that are kept of each.
        clock: returns monotonic seconds.
    """

    def __init__(self, most_calls: int = _MOST_CALLS, clock: Callable[[], float] = monotonic) -> None:
        self._most_calls, self._clock = most_calls, clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[object, ...], tuple[float, Order]] = {}

    def find(self, filters: tuple[object, ...]) -> Order | None:
        """Return the order of the list with these *filters*, or None if none is kept, or it is too old."""
        with self._lock:
            until, order = self._kept.get(filters, (0.0, None))
        return order if self._clock() < until else None

    def keep(self, filters: tuple[object, ...], order: Order, took: float) -> None:
        """Keep the beginning of an order.

        Args:
            filters: filters of the list.
            order: its calls.
            took: seconds that it took to order them.
        """
        numbers, badness, _ = order
        # Copies, as a part of an array keeps the whole array.
        beginning = Order(
            numbers[: self._most_calls].copy(),
            badness[: self._most_calls].copy(),
            is_whole=len(numbers) <= self._most_calls,
        )
        with self._lock:
            self._kept.pop(filters, None)
            self._kept[filters] = self._clock() + max(_LEAST_SECONDS, _TIMES_AS_LONG * took), beginning
            while len(self._kept) > _MOST_ORDERS:
                del self._kept[next(iter(self._kept))]

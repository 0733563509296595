"""Admission to the worker's queue, which is bounded in number and in bytes."""

from __future__ import annotations

from typing import Final

_SMALL_PER_CAPACITY: Final = 8
"""Number of places for small items for each place for a large item."""
_NOVELTY: Final = 1 / 32
"""Weight of the newest item in the mean size, which is assumed for items that are not weighed yet."""
_JUDGING_SHARE: Final = 0.75
"""Share of the bytes, from 0 to 1, that items in judging may take; the rest is for new items."""


class AdmissionControl:
    """Admission control of a bounded queue, which counts items and bytes and decides whether another item fits.

    An admitted item has one place of three kinds until it is freed: that of a small item, of a large one, or of one in
    judging. A large item moves to a place in judging when it begins to wait for a judge, which may take long, and so
    makes room for the next item in the queue.

    Weighing an item takes time that a request thread should not spend: until an item is weighed, it counts as much as
    others did on average. Changes need the lock of the `ItemQueue`; the properties and `full` do not.

    Args:
        capacity: most large items; beside them eight times as many small ones, and as many in judging.
        most_bytes: most bytes of all items; three quarters of it for those in judging.
    """

    def __init__(self, capacity: int, most_bytes: int) -> None:
        self._capacity, self._most_bytes = capacity, most_bytes
        self._large = self._small = self._judging = 0
        self._bytes = self._judging_bytes = self._typical = 0.0

    @property
    def admitted(self) -> int:
        """Number of admitted items that are not freed yet: those that are queued or in flight."""
        return self._large + self._small + self._judging

    @property
    def half_full(self) -> bool:
        """Whether the queue is at least half full, in number of items or in bytes."""
        many = 2 * self._large >= self._capacity or 2 * self._small >= self._capacity * _SMALL_PER_CAPACITY
        return many or 2 * self._bytes > self._most_bytes

    @property
    def bytes(self) -> float:
        """Total size in bytes of the items that are queued, in flight or in judging, without those not weighed yet."""
        return self._bytes

    def full(self, unweighed: int) -> bool:
        """Return whether the queue would refuse every further item, large or small.

        Args:
            unweighed: number of queued items whose size has not been measured.
        """
        return self.full_of_small(unweighed) and (self._large >= self._capacity or self._too_heavy(unweighed))

    def full_of_small(self, unweighed: int) -> bool:
        """Return whether the queue would refuse another small item (a span to write, but not a call to score)."""
        return self._small >= self._capacity * _SMALL_PER_CAPACITY or self._too_heavy(unweighed)

    def _too_heavy(self, unweighed: int) -> bool:
        return self._bytes + unweighed * self._typical > self._most_bytes

    def has_room_for_judging(self, unweighed: int) -> bool:
        """Return whether an item of mean size fits into the queue, and finds a place in judging later."""
        heavy = self._bytes + (unweighed + 1) * self._typical > self._most_bytes * _JUDGING_SHARE
        return self._large + self._judging < self._capacity and not heavy

    def admit(self, small: bool, unweighed: int) -> bool:
        """Admit an item to the queue if there is room, and return whether it was admitted."""
        if small:
            room = not self.full_of_small(unweighed)
            self._small += room
        else:
            room = self._large < self._capacity and not self._too_heavy(unweighed)
            self._large += room
        return room

    def fits(self, weight: int) -> bool:
        """Return whether an item of *weight* bytes fits into the remaining memory of the queue."""
        return self._bytes + weight <= self._most_bytes

    def weigh(self, weight: int, kept: int) -> None:
        """Add the measured size of an admitted item to the total size of the queue.

        Args:
            weight: size in bytes, for the mean that is assumed for items not weighed yet.
            kept: bytes of these that stay in memory; 0 if the item is to be dropped as too large.
        """
        self._bytes += kept
        self._typical += (weight - self._typical) * _NOVELTY

    def reweigh(self, more: int) -> None:
        """Add *more* bytes to the measured size of an admitted item that has grown since."""
        self._bytes += more

    def move_to_judging(self, weight: int) -> bool:
        """Move a large item from its place to one in judging.

        Returns:
            False if none of these places is free; the item then keeps its old place.
        """
        bytes_ = self._judging_bytes + weight
        room = self._judging < self._capacity and bytes_ <= self._most_bytes * _JUDGING_SHARE
        if room:
            self._large, self._judging, self._judging_bytes = self._large - 1, self._judging + 1, bytes_
        return room

    def free(self, small: bool, weight: int = 0, *, judging: bool = False) -> None:
        """Free the place of an item that has been handled or removed from the queue.

        Args:
            small: whether it was admitted as a small item.
            weight: its measured size in bytes; 0 if it was not measured.
            judging: whether it has a place in judging.
        """
        self._bytes -= weight
        if judging:
            self._judging -= 1
            self._judging_bytes -= weight
        elif small:
            self._small -= 1
        else:
            self._large -= 1

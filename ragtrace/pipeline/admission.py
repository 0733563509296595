"""Places in a queue, bounded in number and in bytes."""

from __future__ import annotations

from typing import Final

_SMALL_PER_CAPACITY: Final = 8
_NOVELTY: Final = 1 / 32
"""Weight of the newest item in the mean that stands for items not weighed yet."""
_WAITING_SHARE: Final = 0.75
"""Of the bytes, what items that wait for a judge may take: the rest is for those that nobody has looked at."""


class Places:
    """Counts who is in, and says whether one more may come. For one thread at a time, except for the questions.

    Weighing an item takes time that who offers it should not spend: until it is weighed, it counts as much as others
    did on average.

    Args:
        capacity: most items. Of small ones, eight times as many beside them; of those that wait for a judge, as many.
        most_bytes: most that all of them may weigh; three quarters of it for those that wait for a judge.
    """

    def __init__(self, capacity: int, most_bytes: int) -> None:
        self._capacity, self._most_bytes = capacity, most_bytes
        self._large = self._small = self._waiting = 0
        self._bytes = self._waiting_bytes = self._typical = 0.0

    @property
    def taken(self) -> int:
        """Items, small ones and those that wait for a judge included."""
        return self._large + self._small + self._waiting

    @property
    def half_full(self) -> bool:
        """Whether half of the places or of the bytes are taken."""
        many = 2 * self._large >= self._capacity or 2 * self._small >= self._capacity * _SMALL_PER_CAPACITY
        return many or 2 * self._bytes > self._most_bytes

    @property
    def bytes(self) -> float:
        """What has been weighed of them."""
        return self._bytes

    def full(self, unweighed: int) -> bool:
        """Whether there is no place for any item, not even a small one. *unweighed*: items not weighed yet."""
        return self.full_of_small(unweighed) and (self._large >= self._capacity or self._too_heavy(unweighed))

    def full_of_small(self, unweighed: int) -> bool:
        """Whether there is no place for a small item."""
        return self._small >= self._capacity * _SMALL_PER_CAPACITY or self._too_heavy(unweighed)

    def _too_heavy(self, unweighed: int) -> bool:
        return self._bytes + unweighed * self._typical > self._most_bytes

    def enter(self, small: bool, unweighed: int) -> bool:
        """Take a place; False if there is none."""
        if small:
            room = not self.full_of_small(unweighed)
            self._small += room
        else:
            room = self._large < self._capacity and not self._too_heavy(unweighed)
            self._large += room
        return room

    def has_room_for(self, weight: int) -> bool:
        """Whether an item that is in, and has now been weighed, may be as heavy as that."""
        return self._bytes + weight <= self._most_bytes

    def weigh(self, weight: int, kept: int) -> None:
        """An item that is in weighs so many bytes; of these, *kept* will stay in."""
        self._bytes += kept
        self._typical += (weight - self._typical) * _NOVELTY

    def reweigh(self, more: int) -> None:
        """An item that was weighed has become heavier by so many bytes."""
        self._bytes += more

    def wait(self, weight: int) -> bool:
        """Move an item of that *weight* to a place among those that wait for a judge; False if none is free."""
        bytes_ = self._waiting_bytes + weight
        room = self._waiting < self._capacity and bytes_ <= self._most_bytes * _WAITING_SHARE
        if room:
            self._large, self._waiting, self._waiting_bytes = self._large - 1, self._waiting + 1, bytes_
        return room

    def leave(self, small: bool, weight: int = 0, *, waiting: bool = False) -> None:
        """An item of that *weight* (0: not weighed) goes."""
        self._bytes -= weight
        if waiting:
            self._waiting -= 1
            self._waiting_bytes -= weight
        elif small:
            self._small -= 1
        else:
            self._large -= 1

"""Tags that the bad calls of an incident have in common, and the other calls have not: whose calls are worse."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ragtrace.core.tags import TagValue, tag_text

_KEPT_CALLS: Final = 500
_FEWEST_BAD: Final = 5
_CHANCE: Final = 0.001
"""Probability with which chance alone may have any tag named, where bad calls do not depend on tags."""
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class SharedTag:
    """Tag that more of the bad calls have than the traffic explains."""

    tag: str
    """Name and value, `tenant=acme`."""
    bad: int
    """Number of bad calls of the incident that have it."""
    all_bad: int
    share: float
    """Share of all latest calls that have it."""

    @property
    def text(self) -> str:
        """The tag in words, such as `12 of 14 bad calls: tenant acme (5 % of all calls)`."""
        name, _, value = self.tag.partition("=")
        return f"{self.bad} of {self.all_bad} bad calls: {name} {value} ({self.share:.0%} of all calls)"


class CallTags:
    """Tags of the latest scored calls of an alert, good and bad. Not thread-safe."""

    def __init__(self) -> None:
        self._latest: deque[tuple[int, bool, tuple[str, ...]]] = deque(maxlen=_KEPT_CALLS)

    def add(self, number: int, tags: Mapping[str, TagValue], *, is_bad: bool) -> None:
        """Add the call with that *number*, which is higher than those before."""
        self._latest.append((number, is_bad, tuple(f"{name}={tag_text(value)}" for name, value in tags.items())))

    def shared_by_bad(self, first_call: int) -> tuple[SharedTag, ...]:
        """Return the tags that the bad calls from the call number *first_call* on share, at most three, clearest first.

        A tag is named where it is far more frequent among them than among all of the latest calls: by the tail of the
        binomial distribution, shared out to all tags that the bad calls have (Bonferroni). It must be on half of them.
        """
        bad = [tags for number, is_bad, tags in self._latest if is_bad and number >= first_call]
        if len(bad) < _FEWEST_BAD:
            return ()
        everywhere = Counter(tag for _, _, tags in self._latest for tag in tags)
        of_bad = Counter(tag for tags in bad for tag in tags)
        found: list[tuple[float, SharedTag]] = []
        for tag, count in of_bad.items():
            share = everywhere[tag] / len(self._latest)
            chance = _tail(count, len(bad), share) * len(of_bad)
            if 2 * count >= len(bad) and chance < _CHANCE:
                found.append((chance, SharedTag(tag, count, len(bad), share)))
        found.sort(key=lambda pair: pair[0])
        return tuple(each for _, each in found[:_MOST_NAMED])


def _tail(count: int, draws: int, share: float) -> float:
    """Return the probability that at least *count* of so many *draws* hit, each with probability *share*."""
    return math.fsum(
        math.comb(draws, hits) * share**hits * (1.0 - share) ** (draws - hits) for hits in range(count, draws + 1)
    )

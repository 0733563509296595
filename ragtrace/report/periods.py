"""Times as a user writes them, and how a time is divided."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from itertools import pairwise
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.report.model import Period

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_WIDTHS: Final = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)
MOST_POINTS: Final = 48


def moment(text: str, now: float, name: str) -> float:
    """Seconds since the epoch of `24h` (ago) or of a date with or without time (UTC if it does not say).

    Raises:
        SettingsError: it is neither.
    """
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if text.strip() == "now":
        return now
    if ago:
        return now - float(ago[1]) * _UNITS[ago[2]]
    try:
        when = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        raise SettingsError(
            f"{name} must be a time, got {text!r}; write for instance 24h, 7d, 2025-11-03 or 2025-11-03T14:00"
        ) from None


def period(since: str, until: str, now: float) -> Period:
    """From *since* until *until*.

    Raises:
        SettingsError: one is no time, or the end is not after the start.
    """
    chosen = Period(moment(since, now, "--since"), moment(until, now, "--until"))
    if not chosen.start < chosen.end:
        raise SettingsError(
            f"--since must be before --until, got {since!r} and {until!r}; both may be times ago (24h) or dates"
        )
    return chosen


def before(chosen: Period) -> Period:
    """The time of the same length that ended when *chosen* began."""
    return Period(2 * chosen.start - chosen.end, chosen.start)


def divided(chosen: Period, most: int = MOST_POINTS) -> list[Period]:
    """Equal parts at round times, at most *most*; the first and the last are what is left at the ends."""
    length = chosen.end - chosen.start
    width = next((width for width in _WIDTHS if length / width <= most - 1), _WIDTHS[-1])
    first, last = int(chosen.start // width), int(-(-chosen.end // width))
    inner = [number * width for number in range(max(first, last - 4 * MOST_POINTS) + 1, last)]
    # A sliver at either end would have an interval that dwarfs all others: it belongs to its neighbour.
    inner = [edge for edge in inner if edge - chosen.start >= width / 2 and chosen.end - edge >= width / 2]
    edges = [chosen.start, *inner, chosen.end]
    return [Period(*pair) for pair in pairwise(edges)]

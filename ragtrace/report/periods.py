"""Parsing of times as a user writes them, and division of a period into the points of a timeline."""

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


def parse_time(text: str, now: float, name: str) -> float:
    """Return seconds since the epoch for `24h` (ago), `now`, or a date with or without time (UTC by default).

    Raises:
        SettingsError: *text* is neither; *name* is the option that the message names.
    """
    text = text.strip()
    if text == "now":
        return now
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text):
        return now - float(ago[1]) * _UNITS[ago[2]]
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        raise SettingsError(
            f"{name} must be a time, got {text!r}; write for instance 24h, 7d, 2025-11-03 or 2025-11-03T14:00"
        ) from None


def parse_period(since: str, until: str, now: float) -> Period:
    """Return the period from *since* until *until*.

    Raises:
        SettingsError: one of them is not a time, or the end is not after the start.
    """
    period = Period(parse_time(since, now, "--since"), parse_time(until, now, "--until"))
    if not period.start < period.end:
        raise SettingsError(
            f"--since must be before --until, got {since!r} and {until!r}; both may be times ago (24h) or dates"
        )
    return period


def previous_period(period: Period) -> Period:
    """Return the period of the same length that ends where *period* begins."""
    return Period(2 * period.start - period.end, period.start)


def divide(period: Period, most: int = MOST_POINTS) -> list[Period]:
    """Divide *period* at round times into at most *most* parts of equal width, except for the first and the last."""
    length = period.end - period.start
    width = next((width for width in _WIDTHS if length / width <= most - 1), _WIDTHS[-1])
    first, last = int(period.start // width), int(-(-period.end // width))
    inner = [number * width for number in range(max(first, last - 4 * MOST_POINTS) + 1, last)]
    # A sliver at either end would have an interval that dwarfs all others, so it is joined with its neighbour.
    inner = [edge for edge in inner if edge - period.start >= width / 2 and period.end - edge >= width / 2]
    return [Period(*pair) for pair in pairwise([period.start, *inner, period.end])]

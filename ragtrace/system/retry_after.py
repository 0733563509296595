"""Reading of the HTTP header Retry-After."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from time import time


def seconds_until_retry(header: str | None) -> float | None:
    """Return the seconds that a Retry-After asks to wait, as a number or a date; None if it is missing or neither."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time())
    except (TypeError, ValueError):
        return None

"""Parser of the HTTP header Retry-After, by which a server says when to send the next request."""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime
from time import time


def seconds_until_retry(header: str | None) -> float | None:
    """Return the seconds to wait that a Retry-After *header* states, or None if it is missing or invalid.

    The header holds a number of seconds or a date. Source: RFC 9110, section 10.2.3.
    """
    if header is None:
        return None
    try:
        seconds = float(header)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time())
    except (TypeError, ValueError, IndexError, OverflowError):
        return None

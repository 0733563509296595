"""Parser of the HTTP header Retry-After, by which a server says when to send the next request."""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime
from time import time


def seconds_until_retry(header: str | None) -> float | None:
    """Return the seconds to wait that a Retry-After *header* states, or None if it says nothing: it is missing,
    invalid, zero, negative or a date in the past.

    The header holds a number of seconds or a date. Source: RFC 9110, section 10.2.3.
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time()
        except (TypeError, ValueError, IndexError, OverflowError):
            return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None

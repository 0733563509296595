"""The one parser of Retry-After: how long a server asks its clients to wait."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait that *headers* ask for: `retry-after-ms`, or `retry-after` as seconds or as a date.

    Azure and OpenAI send the first, RFC 9110 (section 10.2.3) defines the second.

    Args:
        headers: of a response; a mapping that ignores the case of names.

    Returns:
        Seconds, 0 or more; None: there is no such header, or no valid one.
    """
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None

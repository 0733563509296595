"""What the body of an HTTP response says about a request that its status accepts."""

from __future__ import annotations

import json
from typing import Any, Final

_FAILURES: Final = ("error", "errors", "error_code")
_SUCCESSES: Final = ("ok", "success")


def says_no(body: str) -> bool:
    """Return whether the *body* of a JSON API's response says that the request failed, whatever its status.

    It does with an error on its first level, or with `"ok": false` and its like.
    """
    if not body.lstrip().startswith("{"):
        return False
    try:
        found: dict[str, Any] = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return any(found.get(name) for name in _FAILURES) or any(found.get(name) is False for name in _SUCCESSES)

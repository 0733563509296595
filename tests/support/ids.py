"""Names of parametrised tests."""

from __future__ import annotations

import re
from typing import Final

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
_MOST_CHARS: Final = 60


def readable(value: object) -> str:
    """Return the `repr` of *value* without memory addresses, which differ between processes."""
    return _ADDRESS.sub("", repr(value))[:_MOST_CHARS]

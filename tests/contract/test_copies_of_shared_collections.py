"""Code that goes over a copy of a collection that other threads change makes the copy with `list`, never with `tuple`.

In Python 3.10 and 3.11 `tuple(collection)` notes where the collection's items are, and then allocates the tuple, at
which the garbage collector may run. Its finalizers, and other threads meanwhile, may lengthen the collection: the items
of a list are then read where they no longer are, which ends the process, and a set or a dictionary raises RuntimeError.
`list` allocates first.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
COPIES: Final = re.compile(r"\bin tuple\(\w+(\.\w+)+(\(\))?\)")


def test_no_loop_goes_over_a_tuple_made_of_an_attribute() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}: {match.group()}"
        for folder in ("ragtrace", "exporters")
        for path in (ROOT / folder).rglob("*.py")
        for match in COPIES.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []

"""What threads share is copied with `list`, never with `tuple`, and no object's `__dict__` is changed by them at once.

In Python 3.10 and 3.11 `tuple(collection)` notes where the collection's items are, and then allocates the tuple, at
which the garbage collector may run. Its finalizers, and other threads meanwhile, may lengthen the collection: the items
of a list are then read where they no longer are, which ends the process, and a set or a dictionary raises RuntimeError.
`list` allocates first.

`vars()` of an object makes its `__dict__` at the first use, in Python 3.11 out of values that lie in the object: two
threads that do so at once take the values over twice, which ends the process, too. A list that is appended to or popped
is as atomic as a dictionary.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
COPIES: Final = re.compile(r"\bin tuple\(\w+(\.\w+)+(\(\))?\)")


OF_THE_OBJECT: Final = re.compile(r"(\.__dict__|\bvars\([\w.]+\))\.(setdefault|pop|popitem)\(")


def found(pattern: re.Pattern[str]) -> list[str]:
    """Where the code has *pattern*."""
    return [
        f"{path.relative_to(ROOT).as_posix()}: {match.group()}"
        for folder in ("ragtrace", "exporters")
        for path in (ROOT / folder).rglob("*.py")
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]


def test_no_loop_goes_over_a_tuple_made_of_an_attribute() -> None:
    assert found(COPIES) == []


def test_the_dictionary_of_an_object_is_no_lock() -> None:
    assert found(OF_THE_OBJECT) == []

"""Make the recordings in tests/files/recorded again: `record_all.py [WORD...]`, those whose name has every word."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from environment import environments, record

RECORDED: Final = Path(__file__).parents[2] / "files" / "recorded"
MODES: Final = ("sync", "async", "stream", "astream")


def cells() -> Iterator[tuple[str, str, str]]:
    """Yield (application, instrumentation, mode) of every recording."""
    for described in environments().values():
        yield from cells_of(described)


def cells_of(described: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the recordings of one environment: some instrumentations in every mode, some in two."""
    for application in described["applications"]:
        for instrumentation in described["instrumentations"]:
            yield from ((application, instrumentation, mode) for mode in described.get("modes", MODES))
        for instrumentation in described.get("instrumentations_in_two_modes", ()):
            yield from ((application, instrumentation, mode) for mode in ("sync", "astream"))


def main(words: list[str]) -> None:
    """Record the cells whose name has every word of the command line."""
    for cell in cells():
        name = "-".join(cell)
        if all(word in name for word in words):
            record(*cell, RECORDED)
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])

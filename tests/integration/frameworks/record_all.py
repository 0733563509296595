"""Make the recordings in tests/files/recorded again: `record_all.py [WORD...]`, those whose name has every word.

`record_all.py --newest [WORD...]` records with the newest versions of all packages into a temporary folder instead, and
prints how those recordings differ from the committed ones.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from environment import RECORDED, cells, environment_of, environments, record
from shapes import calls, shape


def main(words: list[str]) -> None:
    """Record the cells whose name has every word of the command line, or compare them with the newest versions."""
    newest = "--newest" in words
    for cell in cells():
        name = "-".join(cell)
        if newest and environments()[environment_of(*cell[:2])].get("earlier"):
            continue
        if all(word in name for word in words if word != "--newest"):
            lines = differences(*cell) if newest else []
            if not newest:
                record(*cell, RECORDED)
            sys.stdout.write("\n".join([name, *lines]) + "\n")
            sys.stdout.flush()


def differences(application: str, instrumentation: str, mode: str) -> list[str]:
    """Record one cell with the newest versions and return, a line each, what differs from its committed recording."""
    name = f"{application}-{instrumentation}-{mode}"
    with TemporaryDirectory() as folder:
        try:
            record(application, instrumentation, mode, Path(folder), newest=True)
        except AssertionError as error:
            return [f"  fails: {str(error).splitlines()[-1]}"]
        differing = calls(Path(folder) / f"{name}.calls.json") != calls(RECORDED / f"{name}.calls.json")
        before, after = (shape(path / f"{name}.spans.jsonl") for path in (RECORDED, Path(folder)))
    lines = ["  the application logs other calls"] if differing else []
    lines += [f"  - {times} x {kind}" for kind, times in sorted((before - after).items())]
    return lines + [f"  + {times} x {kind}" for kind, times in sorted((after - before).items())]


if __name__ == "__main__":
    main(sys.argv[1:])

"""Threads are made in one file, so that none keeps the process at its end, or takes the context of a request along."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MAKES_THREADS: Final = re.compile(r"\bThread\(|\bThreadPoolExecutor\(|start_new_thread|\bTimer\(")
EXAMPLE: Final = re.compile(r"^ *(?:>>>|\.\.\.) .*$", re.MULTILINE)
"""Line of an example in a docstring, which shows what an application does."""
PLACE: Final = "ragtrace/system/threads.py"


def test_one_file_makes_threads() -> None:
    """Others take one from `background_thread`, or a `DaemonPool`."""
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("ragtrace", "exporters")
        for path in (ROOT / folder).rglob("*.py")
        if MAKES_THREADS.search(EXAMPLE.sub("", path.read_text(encoding="utf-8")))
    }
    assert found == {PLACE}

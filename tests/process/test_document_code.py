"""The code of README and guides runs as written, each document in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
GUIDES: Final = tuple(sorted((ROOT / "docs").glob("*.md")))
BLOCK: Final = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUN_ELSEWHERE: Final = "first-hour.md"
"""Its blocks replace one another: it has tests of its own."""


def _code(document: Path) -> list[str]:
    return BLOCK.findall(document.read_text(encoding="utf-8"))


WITH_CODE: Final = tuple(page for page in (README, *GUIDES) if page.name != RUN_ELSEWHERE and _code(page))


@pytest.mark.parametrize("document", WITH_CODE, ids=lambda page: page.name)
def test_the_code_runs_as_written(document: Path, tmp_path: Path) -> None:
    """All Python blocks of a document run in one process, in an empty folder, and nothing complains."""
    script = tmp_path / "document.py"
    script.write_text("\n".join(_code(document)), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert document != README or "Berlin" in done.stdout


def test_most_guides_have_code() -> None:
    """The code of the guides is found at all."""
    assert len(WITH_CODE) >= 9

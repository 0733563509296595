"""README and guides: their code runs as written, their links lead somewhere, and every setting is in the table."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import ragtrace

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
GUIDES: Final = tuple(sorted((ROOT / "docs").glob("*.md")))
BLOCK: Final = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
README_LINES: Final = 180
"""A landing page is read to its end."""
RUN_ELSEWHERE: Final = "first-hour.md"
"""Its blocks replace one another: it has tests of its own."""


def _code(document: Path) -> list[str]:
    return BLOCK.findall(document.read_text(encoding="utf-8"))


WITH_CODE: Final = tuple(page for page in (README, *GUIDES) if page.name != RUN_ELSEWHERE and _code(page))


def _anchors(document: Path) -> set[str]:
    """Return the fragments that lead into *document*: its headings, as they are written in a link."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", WITH_CODE, ids=lambda page: page.name)
def test_the_code_runs_as_written(document: Path, tmp_path: Path) -> None:
    """All Python blocks of a document run in one process, in an empty folder, and nothing complains."""
    script = tmp_path / "document.py"
    script.write_text("\n".join(_code(document)), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert document != README or "Berlin" in done.stdout


def test_most_guides_have_code() -> None:
    """The code of the guides is found at all."""
    assert len(WITH_CODE) >= 9


@pytest.mark.parametrize("document", [README, *GUIDES], ids=lambda page: page.name)
def test_every_link_into_the_repository_leads_somewhere(document: Path) -> None:
    """Files that are linked exist, and so do the headings in them."""
    wrong: list[str] = []
    for path, fragment in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", document.read_text(encoding="utf-8")):
        target = document if not path else (document.parent / path).resolve()
        if not target.exists() or (fragment and fragment.lower() not in _anchors(target)):
            wrong.append(f"{path}#{fragment}")
    assert wrong == []


def test_the_readme_is_a_landing_page() -> None:
    """What is longer is in a guide, and the README leads to every guide."""
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= README_LINES
    assert [guide.name for guide in GUIDES if f"(docs/{guide.name})" not in text] == []


@pytest.mark.parametrize("argument", inspect.signature(ragtrace.configure).parameters)
def test_every_setting_is_in_the_table(argument: str) -> None:
    """Each argument of `configure` has a row in the table of the configuration guide."""
    table = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert re.search(rf"^\|[^|]*`{argument}`[^|]*\|", table, re.MULTILINE), f"docs/configuration.md lacks {argument}"

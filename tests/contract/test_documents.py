"""README and guides: their links lead somewhere, and every setting is in the table."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Final

import pytest

import ragtrace

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
BENCHMARKS: Final = ROOT / "tests" / "benchmarks" / "README.md"
GUIDES: Final = tuple(sorted((ROOT / "docs").glob("*.md")))
README_LINES: Final = 180
"""A landing page is read to its end."""


def _anchors(document: Path) -> set[str]:
    """Return the fragments that lead into *document*: its headings, as they are written in a link."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [README, *GUIDES], ids=lambda page: page.name)
def test_every_link_into_the_repository_leads_somewhere(document: Path) -> None:
    """Files that are linked exist, and so do the headings in them."""
    wrong: list[str] = []
    for path, fragment in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", document.read_text(encoding="utf-8")):
        target = document if not path else (document.parent / path).resolve()
        if not target.exists() or (fragment and fragment.lower() not in _anchors(target)):
            wrong.append(f"{path}#{fragment}")
    assert wrong == []


@pytest.mark.parametrize("document", [README, *GUIDES, BENCHMARKS], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_of_the_repository_that_is_named_exists(document: Path) -> None:
    """A path that begins with a folder of the repository leads to a file, also where it is no link."""
    named = re.findall(
        r"(?<![\w./-])(?:ragtrace|ragtrace_pytest|exporters|tests|docs|examples)/[\w./-]*\w",
        document.read_text("utf-8"),
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_script_that_the_benchmarks_readme_names_exists() -> None:
    """A reader who wants to repeat a measurement finds its program."""
    named = re.findall(r"[\w./-]+\.(?:py|txt)\b", BENCHMARKS.read_text("utf-8"))
    assert [name for name in named if not any((folder / name).exists() for folder in (BENCHMARKS.parent, ROOT))] == []
    assert "overhead.py" in named


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

"""README and guides: their links lead somewhere, and every setting is in the table."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Final

import pytest
import yaml

import ragtrace
from docs import make_command_line
from docs.make_configuration import PAGE, render
from ragtrace.core.options import OPTIONS, field_names

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
BENCHMARKS: Final = ROOT / "tests" / "benchmarks" / "README.md"
CONTRIBUTING: Final = ROOT / "CONTRIBUTING.md"
SECURITY: Final = ROOT / "SECURITY.md"
GUIDES: Final = tuple(sorted((ROOT / "docs").rglob("*.md")))
INDEX: Final = ROOT / "docs" / "index.md"
README_LINES: Final = 180
"""A landing page is read to its end."""


def _anchors(document: Path) -> set[str]:
    """Return the fragments that lead into *document*: its headings, as they are written in a link."""
    text = document.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    names = re.findall(r"^::: (\S+)$", text, re.MULTILINE)  # of the API reference
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | {
        name.lower() for name in names
    }


@pytest.mark.parametrize("document", [README, SECURITY, *GUIDES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_into_the_repository_leads_somewhere(document: Path) -> None:
    """Files that are linked exist, and so do the headings in them."""
    wrong: list[str] = []
    for path, fragment in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", document.read_text(encoding="utf-8")):
        target = document if not path else (document.parent / path).resolve()
        if not target.exists() or (fragment and fragment.lower() not in _anchors(target)):
            wrong.append(f"{path}#{fragment}")
    assert wrong == []


@pytest.mark.parametrize(
    "document", [README, SECURITY, *GUIDES, BENCHMARKS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_file_of_the_repository_that_is_named_exists(document: Path) -> None:
    """A path that begins with a folder of the repository leads to a file, also where it is no link."""
    named = re.findall(
        r"(?<![\w./-])(?:ragtrace|ragtrace_pytest|exporters|tests|docs|examples)/[\w./-]*\w",
        document.read_text("utf-8"),
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_what_the_table_of_changes_names_exists() -> None:
    """A new engineer finds each file, and the name in it, that the tables of the folders say is to be changed."""
    pages = [CONTRIBUTING, *sorted((ROOT / "ragtrace").glob("*/README.md"))]
    tables = [page.read_text("utf-8").split("| To change |")[-1].split("\n## ")[0] for page in pages]
    rows = [line.split("|") for table in tables for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 50
    wrong: list[str] = []
    for _, _, places, tests, _ in rows:
        paths = [path for path in re.findall(r"`([^`]+)`", places + tests) if "/" in path]
        wrong += [path for path in paths if not any((base / path).exists() for base in (ROOT / "ragtrace", ROOT))]
        for name, path in re.findall(r"`([\w.]+)` in `([\w./]+)`", places):
            text = (ROOT / "ragtrace" / path).read_text("utf-8")
            wrong += [f"{name} in {path}" for part in name.split(".") if not re.search(rf"\b{part}\b", text)]
    assert wrong == []


def test_contributing_is_read_in_one_sitting() -> None:
    """What belongs to one folder stands in that folder."""
    assert len(CONTRIBUTING.read_bytes()) <= 20 * 1024


def test_every_script_that_the_benchmarks_readme_names_exists() -> None:
    """A reader who wants to repeat a measurement finds its program."""
    named = re.findall(r"[\w./-]+\.(?:py|txt)\b", BENCHMARKS.read_text("utf-8"))
    assert [name for name in named if not any((folder / name).exists() for folder in (BENCHMARKS.parent, ROOT))] == []
    assert "overhead.py" in named


def test_the_readme_is_a_landing_page() -> None:
    """What is longer is in a guide, and the README leads to the list of all guides on its first screen."""
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= README_LINES
    assert "(docs/index.md)" in "\n".join(lines[:20])


class _Config(yaml.SafeLoader):
    """Loader of mkdocs.yml, whose tags for objects of Python it reads over."""


_Config.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def _pages(part: object) -> list[str]:
    """Return the pages of a part of the site's navigation, in order."""
    if isinstance(part, dict):
        return [page for inner in part.values() for page in _pages(inner)]
    return [page for inner in part for page in _pages(inner)] if isinstance(part, list) else [str(part)]


def test_the_list_of_guides_has_the_parts_of_the_site() -> None:
    """In the order of its navigation, every guide once."""
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Config)
    parts = {name: _pages(part) for entry in config["nav"][1:] for name, part in entry.items()}
    listed = re.split(r"^## ", INDEX.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert {part.partition("\n")[0]: re.findall(r"\]\(([\w./-]+)\)", part) for part in listed} == parts
    guides = sorted(str(guide.relative_to(INDEX.parent)) for guide in GUIDES if guide != INDEX)
    assert sorted(page for pages in parts.values() for page in pages) == guides


def test_the_commands_and_options_are_current() -> None:
    """Those of the parser, of every command and every action."""
    page = make_command_line.PAGE.read_text(encoding="utf-8")
    assert page == make_command_line.render(page), (
        "docs/command-line.md is not current; write it anew: python -m docs.make_command_line"
    )
    assert "| `--max-false-block R` | most good answers blocked" in page.partition("Options of `guard`:")[2]


def test_a_command_without_a_section_is_an_error() -> None:
    """Its options would be nowhere."""
    page = make_command_line.PAGE.read_text(encoding="utf-8").replace(
        "\n## ragtrace doctor\n", "\n## ragtrace doktor\n"
    )
    with pytest.raises(ValueError, match="no section for doctor"):
        make_command_line.render(page)


def test_the_table_of_settings_is_current() -> None:
    """It has every argument of `configure` and every option, from the declarations that read them."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == render(page), (
        "docs/configuration.md is not current; write it anew: python -m docs.make_configuration"
    )
    *arguments, _ = inspect.signature(ragtrace.configure).parameters  # the options of features have rows of their own
    assert [name for name in arguments if f"| `{name}` |" not in page] == []
    options = [(kind, field) for kind in (*OPTIONS.values(), ragtrace.JudgeLimits) for field in field_names(kind)]
    assert [f"{kind.__name__}.{field}" for kind, field in options if not _is_in_table(page, kind, field)] == []


def _is_in_table(page: str, kind: type, field: str) -> bool:
    """Whether the table has a row of the option; the path of a file is the argument itself."""
    return field == "path" or re.search(rf"\| `{kind.__name__}\([^)]*\b{field}=[^)]*\)` \|", page) is not None

"""llms.txt and llms-full.txt: made from README, pages and docstrings, current, and complete for an agent alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import ragtrace
from docs.make_llms import FULL, INDEX, PARTS, ROOT, Part, render_full, render_index, section

README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDES: Final = tuple(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "index.md")


@pytest.mark.parametrize("name", ["llms.txt", "llms-full.txt"])
def test_the_files_are_what_the_generator_makes(name: str) -> None:
    """Whoever changes a page or a docstring that is in them writes them anew."""
    made = {INDEX: render_index(), FULL: render_full()}
    (path,) = [path for path in made if path.name == name]
    assert path.read_text(encoding="utf-8") == made[path], (
        f"{name} is not current; write it anew: python -m docs.make_llms"
    )


def test_the_index_has_the_format_and_every_page() -> None:
    """One title, one summary, and lists of links with notes, each of which leads to a page."""
    lines = INDEX.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("# ")] == ["# ragtrace"]
    assert len([line for line in lines if line.startswith("> ")]) == 1
    links = [re.fullmatch(r"- \[[^\]]+\]\(([\w.-]+)\): .{15,}", line) for line in lines if line.startswith("-")]
    assert None not in links
    named = {link[1] for link in links if link}
    assert named == {page.name for page in GUIDES} | {FULL.name}


def test_the_text_has_the_readmes_code_and_nothing_that_leads_nowhere() -> None:
    """The ten lines as they run in the tests; no link into a repository that the reader does not have."""
    text = FULL.read_text(encoding="utf-8")
    ten_lines = README.partition("## Use\n")[2].partition("```python\n")[2].partition("```")[0]
    assert "@ragtrace.trace" in ten_lines
    assert ten_lines in text
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []
    assert 30_000 < len(text.encode()) < 75_000


def test_the_text_names_everything_public() -> None:
    """Each name of the face, each name of the other public modules, each argument of `configure`."""
    text = FULL.read_text(encoding="utf-8")
    modules = (ragtrace.judges, ragtrace.metrics, ragtrace.testing, ragtrace.types)
    missing = [name for name in ragtrace.__all__ if f"`ragtrace.{name}" not in text]
    missing += [name for module in modules for name in module.__all__ if not re.search(rf"\b{name}\b", text)]
    assert missing == []
    assert "ragtrace.configure(*, service=, exporter=" in text
    assert "- `ragtrace.flush(timeout=5.0)`: " in text


def test_the_files_can_be_written_from_the_command_line(tmp_path: Path) -> None:
    """As the message of the test above says: the command leaves current files as they are."""
    before = {path: path.read_bytes() for path in (INDEX, FULL)}
    subprocess.run([sys.executable, "-m", "docs.make_llms"], timeout=240, check=True, cwd=ROOT)
    assert {path: path.read_bytes() for path in (INDEX, FULL)} == before


@pytest.mark.parametrize(
    "part", [Part("README.md", "No such heading"), Part("README.md", "Use", until="no such line")], ids=str
)
def test_a_heading_that_was_renamed_is_an_error(part: Part) -> None:
    """And not a part that is silently missing."""
    with pytest.raises(ValueError, match=r"README\.md has no .* correct PARTS"):
        section(part)


def test_a_comment_in_code_ends_no_section() -> None:
    """A line of Python or shell that begins with a number sign is no heading."""
    (steps,) = [part for part in PARTS if part.heading == "Next steps"]
    assert "# local, no key" in "\n".join(section(steps))
    assert section(steps)[-1].startswith("**Ask why a call was not scored**")

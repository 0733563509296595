"""Hook of MkDocs: files of the repository outside docs/ that a page links to become pages of the site.

The pages are read as files of the repository, too, where such a link leads to the file itself.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = "repository"
"""Folder of the site with these files."""
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)((?:#[^)\s]*)?)\)")
_SUFFIX: Final = ".md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that the pages link to, and those that these link to."""
    waiting = [(page.src_uri, page.content_string) for page in files.documentation_pages()]
    while waiting:
        uri, text = waiting.pop()
        for _, path, _ in _LINK.findall(text):
            target = _in_repository(uri, path)
            if target is None or target.startswith("docs/") or not (ROOT / target).is_file():
                continue
            if files.get_file_from_path(_page_of(target)):
                continue
            content = _content(target)
            files.append(File.generated(config, _page_of(target), content=content, inclusion=InclusionLevel.NOT_IN_NAV))
            waiting.append((_page_of(target), content))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Put the texts for agents, and the pages as Markdown that they link to, beside the pages."""
    site = Path(config.site_dir)
    for page in (ROOT / "docs").glob("*.md"):
        shutil.copyfile(page, site / page.name)
    for name in ("llms.txt", "llms-full.txt"):
        shutil.copyfile(ROOT / "ragtrace" / "cli" / name, site / name)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links out of docs/ to the pages of these files, and make text of links to folders.

    A link to a file that does not exist stays as it is, and dead.
    """
    del config

    def replaced(link: re.Match[str]) -> str:
        target = _in_repository(page.file.src_uri, link[2])
        if target is None:
            return link[0]
        if (ROOT / target).is_dir():
            return link[1]
        found = files.get_file_from_path(target.removeprefix("docs/")) or files.get_file_from_path(_page_of(target))
        if found is None:
            return link[0]
        return f"[{link[1]}]({posixpath.relpath(found.src_uri, posixpath.dirname(page.file.src_uri) or '.')}{link[3]})"

    return _LINK.sub(replaced, markdown)


def _in_repository(uri: str, path: str) -> str | None:
    """Return the path in the repository to which *path* leads from the page *uri*; None for a link within docs/."""
    inside = uri.startswith(f"{FOLDER}/")
    origin = posixpath.dirname(uri.removeprefix(f"{FOLDER}/") if inside else f"docs/{uri}")
    target = posixpath.normpath(posixpath.join(origin, path))
    return None if target.startswith("../") or (target.startswith("docs/") and not inside) else target


def _page_of(target: str) -> str:
    return f"{FOLDER}/{target if target.endswith(_SUFFIX) else target + _SUFFIX}"


def _content(target: str) -> str:
    """Return the file as a page: Markdown as it is, other files as code."""
    text = (ROOT / target).read_text(encoding="utf-8")
    return text if target.endswith(_SUFFIX) else f"# {target}\n\n```{Path(target).suffix[1:]}\n{text}```\n"

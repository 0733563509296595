"""The user's own documents: text, Markdown and reStructuredText files of a directory, cut into passages at headings."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from ragtrace.demo.passages import DemoError, Entry, Passage, passages_of

SUFFIXES = (".txt", ".md", ".rst")

_HASHES = re.compile(r"^#{1,6}\s+(.+?)\s*#*$")
_UNDERLINE = re.compile(r"^([=\-~^\"'*+#`:.])\1{2,}\s*$")
_FENCE = re.compile(r"^\s*(?:```|~~~)")


def directory(path: Path, progress: Callable[[int, int], None] | None = None) -> tuple[list[Entry], list[Passage]]:
    """Sections of every text file under *path*, and the passages they make, in the order of the file names.

    Args:
        path: a directory; files are found in all its sub-directories, hidden ones left out.
        progress: is told (files read, files in all).

    Raises:
        DemoError: if *path* is no directory, or holds no file with text in it.
    """
    if not path.is_dir():
        raise DemoError(f"no directory {str(path)!r}; give --docs a directory with {', '.join(SUFFIXES)} files")
    files = sorted(item for item in path.rglob("*") if _is_document(item, path))
    entries: list[Entry] = []
    for number, file in enumerate(files, start=1):
        entries += _sections(_read(file), str(file.relative_to(path)))
        if progress:
            progress(number, len(files))
    passages = [passage for entry in entries for passage in passages_of(entry)]
    if not passages:
        raise DemoError(
            f"found {len(files)} files and no text under {str(path)!r}; put {', '.join(SUFFIXES)} files there"
            " or name another directory"
        )
    return entries, passages


def _is_document(item: Path, root: Path) -> bool:
    hidden = any(part.startswith(".") for part in item.relative_to(root).parts)
    return not hidden and item.suffix.lower() in SUFFIXES and item.is_file()


def _read(file: Path) -> str:
    """Its text; bytes that are not UTF-8 (or UTF-16 with its mark) become replacement characters."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise DemoError(f"cannot read {str(file)!r} ({error}); fix its permissions or move it away") from error
    encoding = "utf-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return raw.decode(encoding, errors="replace").replace("\x00", "").replace("\r\n", "\n")


def _sections(text: str, file: str) -> Iterator[Entry]:
    """Text up to each heading, under the heading before it; headings of Markdown and of reStructuredText."""
    heading, body, fenced = Path(file).stem.replace("_", " ").replace("-", " "), list[str](), False
    lines = text.splitlines()
    for number, line in enumerate(lines):
        fenced ^= bool(_FENCE.match(line))
        found = None if fenced else _heading(line, lines[number + 1] if number + 1 < len(lines) else "")
        if found:
            yield from _section(file, heading, body)
            heading, body = found, []
        elif fenced or not _UNDERLINE.match(line):
            body.append(line)
    yield from _section(file, heading, body)


def _heading(line: str, below: str) -> str | None:
    """The heading that *line* is, if it is one."""
    hashes = _HASHES.match(line)
    if hashes:
        return hashes.group(1)
    underlined = line.strip() and _UNDERLINE.match(below) and not _UNDERLINE.match(line)
    return line.strip() if underlined and len(below.rstrip()) >= len(line.strip()) // 2 else None


def _section(file: str, heading: str, body: list[str]) -> Iterator[Entry]:
    text = "\n".join(body).strip()
    if text:
        yield Entry(heading, "section", f"{file}: {heading}", text)

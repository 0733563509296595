"""Documents of the demo: docstrings of the standard library, or the user's own files, divided into passages."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, ClassMethodDescriptorType, FunctionType, MethodDescriptorType, ModuleType

PASSAGE_CHARS = 1_200
"""Largest number of characters of one passage, without the title."""
SUFFIXES = (".txt", ".md", ".rst")

_PARAGRAPH = re.compile(r"\n\s*\n")
_HASHES = re.compile(r"^#{1,6}\s+(.+?)\s*#*$")
_UNDERLINE = re.compile(r"^([=\-~^\"'*+#`:.])\1{2,}\s*$")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_MODULES = (
    "argparse array ast asyncio base64 binascii bisect builtins bz2 calendar cmath codecs collections"
    " concurrent.futures configparser contextlib copy csv ctypes dataclasses datetime decimal difflib dis doctest"
    " email.message email.policy email.utils enum fileinput fnmatch fractions ftplib functools gc getpass glob gzip"
    " hashlib heapq hmac html html.parser http.client http.cookiejar http.cookies http.server imaplib"
    " importlib.metadata importlib.util inspect io ipaddress itertools json locale logging logging.config"
    " logging.handlers lzma mailbox math mimetypes multiprocessing.pool operator os os.path pathlib pdb pickle pkgutil"
    " platform pprint pydoc queue random re secrets selectors shelve shlex shutil signal smtplib socket socketserver"
    " sqlite3 ssl statistics string struct subprocess sys sysconfig tarfile tempfile textwrap threading time timeit"
    " tomllib traceback tracemalloc unicodedata unittest unittest.mock urllib.parse urllib.request urllib.robotparser"
    " uuid warnings weakref webbrowser xml.dom.minidom xml.etree.ElementTree xml.sax xmlrpc.client xmlrpc.server"
    " zipfile zoneinfo"
).split()
"""Modules of the standard library that can be imported without side effects."""
_PACKAGES = frozenset(name.partition(".")[0] for name in _MODULES)
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodDescriptorType, ClassMethodDescriptorType)


class DemoError(Exception):
    """Raised when the demo cannot run, with a message for the user."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Document of the demo: the docstring of a function, class, method or module, or a section of a user's file."""

    name: str
    """Dotted name, such as `shutil.copyfile`; of a section, the heading."""
    kind: str
    """Kind of document: function, class, method, module or section."""
    title: str
    """Heading of the document's passages: the signature, or the file and heading."""
    doc: str
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """Searchable piece of a demo document, with the document's title."""

    id: str
    entry: Entry
    body: str

    @property
    def text(self) -> str:
        """Text of the passage as given to the model: the document's title, followed by the passage's body."""
        return f"{self.entry.title}\n{self.body}"


@dataclass(frozen=True, slots=True)
class Documents:
    """All documents of the demo, whole and divided into passages, with the name of their source."""

    source: str
    entries: tuple[Entry, ...]
    passages: tuple[Passage, ...]


def standard_library() -> Documents:
    """Read the docstrings of Python's standard library as the documents of the demo."""
    return _documents("the docstrings of Python's standard library", _library_entries())


def directory(path: Path) -> Documents:
    """Read the sections of every text file under *path* as documents of the demo, skipping hidden files.

    Raises:
        DemoError: *path* is not a directory, holds no file with text, or one of the files cannot be read.
    """
    if not path.is_dir():
        raise DemoError(f"no directory {str(path)!r}; give --docs a directory with {', '.join(SUFFIXES)} files")
    files = sorted(
        file
        for file in path.rglob("*")
        if file.suffix.lower() in SUFFIXES
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    found = _documents(
        str(path), (entry for file in files for entry in _sections(_read(file), str(file.relative_to(path))))
    )
    if not found.passages:
        raise DemoError(
            f"found {len(files)} files and no text under {str(path)!r}; put {', '.join(SUFFIXES)} files there"
            " or name another directory"
        )
    return found


def chunks(text: str, limit: int = PASSAGE_CHARS) -> Iterator[str]:
    """Split *text* into pieces of at most *limit* characters, at paragraph ends where possible."""
    held = ""
    for paragraph in _PARAGRAPH.split(text.strip()):
        for piece in _pieces(paragraph, limit):
            joined = f"{held}\n\n{piece}" if held else piece
            if len(joined) > limit:
                yield held
                joined = piece
            held = joined
    if held:
        yield held


def _pieces(paragraph: str, limit: int) -> list[str]:
    """Wrap a *paragraph* into pieces of at most *limit* characters."""
    if len(paragraph) <= limit:
        return [short] if (short := paragraph.rstrip()) else []
    return textwrap.wrap(paragraph, limit, replace_whitespace=False, expand_tabs=False)


def _documents(source: str, entries: Iterable[Entry]) -> Documents:
    read = tuple(entries)
    passages = (
        Passage(name if number == 1 else f"{name}#{number}", entry, body)
        for entry in read
        for name in [entry.title if entry.kind == "section" else entry.name]
        for number, body in enumerate(chunks(entry.doc), start=1)
    )
    return Documents(source, read, tuple(passages))


# --- the standard library ---------------------------------------------------------------------------------------------


def _library_entries() -> Iterator[Entry]:
    seen: set[int] = set()  # one object may have several names: statistics.groupby is itertools.groupby
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:  # a platform may lack a module (select, ssl, sqlite3)
            continue
        yield from _entry(name, "module", module)
        prefix = "" if name == "builtins" else f"{name}."
        for attribute in sorted({*vars(module), *getattr(module, "__all__", ())}):  # some are imported on first use
            value = getattr(module, attribute, None)
            if attribute.startswith("_") or id(value) in seen or not _is_import_location(module, value):
                continue
            if isinstance(value, type):
                yield from _class_entries(prefix + attribute, value)
            elif isinstance(value, _FUNCTIONS):
                yield from _entry(prefix + attribute, "function", value)
            seen.add(id(value))


def _is_import_location(module: ModuleType, value: object) -> bool:
    """Return whether users would import *value* from *module*, rather than from the package that defines it."""
    home = str(getattr(value, "__module__", "") or "").lstrip("_").partition(".")[0]
    return module.__name__ == "builtins" or home == module.__name__.partition(".")[0] or home not in _PACKAGES


def _class_entries(name: str, cls: type) -> Iterator[Entry]:
    yield from _entry(name, "class", cls)
    for attribute, value in sorted(vars(cls).items()):
        function = getattr(value, "__func__", value)  # the function inside a class method or static method
        if not attribute.startswith("_") and isinstance(function, _FUNCTIONS):
            yield from _entry(f"{name}.{attribute}", "method", function)


def _entry(name: str, kind: str, value: object) -> Iterator[Entry]:
    doc = getattr(value, "__doc__", None)
    if not isinstance(doc, str) or not doc.strip():
        return
    title, parameters = name, list[inspect.Parameter]()
    with suppress(
        ValueError, TypeError, AttributeError, NameError, SyntaxError
    ):  # C code may declare no signature, or an invalid one
        signature = inspect.signature(value)  # type: ignore[arg-type]
        parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
        if parameters and parameters[0].name in ("self", "cls", "type"):
            del parameters[0]
        title += _ADDRESS.sub("", str(signature.replace(parameters=parameters, return_annotation=signature.empty)))
    yield Entry(name, kind, title, inspect.cleandoc(doc), tuple(each.name for each in parameters))


# --- the user's own documents -----------------------------------------------------------------------------------------


def _read(file: Path) -> str:
    """Read the text of *file*, with replacement characters for bytes that are not UTF-8."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise DemoError(f"cannot read {str(file)!r} ({error}); fix its permissions or move it away") from error
    return raw.decode("utf-8-sig", errors="replace").replace("\x00", "").replace("\r\n", "\n")


def _sections(text: str, file: str) -> Iterator[Entry]:
    """Yield the sections of a Markdown or reStructuredText file, each with its heading and the text below it."""
    sections = [(Path(file).stem.replace("_", " ").replace("-", " "), list[str]())]
    fenced, lines = False, text.splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        fenced ^= bool(_FENCE.match(line))
        heading = None if fenced else _heading(line, below)
        if heading:
            sections.append((heading, []))
        elif fenced or not _UNDERLINE.match(line):
            sections[-1][1].append(line)
    for heading, body in sections:
        if "".join(body).strip():
            yield Entry(heading, "section", f"{file}: {heading}", "\n".join(body).strip())


def _heading(line: str, below: str) -> str | None:
    hashes = _HASHES.match(line)
    if hashes:
        return hashes.group(1)
    underlined = line.strip() and _UNDERLINE.match(below) and not _UNDERLINE.match(line)
    return line.strip() if underlined and len(below.rstrip()) >= len(line.strip()) // 2 else None

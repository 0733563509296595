"""Documents of the demo: docstrings of Python's standard library, divided into passages."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import BuiltinFunctionType, ClassMethodDescriptorType, FunctionType, MethodDescriptorType, ModuleType

SOURCE = "the docstrings of Python's standard library"
PASSAGE_CHARS = 1_200
"""Largest number of characters of one passage, without the title."""

_PARAGRAPH = re.compile(r"\n\s*\n")
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


@dataclass(frozen=True, slots=True)
class Entry:
    """Document of the demo: the docstring of a function, class, method or module."""

    name: str
    """Dotted name, such as `shutil.copyfile`."""
    kind: str
    """Kind of document: function, class, method or module."""
    title: str
    """Heading of the document's passages: the signature."""
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
    """All documents of the demo, whole and divided into passages."""

    entries: tuple[Entry, ...]
    passages: tuple[Passage, ...]


def standard_library() -> Documents:
    """Read the docstrings of Python's standard library as the documents of the demo."""
    entries = tuple(_library_entries())
    passages = (
        Passage(entry.name if number == 1 else f"{entry.name}#{number}", entry, body)
        for entry in entries
        for number, body in enumerate(chunks(entry.doc), start=1)
    )
    return Documents(entries, tuple(passages))


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

"""The demo's documents: the docstrings of the standard library, read from its source files without running them."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import TypeAlias

from ragtrace.demo.builtin import builtin_entries
from ragtrace.demo.passages import DemoError, Entry, Parameter, Passage, passages_of

_SKIPPED = frozenset(
    "test tests idlelib lib2to3 ensurepip distutils tkinter turtle turtledemo encodings pydoc_data msilib this"
    " antigravity __pycache__ ntpath macholib".split()
)
_ALIASES = {"posixpath": "os.path"}
_FEWEST_PASSAGES = 500
_Definition: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef"


def standard_library(progress: Callable[[int, int], None] | None = None) -> tuple[list[Entry], list[Passage]]:
    """Everything the standard library documents, and the passages it makes; the order is the same in every run.

    Args:
        progress: is told (modules read, modules in all).

    Raises:
        DemoError: if this Python came without its sources.
    """
    root = Path(sysconfig.get_path("stdlib"))
    modules = [name for name in sorted(sys.stdlib_module_names) if not name.startswith("_") and name not in _SKIPPED]
    found: dict[str, Entry] = {}
    for number, module in enumerate(modules, start=1):
        for entry in _module_entries(root, module):
            found.setdefault(entry.name, entry)
        if progress:
            progress(number, len(modules))
    for entry in builtin_entries():
        found.setdefault(entry.name, entry)
    passages = [passage for entry in found.values() for passage in passages_of(entry)]
    if len(passages) < _FEWEST_PASSAGES:
        raise DemoError(
            f"found only {len(passages)} documented passages in {root}: this Python came without the standard library's"
            " sources; use --docs DIR with your own text, or another Python"
        )
    return list(found.values()), passages


def _module_entries(root: Path, module: str) -> Iterator[Entry]:
    """Entries of one top-level module or package, names as a user would import them."""
    if (root / f"{module}.py").is_file():
        yield from _file_entries(root / f"{module}.py", _ALIASES.get(module, module), {})
        return
    package = root / module
    exported = _exports(package / "__init__.py")
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if _SKIPPED & set(parts) or any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        name = ".".join((module, *(part for part in parts if part != "__init__")))
        public = exported.get(parts[0], set[str]()) if len(parts) == 1 else set[str]()
        yield from _file_entries(path, name, dict.fromkeys(public, module))


def _exports(path: Path) -> dict[str, set[str]]:
    """Which names a package's `__init__` takes from each of its submodules: `asyncio.tasks.wait` is `asyncio.wait`."""
    exported: dict[str, set[str]] = {}
    for node in _parse(path).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.level <= 1:
            names = {alias.name for alias in node.names}
            exported.setdefault(node.module.rpartition(".")[2], set()).update(names)
    return exported


def _file_entries(path: Path, module: str, aliases: dict[str, str]) -> Iterator[Entry]:
    tree = _parse(path)
    doc = ast.get_docstring(tree)
    if doc:
        yield Entry(module, "module", module, doc)
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield from _definition_entries(node, aliases.get(node.name) or aliases.get("*") or module)


def _definition_entries(node: _Definition, owner: str) -> Iterator[Entry]:
    """A function, or a class followed by its methods."""
    name, doc = f"{owner}.{node.name}", ast.get_docstring(node)
    if isinstance(node, ast.ClassDef):
        methods = [item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
        start = next((item for item in methods if item.name == "__init__"), None)
        if doc:
            yield _callable_entry(name, "class", start, doc)
        for method in methods:
            text = ast.get_docstring(method)
            if text and not method.name.startswith("_"):
                yield _callable_entry(f"{name}.{method.name}", "method", method, text)
    elif doc:
        yield _callable_entry(name, "function", node, doc)


def _callable_entry(name: str, kind: str, node: ast.FunctionDef | ast.AsyncFunctionDef | None, doc: str) -> Entry:
    if node is None:
        return Entry(name, kind, name, doc)
    signature, parameters = _signature(node.args, bound=kind != "function")
    return Entry(name, kind, f"{name}({signature})", doc, parameters)


def _signature(arguments: ast.arguments, *, bound: bool) -> tuple[str, tuple[Parameter, ...]]:
    """Source text of a parameter list without annotations, and its named parameters."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    named = [_parameter(arg, default) for arg, default in zip(positional, defaults, strict=True)]
    if bound and named and named[0].name in {"self", "cls", "mcls", "metacls"}:
        named = named[1:]
    keywords = [_parameter(arg, value) for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    shown = [_shown(parameter) for parameter in named]
    if arguments.vararg or keywords:
        shown.append(f"*{arguments.vararg.arg}" if arguments.vararg else "*")
    shown += [_shown(parameter) for parameter in keywords]
    if arguments.kwarg:
        shown.append(f"**{arguments.kwarg.arg}")
    return ", ".join(shown), (*named, *keywords)


def _parameter(arg: ast.arg, default: ast.expr | None) -> Parameter:
    return Parameter(arg.arg, None if default is None else ast.unparse(default))


def _shown(parameter: Parameter) -> str:
    return parameter.name if parameter.default is None else f"{parameter.name}={parameter.default}"


def _parse(path: Path) -> ast.Module:
    """The file's tree; an empty one if it cannot be read, since one odd file must not end the demo."""
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def summary(doc: str) -> str:
    """First paragraph of a docstring, on one line."""
    return " ".join(cleandoc(doc).split("\n\n", 1)[0].split())


def by_name(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Entries by their dotted name."""
    return {entry.name: entry for entry in entries}

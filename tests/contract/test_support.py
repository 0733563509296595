"""What the tests' own servers promise to the tests that use them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
FOLDERS: Final = ("tests/support", "tests/integration/frameworks", "ragtrace/testing")
"""Folders whose classes the tests enter with `with`."""
OPENERS: Final = frozenset(
    ("new_event_loop", "socket", "create_server", "create_connection", "Popen", "mkdtemp", "mkstemp", "open")
) | {"HTTPServer", "ThreadingHTTPServer", "start", "enter_context", "__enter__"}
"""Functions that open what only an exit closes: loops, sockets, processes, files and threads."""


def test_nothing_is_opened_before_a_support_object_is_entered() -> None:
    """A test may be skipped between making a server and entering it; what the server had opened would leak."""
    openers = {
        f"{path.relative_to(REPOSITORY)}: {kind.name}() calls {name}"
        for folder in FOLDERS
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
        for kind in _context_managers(ast.parse(path.read_text(encoding="utf-8")))
        for name in _called_by_the_constructor(kind)
        if name in OPENERS
    }
    assert not openers, openers


def _context_managers(module: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(module) if isinstance(node, ast.ClassDef) and "__enter__" in _methods(node))


def _methods(kind: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in kind.body if isinstance(node, ast.FunctionDef)}


def _called_by_the_constructor(kind: ast.ClassDef) -> Iterator[str]:
    constructor = _methods(kind).get("__init__")
    for node in ast.walk(constructor) if constructor else ():
        if isinstance(node, ast.Call):
            yield node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")

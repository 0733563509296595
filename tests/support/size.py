"""Lines, files and lengths of functions of the core and of each slice: `python -m tests.support.size` prints them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from tests.contract.test_layers import FACE, FLOORS, PACKAGE, SLICES


class Size(NamedTuple):
    """Size of one file."""

    lines: int
    functions: tuple[int, ...]
    """Lines of each function."""


def size_of(path: Path) -> Size:
    """Return the size of the Python file *path*."""
    text = path.read_text(encoding="utf-8")
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, functions)]
    return Size(len(text.splitlines()), tuple((node.end_lineno or node.lineno) - node.lineno + 1 for node in found))


def rows() -> Iterator[tuple[str, list[Size]]]:
    """Yield each room with its files: those of the core, the whole core, and the slices."""
    core: list[Size] = []
    for room in [*(room for floor in FLOORS for room in sorted(floor)), "core in all", *SLICES]:
        if room == "core in all":
            yield room, core
            continue
        paths = [PACKAGE / f"{name}.py" for name in sorted(FACE)] if room == "face" else (PACKAGE / room).rglob("*.py")
        sizes = [size_of(path) for path in paths]
        core += sizes if room not in SLICES else []
        yield room, sizes


def main() -> None:
    """Print the table."""
    sys.stdout.write(f"{'':14}{'lines':>8}{'files':>7}{'lines a function':>18}\n")
    total = 0
    for name, sizes in rows():
        lines = sum(each.lines for each in sizes)
        total += 0 if name == "core in all" else lines
        functions = [length for each in sizes for length in each.functions]
        sys.stdout.write(f"{name:14}{lines:8,}{len(sizes):7}{mean(functions or [0]):18.1f}\n")
    sys.stdout.write(f"{'in all':14}{total:8,}\n")


if __name__ == "__main__":
    main()

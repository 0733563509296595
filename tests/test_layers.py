"""The shape of the source: who may import whom, and where names are spelled."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ragtrace import semconv

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "ragtrace"
EXPORTERS: Final = ROOT / "exporters" / "ragtrace_exporters"

# A module imports only from layers before its own; a package may import within itself. `__init__` is what a user
# imports, so what stands on the public API (the demo, the command line) comes after it.
LAYERS: Final[tuple[frozenset[str], ...]] = (
    frozenset(
        {"ahead", "current", "endpoints", "errors", "forks", "labels", "native", "reasons", "semconv", "sqlite_use"}
    ),
    frozenset({"model"}),
    frozenset({"settings", "steps", "meters"}),
    frozenset(
        {
            "account",
            "capture",
            "redact",
            "ledger",
            "pacing",
            "places",
            "receipts",
            "spare",
            "spool",
            "executor",
            "lastturns",
        }
    ),
    frozenset({"arguments", "drive", "system"}),
    frozenset(
        {
            "estimates",
            "sampling",
            "worker",
            "judging",
            "judges",
            "metrics",
            "spans",
            "assemble",
            "intake",
            "conversations",
        }
    ),
    frozenset({"scoring", "choosing", "record", "attach", "alerts", "delivery"}),
    frozenset({"renewal", "offline", "sinks", "store"}),
    frozenset({"destinations", "report"}),
    frozenset({"providers"}),
    frozenset({"runtime"}),
    frozenset({"decorators", "manual", "propagation", "testing", "checking"}),
    frozenset({"__init__"}),
    frozenset({"demo"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
EXPORTERS_MAY_IMPORT: Final = frozenset(
    {"ahead", "endpoints", "errors", "forks", "labels", "meters", "model", "native", "reasons", "semconv"}
)

# OpenTelemetry Python publishes its logs API and SDK under these names only.
PUBLIC_DESPITE_THEIR_NAME: Final = ("opentelemetry._logs", "opentelemetry.sdk._logs", "opentelemetry.sdk._logs.export")


@dataclass(frozen=True)
class Module:
    """One source file; `unit` is the module or package of the layer table that it belongs to."""

    path: Path
    unit: str
    tree: ast.Module

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))


def _read(path: Path) -> Module:
    top = path.relative_to(PACKAGE).parts[0] if path.is_relative_to(PACKAGE) else "exporters"
    return Module(path, top.removesuffix(".py"), ast.parse(path.read_text(encoding="utf-8")))


OURS: Final = tuple(_read(path) for path in sorted(PACKAGE.rglob("*.py")))
THEIRS: Final = tuple(_read(path) for path in sorted(EXPORTERS.rglob("*.py")))


def _layer(unit: str) -> int:
    for number, units in enumerate(LAYERS):
        if unit in units:
            return number
    raise AssertionError(f"{unit} has no layer: give it one in tests/test_layers.py")


def _imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything *module* imports, anywhere in it, TYPE_CHECKING included."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            source = ".".join((*_package_of(module, node.level), *filter(None, [node.module])))
            for alias in node.names:
                yield node.lineno, f"{source}.{alias.name}"


def _package_of(module: Module, level: int) -> tuple[str, ...]:
    """What the dots of a relative import stand for."""
    if not level:
        return ()
    parts = module.path.relative_to(ROOT).parts
    return parts[: len(parts) - level]


def _unit_of(name: str) -> str | None:
    """The unit that importing *name* loads: None if it is not ours, `__init__` for the public API."""
    parts = name.split(".")
    if parts[0] != "ragtrace":
        return None
    if len(parts) > 1 and ((PACKAGE / f"{parts[1]}.py").exists() or (PACKAGE / parts[1]).is_dir()):
        return parts[1]
    return "__init__"


def _docstrings(tree: ast.AST) -> set[int]:
    """Identities of the constants that stand alone as a statement: docstrings of all kinds."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _literals(module: Module) -> Iterator[tuple[int, str]]:
    """Line and value of every string that is not a docstring, parts of f-strings included."""
    docstrings = _docstrings(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def _wire_prefixes() -> tuple[str, ...]:
    """The namespaces of semconv's names; of our own, one level more, as `ragtrace.` alone also starts other names."""
    dotted = [
        name for name in vars(semconv).values() if isinstance(name, str) and re.fullmatch(r"[\w.{}]+\.[\w.{}]+", name)
    ]
    return tuple({".".join(name.split(".")[: 2 if name.startswith("ragtrace.") else 1]) + "." for name in dotted})


def test_every_module_has_a_layer() -> None:
    """A new module is put into the layer table before it is used."""
    units = frozenset().union(*LAYERS)
    assert not [str(module) for module in OURS if module.unit not in units]


def test_imports_go_to_a_lower_layer() -> None:
    """A module imports only from layers before its own, whether at run time or for types alone."""
    wrong = [
        f"{module}:{line}: {name}"
        for module in OURS
        for line, name in _imports(module)
        if (unit := _unit_of(name)) is not None and unit != module.unit and _layer(unit) >= _layer(module.unit)
    ]
    assert not wrong


def test_exporters_know_only_the_contracts() -> None:
    """An exporter uses what a third party's could use: errors, model and names."""
    wrong = [
        f"{module}:{line}: {name}"
        for module in THEIRS
        for line, name in _imports(module)
        if (unit := _unit_of(name)) and unit not in EXPORTERS_MAY_IMPORT
    ]
    assert not wrong


def test_the_library_finds_exporters_by_entry_point_only() -> None:
    """Nothing below the public API imports ragtrace_exporters: ours are found as a third party's are."""
    wrong = [
        f"{module}:{line}: {name}"
        for module in OURS
        for line, name in _imports(module)
        if name.split(".")[0] == "ragtrace_exporters" and _layer(module.unit) <= _layer("__init__")
    ]
    assert not wrong


def test_no_private_opentelemetry_module_is_used() -> None:
    """Private modules of OpenTelemetry change without notice; neither imports nor strings name one."""
    wrong = [
        f"{module}:{line}: {name}"
        for module in OURS + THEIRS
        for line, name in (*_imports(module), *_literals(module))
        if re.fullmatch(r"opentelemetry(\.\w+)+(:\w+)?", name) and _private(name)
    ]
    assert not wrong


def _private(name: str) -> bool:
    for public in sorted(PUBLIC_DESPITE_THEIR_NAME, key=len, reverse=True):
        if name == public or name.startswith(f"{public}."):
            name = name[len(public) :]
            break
    return any(part.startswith("_") for part in re.split(r"[.:]", name))


def test_names_on_the_wire_are_spelled_in_semconv_only() -> None:
    """A string that is, or begins like, an attribute, event or metric name stands in semconv.py and nowhere else."""
    prefixes = _wire_prefixes()
    wrong = [
        f"{module}:{line}: {text!r}"
        for module in OURS + THEIRS
        for line, text in _literals(module)
        if module.unit != "semconv" and text.startswith(prefixes) and re.fullmatch(r"[a-z_]+(\.[a-z0-9_{}]*)+", text)
    ]
    assert not wrong

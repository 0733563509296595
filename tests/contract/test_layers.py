"""The core, the slices beside it, which room may import which, and where names are spelled."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

from ragtrace.core import semconv

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "ragtrace"
EXPORTERS: Final = ROOT / "exporters" / "ragtrace_exporters"

# The core does the main job: decorate, spans, sample, judge, scores on spans, OTLP. Its floors, from the ground up: a
# module imports only from floors below its own room's, and from its own room. The face is what a user imports.
FLOORS: Final[tuple[frozenset[str], ...]] = (
    frozenset({"core", "system"}),
    frozenset({"capture", "dialects", "estimates", "judges", "metrics"}),
    frozenset({"evaluation"}),
    frozenset({"telemetry"}),
    frozenset({"recording"}),
    frozenset({"pipeline"}),
    frozenset({"runtime"}),
    frozenset({"face"}),
)
# A slice is a feature beside the main job. It imports the core, and the slices that are named here.
SLICES: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(others.split())
    for name, others in {
        "alerts": "",
        "history": "",
        "span_reading": "",
        "tagging": "",
        "fleet": "history",
        "guard": "history",
        "labels": "alerts history",
        "offline": "history span_reading",
        "report": "history labels offline",
        "testing": "offline",
        "diagnosis": "alerts fleet guard labels offline",
        "gateway": "fleet offline span_reading",
        "web": "diagnosis history labels report",
        "demo": "alerts report testing",
        "cli": "alerts demo diagnosis fleet gateway history labels offline report span_reading web",
    }.items()
}
# The table of slices names them, and is no part of the core, which reads it if it is there.
TABLE: Final = "slices"
FACE: Final = frozenset({"__init__", "block", "decorators", "propagation", "types"})
EXPORTERS_MAY_IMPORT: Final = ("ragtrace.core", "ragtrace.system")

# OpenTelemetry Python publishes its logs API and SDK under these names only.
PUBLIC_DESPITE_THEIR_NAME: Final = ("opentelemetry._logs", "opentelemetry.sdk._logs", "opentelemetry.sdk._logs.export")


@dataclass(frozen=True)
class Module:
    """One source file and the room it belongs to."""

    path: Path
    room: str
    imports: tuple[tuple[int, str], ...]
    """Line and full name of everything it imports."""
    imports_on_import: tuple[tuple[int, str], ...]
    """Those of its imports that run with it, not those inside functions or for types alone."""
    literals: tuple[tuple[int, str], ...]
    """Line and value of every string that is not a docstring, parts of f-strings included."""

    @property
    def name(self) -> str:
        """Dotted name, as it is imported."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))


# The syntax trees are not kept: garbage collection would walk through them, again and again.
def _read(path: Path) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = path.relative_to(ROOT).parts[:-1]
    nodes = tuple(ast.walk(tree))
    facts = tuple(_imports(nodes, package)), tuple(_imports(_on_import(tree), package)), tuple(_literals(nodes))
    if not path.is_relative_to(PACKAGE):
        return Module(path, "exporters", *facts)
    top = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return Module(path, {"__main__": "cli", TABLE: TABLE, **dict.fromkeys(FACE, "face")}.get(top, top), *facts)


def _imports(nodes: Iterable[ast.AST], package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that *nodes* of a module in *package* import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join((*parent, *filter(None, [node.module])))
            for alias in node.names:
                yield node.lineno, f"{source}.{alias.name}"


def _on_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements that run when a module is imported: of functions, and of blocks for types, only the head."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not _for_types(node):
            yield from _on_import(node)


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _literals(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


# Read on use: reading takes a second, and each process of a parallel run imports this file.
@cache
def _ours() -> tuple[Module, ...]:
    return tuple(_read(path) for path in sorted(PACKAGE.rglob("*.py")))


@cache
def _theirs() -> tuple[Module, ...]:
    return tuple(_read(path) for path in sorted(EXPORTERS.rglob("*.py")))


@cache
def _our_names() -> frozenset[str]:
    return frozenset(module.name for module in _ours())


def _floor(room: str) -> int:
    for number, rooms in enumerate(FLOORS):
        if room in rooms:
            return number
    raise AssertionError(
        f"{room} is no room: put the module into one, or give the room a floor in {Path(__file__).name}"
    )


def _room_of(name: str) -> str | None:
    """Return the room that importing *name* enters: None if it is not ours, `face` for the public API."""
    parts = name.split(".")
    if parts[0] != "ragtrace":
        return None
    return parts[1] if len(parts) > 1 and ((PACKAGE / parts[1]).is_dir() or parts[1] == TABLE) else "face"


def _module_of(name: str) -> str:
    """Return the module that importing *name* executes: *name* itself, or what it is taken from."""
    return name if name in _our_names() else name.rpartition(".")[0]


def _wire_prefixes() -> tuple[str, ...]:
    """The namespaces of semconv's names; of our own, one level more, as `ragtrace.` alone also starts other names."""
    dotted = [
        name
        for key, name in vars(semconv).items()
        if key.isupper() and isinstance(name, str) and re.fullmatch(r"[\w.{}]+\.[\w.{}]+", name)
    ]
    return tuple({".".join(name.split(".")[: 2 if name.startswith("ragtrace.") else 1]) + "." for name in dotted})


def test_every_module_is_in_a_room() -> None:
    """No module lies loose beside the face, and every room is part of the core or a slice."""
    rooms = frozenset().union(*FLOORS, SLICES, [TABLE])
    assert not [str(module) for module in _ours() if module.room not in rooms]


def test_the_house_has_few_rooms_and_floors() -> None:
    """The house can be held in the head: at most 27 rooms beside the face, and at most 8 floors of the core."""
    assert len(frozenset().union(*FLOORS, SLICES) - {"face"}) <= 27
    assert len(FLOORS) <= 8


def test_imports_in_the_core_go_to_a_lower_floor() -> None:
    """A module imports only from floors below its own, whether at run time, in a function, or for types alone."""
    wrong = [
        f"{module}:{line}: {name}"
        for module, line, name, room in _between_rooms()
        if not {module.room, room} & {*SLICES, TABLE} and _floor(room) >= _floor(module.room)
    ]
    assert not wrong


def test_the_core_names_no_slice() -> None:
    """Neither in an import, in a function or for types alone, nor in a string; the table of slices does."""
    wrong = [
        f"{module}:{line}: {name}"
        for module in _ours()
        for line, name in (*module.imports, *((line, text) for line, text in module.literals if text in _our_names()))
        if module.room not in (*SLICES, TABLE) and module.path.name != "semconv.py" and _room_of(name) in SLICES
    ]
    assert not wrong


def test_the_table_is_imported_for_types_alone() -> None:
    """At run time the core looks for it by its name, and does without."""
    wrong = [
        f"{module}:{line}: {name}"
        for module in _ours()
        for line, name in module.imports_on_import
        if _room_of(name) == TABLE and module.room != TABLE
    ]
    assert not wrong


def test_slices_import_the_core_and_the_slices_of_the_table() -> None:
    """Each of them is imported, too, and none in a circle."""
    found: dict[str, set[str]] = {name: set() for name in SLICES}
    for module, _, _, room in _between_rooms():
        if module.room in SLICES and room in SLICES:
            found[module.room].add(room)
    assert found == SLICES
    TopologicalSorter(SLICES).prepare()


def _between_rooms() -> Iterator[tuple[Module, int, str, str]]:
    """Yield each import from one room by a module of another: module, line, name, and the room imported from."""
    for module in _ours():
        for line, name in module.imports:
            room = _room_of(name)
            if room is not None and room != module.room:
                yield module, line, name, room


def test_no_two_modules_import_each_other() -> None:
    """The imports that run with a module form no circle between files, inside a room either."""
    graph = {
        module.name: {_module_of(name) for _, name in module.imports_on_import} & _our_names() - {module.name}
        for module in _ours()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" imports ".join(reversed(error.args[1]))) from None


def test_exporters_know_only_the_contracts() -> None:
    """An exporter uses what a third party's could use: types, names, errors and what the system asks of it."""
    wrong = [
        f"{module}:{line}: {name}"
        for module in _theirs()
        for line, name in module.imports
        if _room_of(name) is not None and not name.startswith(EXPORTERS_MAY_IMPORT)
    ]
    assert not wrong


def test_the_library_finds_exporters_by_name_only() -> None:
    """Nothing below the public API imports ragtrace_exporters: ours are loaded by name, as a third party's are."""
    wrong = [
        f"{module}:{line}: {name}"
        for module in _ours()
        for line, name in module.imports
        if name.split(".")[0] == "ragtrace_exporters" and module.room not in ("cli", "demo", "gateway", "web")
    ]
    assert not wrong


def test_no_private_opentelemetry_module_is_used() -> None:
    """Private modules of OpenTelemetry change without notice; neither imports nor strings name one."""
    wrong = [
        f"{module}:{line}: {name}"
        for module in _ours() + _theirs()
        for line, name in module.imports + module.literals
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
        for module in _ours() + _theirs()
        for line, text in module.literals
        if module.path.name != "semconv.py"
        and text.startswith(prefixes)
        and re.fullmatch(r"[a-z_]+(\.[a-z0-9_{}]*)+", text)
    ]
    assert not wrong

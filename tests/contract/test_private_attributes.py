"""Private attributes of other libraries that ragtrace reads: none but those listed here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("ragtrace", "ragtrace_pytest", "exporters/ragtrace_exporters")
BY_NAME: Final = frozenset({"getattr", "setattr", "delattr", "hasattr"})
OF_NAMED_TUPLES: Final = frozenset({"_asdict", "_fields", "_field_defaults", "_make", "_replace"})
"""Public in spite of their names: `collections.namedtuple` documents them."""
KNOWN: Final = {
    (
        "exporters/ragtrace_exporters/otlp.py",
        "_initialize_channel_and_stub",
    ): "OpenTelemetry: throws away what a backend answers by gRPC",
    ("ragtrace/capture/providers.py", "_hidden_params"): "LiteLLM names a response's provider nowhere else",
    ("ragtrace/cli/run_command.py", "_run_module_as_main"): "runpy: what `python -m` calls, for the same tracebacks",
    ("ragtrace/recording/drivers.py", "_exception"): "asyncio: `exception()` marks the error as retrieved",
    ("ragtrace/recording/proxies.py", "_iterator"): "OpenAI and Anthropic: what all methods of a stream read from",
    ("ragtrace/span_reading/frameworks/llama_index.py", "_memory"): "LlamaIndex names a conversation nowhere else",
    ("ragtrace/span_reading/frameworks/openai_agents.py", "_multi_processor"): "whether our listener is still there",
    ("ragtrace/span_reading/frameworks/openai_agents.py", "_processors"): "whether our listener is still there",
    ("ragtrace/system/forks.py", "_registry"): "weakref: the only way to urllib3's finalizers",
    ("ragtrace/system/event_loops.py", "_get_running_loop"): "asyncio: published so, for event loops",
    ("ragtrace/system/event_loops.py", "_set_running_loop"): "asyncio: published so, for event loops",
    (
        "ragtrace/telemetry/spans/span_providers.py",
        "_is_enabled",
    ): "OpenTelemetry: whether a tracer is switched off",
}
"""File and attribute, with the reason why no public one does."""


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_NAMED_TUPLES


def _own_names(tree: ast.Module) -> Iterator[str]:
    """Names that our modules and classes define, and that our methods set on themselves."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            yield node.attr


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _reads(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Names of private attributes that *tree* reads, and whether by `getattr` and its like of another object."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            yield node.attr, False
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BY_NAME:
            for each in node.args[1:2]:
                if isinstance(each, ast.Constant) and _is_private(str(each.value)) and not _is_self(node.args[0]):
                    yield str(each.value), True


def test_private_attributes_of_other_libraries_are_read_only_where_listed() -> None:
    """A release may rename them without a word, so each needs a reason."""
    trees = list(_trees())
    own = {name for _, tree in trees for name in _own_names(tree)}
    found = {(path, name) for path, tree in trees for name, named in _reads(tree) if named or name not in own}
    assert found == KNOWN.keys()

"""What pyproject.toml declares about the package agrees with its source."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ragtrace.system.installation import DISTRIBUTION, built_in_exporters

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT: Final = Path(__file__).parents[2]
OURS: Final = ("ragtrace", "ragtrace_exporters", "ragtrace_pytest")
DISTRIBUTIONS: Final = {
    "google.protobuf": "protobuf",
    "google.rpc": "googleapis-common-protos",
    "grpc": "grpcio",
    "opentelemetry": "opentelemetry-api",
    "opentelemetry.exporter.otlp": "opentelemetry-exporter-otlp",
    "opentelemetry.exporter.prometheus": "opentelemetry-exporter-prometheus",
    "opentelemetry.proto": "opentelemetry-proto",
    "opentelemetry.sdk": "opentelemetry-sdk",
}
"""Distributions that are not named as the modules which they install; the longest name of a module decides."""
NOT_INSTALLED: Final = {
    *("agents", "haystack", "langchain_core", "llama_index", "llama_index_instrumentation", "pydantic", "pytest"),
    *("_typeshed", "tomllib", "typing_extensions"),
}
"""Frameworks that an application brings, and what only some versions of Python or only type checkers have."""
EXTRAS: Final = {
    "exporters/ragtrace_exporters/prometheus_page.py": ("prometheus",),
    "ragtrace/cli": ("cli",),
    "ragtrace/demo": ("cli",),
    "ragtrace/gateway": ("serve",),
    "ragtrace/fleet": ("fleet",),
    "ragtrace/gateway/config_file.py": ("serve", "fleet"),
    "ragtrace/judges/local/hhem.py": ("hhem",),
    "ragtrace/metrics/bert_score.py": ("bertscore",),
    "ragtrace/metrics/rouge.py": ("rouge",),
    "ragtrace/offline/progress.py": ("cli",),
    "ragtrace/report": ("cli",),
    "ragtrace/web": ("review",),
}
"""Extras with which the modules of a file or folder are used; the longest path decides."""


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]  # type: ignore[no-any-return]


def test_every_exporter_is_listed() -> None:
    """Each module with a preset is found by name, and each name leads to a function that takes the environment."""
    listed = {point.name: point for point in built_in_exporters()}
    folder = ROOT / "exporters" / "ragtrace_exporters"
    presets = {path.stem for path in folder.glob("*.py") if "\n@preset(" in path.read_text(encoding="utf-8")}
    assert len(presets) > 5
    assert presets <= listed.keys()
    for point in listed.values():
        assert list(inspect.signature(point.load()).parameters) == ["environ"], point.name


def test_every_imported_distribution_is_declared() -> None:
    """What a module imports is installed with ragtrace or with each extra of that module, not only by chance."""
    project = _project()
    core = _names(project["dependencies"])
    extras = {extra: _names(listed) for extra, listed in project["optional-dependencies"].items()}
    files = [path for folder in ("ragtrace", "exporters/ragtrace_exporters") for path in (ROOT / folder).rglob("*.py")]
    undeclared = {
        f"{path.relative_to(ROOT)} imports {distribution}, which {extra} does not declare"
        for path in files
        for distribution in _imported(ast.parse(path.read_text(encoding="utf-8")))
        for extra in _extras(path) or ("ragtrace",)
        if distribution not in core | extras.get(extra, set())
    }
    assert len(files) > 100
    assert not undeclared, "\n".join(sorted(undeclared))


def test_the_name_is_ours() -> None:
    """And not `ragtrace`, which is another project's on the package index."""
    assert _project()["name"] == DISTRIBUTION == "ragtrace-otel"


def test_the_classifiers_name_the_pythons_that_the_wheel_is_tried_on() -> None:
    """From the lowest that is required on, and those of `.ci/run`."""
    project = _project()
    pattern = r"Programming Language :: Python :: (3\.\d+)"
    named = [match[1] for match in map(re.compile(pattern).fullmatch, project["classifiers"]) if match]
    tried = re.search(r"WHEEL_PYTHONS=\(([\d. ]+)\)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert tried is not None
    assert named == tried[1].split()
    assert project["requires-python"] == f">={named[0]}"


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", requirement)[0] for requirement in requirements}


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the other distributions that *tree* imports, also inside functions and for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and "import_module" in (
            getattr(node.func, "id", ""),
            getattr(node.func, "attr", ""),
        ):
            names = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
        else:
            continue
        for name in names:
            if name.partition(".")[0] not in {*sys.stdlib_module_names, *OURS, *NOT_INSTALLED}:
                yield _distribution(name)


def _distribution(module: str) -> str:
    prefixes = [name for name in DISTRIBUTIONS if f"{module}.".startswith(f"{name}.")]
    return DISTRIBUTIONS[max(prefixes, key=len)] if prefixes else module.partition(".")[0].replace("_", "-")


def _extras(path: Path) -> tuple[str, ...]:
    names = [name for name in EXTRAS if path.is_relative_to(ROOT / name)]
    return EXTRAS[max(names, key=len)] if names else ()

"""Smoke test of an installed wheel, without pytest and without this checkout: `python -I wheel.py`.

Exits 0 and prints one line if the wheel imports completely, traces and scores a call, runs its demo, and has its text
for agents.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import pkgutil
import platform
import subprocess
import sys
from pathlib import Path

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace

RUNS_ON_IMPORT = {"ragtrace.__main__"}
NEEDS_A_FRAMEWORK = "ragtrace.span_reading.frameworks."
"""Prefix of modules that import the framework whose calls they record, which is not installed here."""


def main() -> None:
    assert "site-packages" in (ragtrace.__file__ or ""), f"not the installed wheel: {ragtrace.__file__}"
    modules = import_everything()
    score = score_one_call()
    calls = run_the_demo()
    assert _run("docs", "--for-agents").startswith("# ragtrace\n")
    print(f"Python {platform.python_version()}: {modules} modules, consistency {score:.2f}, demo of {calls} calls: ok")


def import_everything() -> int:
    """Import every module, so that syntax newer than this Python is found; returns their number.

    Modules that need a framework are compiled only.
    """
    import ragtrace_exporters

    names = [
        module.name
        for package in (ragtrace, ragtrace_exporters)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if module.name not in RUNS_ON_IMPORT
    ]
    for name in names:
        if name.startswith(NEEDS_A_FRAMEWORK):
            compile_module(name)
        else:
            importlib.import_module(name)
    return len(names)


def compile_module(name: str) -> None:
    """Compile the module *name* without importing it; syntax newer than this Python raises SyntaxError."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert isinstance(spec.loader, importlib.abc.InspectLoader)
    spec.loader.get_code(name)


def score_one_call() -> float:
    """Trace one decorated call and return its consistency as it stands on the root span."""
    exporter = InMemorySpanExporter()
    ragtrace.configure(service="smoke", exporter=exporter)

    @ragtrace.retrieve
    def search(query: str) -> list[str]:
        return ["The Eiffel Tower is in Paris. It is 330 metres high."]

    @ragtrace.generate
    def answer(question: str, docs: list[str]) -> str:
        return "The Eiffel Tower is 330 metres high."

    @ragtrace.trace
    def ask(question: str) -> str:
        return answer(question, search(question))

    assert ask("How high is the Eiffel Tower?") == "The Eiffel Tower is 330 metres high."
    assert ragtrace.flush(timeout=10.0)
    spans = exporter.get_finished_spans()
    ragtrace.shutdown(timeout=10.0)
    (root,) = [span for span in spans if span.parent is None]
    assert len(spans) == 3, [span.name for span in spans]
    assert root.attributes is not None
    assert root.attributes["ragtrace.eval.status"] == "ok", dict(root.attributes)
    value = root.attributes["ragtrace.eval.consistency.score"]
    assert isinstance(value, float)
    return value


def run_the_demo() -> int:
    """Run `ragtrace demo` by its console script, and a report on its calls; returns how many calls it made."""
    page = Path("report.html")  # made from templates, which the wheel must contain
    demo = _run("demo", "--questions", "20", "--json", "--store", "demo.db")
    assert isinstance(json.loads(demo), dict)
    _run("report", "demo.db", "--out", str(page))
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    return 20


def _run(*arguments: str) -> str:
    """Run the console script, which must succeed, and return what it prints."""
    script = Path(sys.executable).with_name("ragtrace")
    done = subprocess.run([str(script), *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


if __name__ == "__main__":
    main()

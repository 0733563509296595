"""What `import ragtrace` promises."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
import types
import typing
from pathlib import Path

import pytest

import ragtrace

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]


def test_all_is_sorted_and_complete() -> None:
    """`__all__` lists every public name of ours, once, in order; some load on first use."""
    present = {
        name
        for name, value in vars(ragtrace).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("ragtrace")
    }
    assert list(ragtrace.__all__) == sorted(set(ragtrace.__all__))
    assert present <= set(ragtrace.__all__)
    assert all(hasattr(ragtrace, name) for name in ragtrace.__all__)


def test_help_begins_with_what_ragtrace_is_for() -> None:
    """A note that only pytest reads is the last line of what a person reads."""
    shown, note, rest = pydoc.plain(pydoc.render_doc(ragtrace)).partition("PYTEST_DONT_REWRITE")
    assert note
    assert "DESCRIPTION\n    Decorate retrieval and generation functions" in shown
    assert rest.partition("\n\n")[2].startswith("PACKAGE CONTENTS")
    for name in ("configure", "retrieve", "generate", "trace", "doctor", "instrument", "score"):
        assert f"ragtrace.{name}" in shown


def test_every_argument_of_configure_is_described_in_one_paragraph() -> None:
    """Parsers of docstrings end the section at a blank line, and would lose the arguments after it."""
    section = (inspect.getdoc(ragtrace.configure) or "").partition("Args:\n")[2].partition("\n\n")[0]
    described = re.findall(r"^    (?:\*\*)?(\w+): ", section, re.MULTILINE)
    assert described == list(inspect.signature(ragtrace.configure).parameters)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Loading names on first use does not make every name exist."""
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ragtrace.no_such_name


def test_no_subpackage_is_named_like_a_public_name() -> None:
    """Importing such a module would replace the public name: Python makes a submodule an attribute of its package."""
    modules = {path.stem for path in Path(ragtrace.__file__).parent.iterdir() if path.name != "__init__.py"}
    assert not modules & set(ragtrace.__all__)


@pytest.mark.parametrize("name", ragtrace.__all__)
def test_every_public_name_is_documented_in_the_source(name: str) -> None:
    """Every function, class and module has a docstring of its own; `help(...)` is never empty."""
    value = getattr(ragtrace, name)
    if callable(value) or isinstance(value, types.ModuleType):
        assert inspect.getdoc(value), f"ragtrace.{name} has no docstring"


@pytest.mark.parametrize("name", ragtrace.__all__)
def test_every_public_name_is_in_a_document(name: str) -> None:
    """Each public name is mentioned in the README or in a guide, so that users can find it."""
    text = "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    assert re.search(rf"\b{re.escape(name)}\b", text), f"neither the README nor a guide mentions {name}"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="overloads cannot be listed before Python 3.11")
@pytest.mark.parametrize("name", ragtrace.__all__)
def test_no_public_signature_has_a_bare_any(name: str) -> None:
    """Parameters and results of public functions are annotated; of an overloaded function, its overloads count."""
    value = getattr(ragtrace, name)
    if not inspect.isfunction(value):
        return
    for function in typing.get_overloads(value) or [value]:
        signature = inspect.signature(function)
        annotations = [parameter.annotation for parameter in signature.parameters.values()]
        for annotation in (*annotations, signature.return_annotation):
            assert annotation not in (inspect.Parameter.empty, "Any", "typing.Any")


def test_the_top_level_has_what_an_application_uses() -> None:
    """At most 46 names; the other public names are in modules that need no import of their own."""
    assert len(ragtrace.__all__) <= 46
    code = "import ragtrace; print(ragtrace.judges.ScorerJudge, ragtrace.metrics.g_eval, ragtrace.types.Stats)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout


@pytest.mark.parametrize(
    "module", [ragtrace.judges, ragtrace.metrics, ragtrace.testing, ragtrace.types], ids=lambda each: each.__name__
)
def test_the_names_of_public_modules_exist_and_are_documented(module: types.ModuleType) -> None:
    """Those that load on first use, too."""
    assert [name for name in module.__all__ if not inspect.getdoc(getattr(module, name))] == []

"""`ragtrace run` chooses one instrumentation for each installed GenAI library."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ragtrace.cli.instrumentors import choose
from ragtrace.core.errors import SettingsError
from tests.support.acme import distribution


def _install(folder: Path, name: str, entry: str, library: str, convention: str) -> None:
    declared = f"[opentelemetry_instrumentor]\n{entry} = {name.replace('-', '_')}:Instrumentor\n"
    distribution(folder, name, declared, f"{convention}>=1", f'{library} ; extra == "instruments"', "wrapt")


@pytest.fixture(autouse=True)
def _packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two libraries, three instrumentations of the first, one of the second, one of a library that is not installed."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for library in ("openai", "langchain", "langchain-core", "flask"):
        distribution(tmp_path, library, "")
    _install(
        tmp_path, "opentelemetry-instrumentation-genai-openai", "openai", "openai>=1.26", "opentelemetry-util-genai"
    )
    _install(
        tmp_path, "opentelemetry-instrumentation-openai", "openai", "openai", "opentelemetry-semantic-conventions-ai"
    )
    _install(
        tmp_path, "openinference-instrumentation-openai", "openai", "openai>=2", "openinference-semantic-conventions"
    )
    _install(
        tmp_path,
        "openinference-instrumentation-langchain",
        "langchain",
        "langchain_core>=0.3",
        "openinference-semantic-conventions",
    )
    _install(
        tmp_path,
        "opentelemetry-instrumentation-langchain",
        "langchain",
        "langchain",
        "opentelemetry-semantic-conventions-ai",
    )
    _install(tmp_path, "openinference-instrumentation-crewai", "crewai", "crewai", "openinference-semantic-conventions")
    _install(tmp_path, "opentelemetry-instrumentation-flask", "flask", "flask", "opentelemetry-util-http")


def _chosen(*wanted: str, without: tuple[str, ...] = ()) -> set[str]:
    return {each.distribution for each in choose(wanted, without)}


OPENINFERENCE = {"openinference-instrumentation-openai", "openinference-instrumentation-langchain"}


def test_each_genai_library_is_instrumented_once() -> None:
    """By the convention that carries most; not a web framework, and not a library that is missing."""
    assert _chosen() == OPENINFERENCE


def test_a_distribution_can_be_asked_for() -> None:
    """Instead of the one that would be chosen for its library."""
    assert _chosen("opentelemetry-instrumentation-genai-openai") == {
        "opentelemetry-instrumentation-genai-openai",
        "openinference-instrumentation-langchain",
    }


def test_two_instrumentations_of_one_library_need_two_requests() -> None:
    """Then both are started."""
    both = ("opentelemetry-instrumentation-openai", "openinference-instrumentation-openai")
    assert _chosen(*both) == {*both, "openinference-instrumentation-langchain"}


def test_any_library_can_be_asked_for() -> None:
    """By its name, as in the entry point."""
    assert _chosen("flask") == {*OPENINFERENCE, "opentelemetry-instrumentation-flask"}


def test_a_library_can_be_left_out() -> None:
    """All of its instrumentations are; so can a single distribution be."""
    assert _chosen(without=("langchain",)) == {"openinference-instrumentation-openai"}
    assert _chosen(without=("openinference_instrumentation_openai",)) == {
        "opentelemetry-instrumentation-openai",
        "openinference-instrumentation-langchain",
    }


def test_all_can_be_left_out_but_those_asked_for() -> None:
    """With an asterisk."""
    assert _chosen("openai", without=("*",)) == {"openinference-instrumentation-openai"}


@pytest.mark.parametrize(
    ("wanted", "unwanted", "error"),
    [
        ("opnai", (), "no instrumentation of that name is installed; installed: crewai, flask, langchain, openai"),
        ("crewai", (), "openinference-instrumentation-crewai instruments crewai, which is not installed"),
        ("openai", ("opnai",), "--no-instrument opnai"),
    ],
)
def test_a_name_that_means_nothing_is_an_error(wanted: str, unwanted: tuple[str, ...], error: str) -> None:
    """Before the program starts."""
    with pytest.raises(SettingsError, match=error):
        choose([wanted], unwanted)

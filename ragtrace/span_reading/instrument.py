"""The functions `instrument` and `uninstrument`, which record RAG frameworks without decorators in the application."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, version
from typing import Final

from ragtrace.core.errors import SettingsError, spelling_hint
from ragtrace.runtime.current_runtime import current
from ragtrace.span_reading.frameworks import runs
from ragtrace.system.faults import faults

VARIABLE: Final = "RAGTRACE_INSTRUMENT"
_ALL: Final = "all"
_PACKAGES: Final = {
    "haystack": "haystack-ai",
    "langchain": "langchain-core",
    "llama_index": "llama-index-core",
    "openai_agents": "openai-agents",
}
"""Distribution package of each framework, as other packages may have modules of the same name."""


def instrument(*frameworks: str) -> None:
    """Record the RAG calls of frameworks such as LangChain, without decorators in the application.

    ragtrace listens to the callbacks of a framework, which have the whole texts, whatever other instrumentations put
    on their spans. Decorated functions and the frameworks' runs inside one another are one call. Spans that other
    instrumentations make of the same framework are not evaluated then. A framework that is instrumented already is
    left as it is. Calls are recorded once `ragtrace.configure` has been called, before or after.

    Examples:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> captured = ragtrace.testing.Captured()
        >>> ragtrace.configure(exporter=captured.signals)
        >>> ragtrace.instrument("langchain")
        >>> answer = FakeListChatModel(responses=["In Paris."]).invoke("Where is the tower?")
        >>> ragtrace.flush()
        True
        >>> captured.root().attributes["ragtrace.eval.consistency.reason"]  # no retrieval was seen
        'contexts_missing'
        >>> ragtrace.uninstrument()

    Args:
        *frameworks: "haystack"; "langchain", which includes LangGraph; "llama_index"; "openai_agents". None: all of
            them that are installed.

    Raises:
        SettingsError: no framework has that name, the framework is not installed, or its version is too old. Where
            none is named, a framework of such a version is left out, which is logged once.
    """
    for name in frameworks:
        if name not in _PACKAGES:
            raise SettingsError(f"no framework named {name!r}{spelling_hint(name, tuple(_PACKAGES))}")
        if not _is_installed(name):
            raise SettingsError(
                f"cannot instrument {name!r}: its package {_PACKAGES[name]} is not installed; install it, or leave "
                f"{name!r} out"
            )
    for name in frameworks or filter(_is_installed, _PACKAGES):
        if name in runs.listeners():
            continue
        try:
            module = import_module(f"ragtrace.span_reading.frameworks.{name}")
        except Exception as error:  # also an error of the framework, such as a conflict with another package
            package = _PACKAGES[name]
            problem = f"cannot instrument {name!r}: {package} {version(package)} cannot be listened to ({error})"
            if frameworks:
                raise SettingsError(f"{problem}; upgrade {package}, or leave {name!r} out") from error
            faults.log_once(f"instrument {name}", "%s; its calls are not recorded, upgrade %s", problem, package)
            continue
        runs.install(*module.start(current))


def instrument_from_environment(environ: Mapping[str, str]) -> list[str]:
    """Instrument the frameworks named in RAGTRACE_INSTRUMENT (comma-separated), or all installed ones for "all".

    Returns:
        The names of all frameworks that are instrumented then.

    Raises:
        SettingsError: as `instrument`.
    """
    names = [name.strip() for name in environ.get(VARIABLE, "").split(",") if name.strip()]
    if names:
        try:
            instrument(*([] if names == [_ALL] else names))
        except SettingsError as error:
            raise SettingsError(f"{error} (from {VARIABLE})") from None
    return list(runs.listeners())


def uninstrument(*frameworks: str) -> None:
    """Stop recording the calls of *frameworks*, or of all instrumented frameworks if none is named.

    Runs that are in progress are not recorded to their end.

    Examples:
        >>> ragtrace.instrument("langchain")
        >>> ragtrace.uninstrument("langchain")

    Args:
        *frameworks: names as of `instrument`. None: all that are instrumented.
    """
    for name in frameworks or runs.listeners():
        runs.uninstall(name)


def _is_installed(name: str) -> bool:
    try:
        distribution(_PACKAGES[name])
    except PackageNotFoundError:
        return False
    return True

"""Choice of the installed OpenTelemetry instrumentations that are started before a program runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Final

from ragtrace.core.errors import SettingsError
from ragtrace.system.faults import log_safely

_GROUPS: Final = ("openinference_instrumentor", "opentelemetry_instrumentor")
_CONVENTIONS: Final = (
    "openinference-semantic-conventions",
    "opentelemetry-semantic-conventions-ai",  # OpenLLMetry
    "opentelemetry-util-genai",
)
"""Distributions that only instrumentations of GenAI libraries require, best first: the first one's spans have the texts
of documents, the last one's have no content by default. Of several for one library, the best is used."""
ALL: Final = "*"


@dataclass(frozen=True)
class Instrumentor:
    """Installed OpenTelemetry instrumentation of a library, as declared by its entry point."""

    entry_point: EntryPoint
    distribution: str
    """Name of the distribution that contains the instrumentation, in lower case and with hyphens."""
    libraries: frozenset[str]
    """Names of the distributions that the entry point instruments; of several, one may be enough."""
    requires: frozenset[str]
    """Names of the distributions that the instrumentation's distribution requires."""

    @property
    def name(self) -> str:
        """Name of the instrumentation's entry point, such as `openai`."""
        return self.entry_point.name

    @property
    def convention_rank(self) -> int:
        """Rank of the instrumentation's attribute convention: 0 for the best one, the last rank for an unknown one."""
        ranks = [rank for rank, needed in enumerate(_CONVENTIONS) if needed in self.requires]
        return min(ranks, default=len(_CONVENTIONS))

    @property
    def instruments_genai(self) -> bool:
        """Whether the instrumented library is a GenAI library. Only such instrumentations are started unasked."""
        return self.convention_rank < len(_CONVENTIONS)

    @property
    def is_usable(self) -> bool:
        """Whether one of the instrumented libraries is installed.

        True as well if the instrumentation does not name any library.
        """
        return not self.libraries or any(map(_is_installed, self.libraries))

    @property
    def targets(self) -> frozenset[str]:
        """Normalized names of the instrumented libraries.

        Two instrumentations of the same library have the same names.
        """
        names = {library.removesuffix("-core") for library in self.libraries} or {self.name}
        return frozenset(_plain(name).replace("-", "") for name in names)

    def answers_to(self, name: str) -> bool:
        """Return whether *name* is the name of the instrumentation, of its distribution or of its library."""
        return _plain(name) in {_plain(self.name), self.distribution, *self.libraries}

    def start(self) -> None:
        """Instrument the library. A failure is logged, since the program must run in any case."""
        try:
            self.entry_point.load()().instrument(raise_exception_on_conflict=True)
        except Exception as error:
            log_safely(
                logging.WARNING,
                "%s could not instrument %s: %s: %s",
                self.distribution,
                self.name,
                type(error).__name__,
                error,
            )


def choose(wanted: Sequence[str] = (), unwanted: Sequence[str] = ()) -> list[Instrumentor]:
    """Choose the instrumentations to start: one for each installed GenAI library, and those named in *wanted*.

    Args:
        wanted: names of instrumentations, distributions or libraries to instrument in any case; where *wanted* names
            several instrumentations of one library by their distributions, all of them are returned.
        unwanted: names of those not to instrument; `*`: instrument only what *wanted* names.

    Raises:
        SettingsError: there is no instrumentation of that name, or the library that it instruments is not installed.
    """
    found = sorted(installed(), key=lambda each: (each.convention_rank, each.distribution, each.name))
    chosen: list[Instrumentor] = []
    for name in wanted:
        named = [each for each in found if each.answers_to(name)]
        usable = [each for each in named if each.is_usable]
        if not usable:
            raise SettingsError(_unknown(name, named, found))
        exact = [each for each in usable if each.distribution == _plain(name)] or usable[:1]
        chosen += [each for each in exact if each not in chosen]
    for name in unwanted:
        if name != ALL and not any(each.answers_to(name) for each in found):
            raise SettingsError(_unknown(name, [], found, option="--no-instrument"))
    for each in found:
        refused = ALL in unwanted or any(each.answers_to(name) for name in unwanted)
        taken = any(each.targets & other.targets for other in chosen)
        if each.instruments_genai and each.is_usable and not refused and not taken:
            chosen.append(each)
    return chosen


def installed() -> Iterator[Instrumentor]:
    """Yield each installed OpenTelemetry instrumentation once.

    OpenInference declares each of its instrumentations in two entry-point groups.
    """
    seen: set[str] = set()
    for group in _GROUPS:
        for entry_point in entry_points(group=group):
            if entry_point.value not in seen:
                seen.add(entry_point.value)
                yield _read(entry_point)


def _read(entry_point: EntryPoint) -> Instrumentor:
    source: Distribution | None = entry_point.dist
    requirements = [] if source is None else source.requires or []
    libraries = frozenset(_required(each) for each in requirements if "instruments" in each.partition(";")[2])
    requires = frozenset(_required(each) for each in requirements)
    name = entry_point.value.partition(":")[0] if source is None else _plain(source.metadata["Name"])
    return Instrumentor(entry_point, name, libraries, requires)


def _required(requirement: str) -> str:
    """Return the distribution name in a requirement, such as `openai` in `openai>=2; extra == "x"`."""
    end = next((at for at, char in enumerate(requirement) if not (char.isalnum() or char in "-_.")), len(requirement))
    return _plain(requirement[:end])


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _unknown(
    name: str, named: Sequence[Instrumentor], found: Iterable[Instrumentor], *, option: str = "--instrument"
) -> str:
    if named:
        needed = ", ".join(sorted({library for each in named for library in each.libraries}))
        return f"{option} {name}: {named[0].distribution} instruments {needed}, which is not installed; install it"
    known = ", ".join(sorted({each.name for each in found})) or "none"
    return f"{option} {name}: no instrumentation of that name is installed; installed: {known}"

"""Whether `configure` is called with what is in force already: a notebook's cell and a script that reruns do so."""

from __future__ import annotations

import os
import pathlib
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ragtrace.runtime import current_runtime
from ragtrace.telemetry.export.providers import process_providers

if TYPE_CHECKING:
    from ragtrace.runtime.runtime import Runtime

_PLAIN: Final = (str, bytes, bool, int, float, type(None), re.Pattern, pathlib.PurePath)
"""Types whose values are compared; of any other only the same object is the same."""
_DEEPEST: Final = 12


class InForce(NamedTuple):
    """What the current runtime was configured with."""

    runtime: Runtime
    given: object
    """Arguments and surroundings, as `given_now` returns them."""
    files: Mapping[str, object]
    """Files that the settings name, as they were then."""


_in_force: InForce | None = None


def given_now(arguments: Mapping[str, object]) -> object:
    """Return what a `configure` with *arguments* rests on at this moment, files apart, to be compared with `==`.

    Besides the arguments these are the environment, of which exporters read what they like, standard output, to which
    some write, and OpenTelemetry's providers of the process.
    """
    surroundings = (sys.stdout, *process_providers())
    return _comparable(arguments), hash(frozenset(os.environ.items())), tuple(map(_Same, surroundings))


def is_in_force(given: object) -> bool:
    """Return whether the current runtime of this process was configured with *given*, and its files are the same."""
    found = _in_force
    if found is None or found.runtime is not current_runtime.installed or found.given != given:
        return False
    now = _files(found.runtime)
    # The runtime writes the baseline itself; who removes the file wants it learned anew.
    same = all(now[name] == then or (name == "baseline" and bool(now[name])) for name, then in found.files.items())
    if same:
        note_in_force(found.runtime, given)
    return same


def note_in_force(runtime: Runtime, given: object) -> None:
    """Note that *runtime* was configured with *given*, and is the current one."""
    global _in_force
    _in_force = InForce(runtime, given, _files(runtime))


def _files(runtime: Runtime) -> dict[str, object]:
    """Return what tells another version of each file that the settings name."""
    states: dict[str, object] = {}
    for name in ("store", "spool", "baseline", "calibration", "canaries"):
        try:
            state = os.stat(str(getattr(runtime.settings, name)))
        except (OSError, ValueError):
            states[name] = ()
            continue
        states[name] = (state.st_dev, state.st_ino)  # those of databases, which are written to all the time
        if name in ("calibration", "canaries"):
            states[name] = (state.st_ino, state.st_mtime_ns, state.st_size)
    return states


class _Same:
    """Object that is equal to itself alone."""

    def __init__(self, one: object) -> None:
        self._one = one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._one is other._one

    __hash__ = None  # type: ignore[assignment]


def _comparable(value: object, depth: int = 0) -> object:
    """Return plain values that are equal for two settings only if nothing tells them apart."""
    kind: Any = type(value)
    content: Any = value
    plain: tuple[Any, ...] = _PLAIN
    if depth > _DEEPEST:
        return _Same(value)
    if kind.__module__.startswith("ragtrace.") and "is_only_itself" not in vars(kind):
        try:
            content = value.__reduce_ex__(2)[1:]  # the state of an option or a judge, as for a copy
        except Exception:  # of one that cannot be copied
            return _Same(value)
    elif kind not in (list, tuple, dict):
        return (kind, content) if isinstance(content, plain) else _Same(value)
    items = tuple(content.items()) if kind is dict else content
    return kind, tuple(_comparable(each, depth + 1) for each in items)

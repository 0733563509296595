"""Seam between the core and the slices: what a feature adds to a configuration, and to the runtimes made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from ragtrace.core.errors import SettingsError
from ragtrace.core.part import Part
from ragtrace.core.settings import Settings
from ragtrace.core.types import Judge
from ragtrace.estimates import Calibrations
from ragtrace.evaluation.sampling import Sampling
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.pipeline.elsewhere import Elsewhere

if TYPE_CHECKING:
    from ragtrace.runtime.runtime import Runtime
    from ragtrace.telemetry.export.telemetry import ScoreStore, Telemetry

TABLE: str = "ragtrace.slices"
"""Module with the table of features; a core that stands alone has none."""


@dataclass(frozen=True, slots=True)
class Given:
    """What `configure` was given, resolved: the settings, and the objects that are no settings."""

    settings: Settings
    judge: Judge | None
    sampling: Sampling
    alerts: Sequence[object]
    """Objects in the list `alerts=`, of whatever type."""

    def is_set(self, name: str) -> bool:
        """Return whether the setting *name* has a value, or `alerts` has any."""
        return bool(self.alerts if name == "alerts" else getattr(self.settings, name))

    def require_sqlite(self, name: str) -> None:
        """Check that Python has SQLite, which the file of the setting *name* needs.

        Raises:
            SettingsError: this build of Python has been made without it.
        """
        try:
            import_module("sqlite3")
        except ImportError as error:
            raise SettingsError(
                f"{name}= needs Python's module sqlite3, got {error} (for {self.settings.origins[name]}); leave it "
                "out, or use another build of Python"
            ) from error


class Feature:
    """Feature in one configuration: `configure` makes it and asks it in its three steps, every runtime for its parts.

    A forked child, whose runtime is another one, has the features of its parent. What raises a `SettingsError` in the
    constructor or in `check` refuses the configuration, and nothing has changed.
    """

    before_baselines: ClassVar[bool] = False
    """Whether its parts, as observers, see a call before the baselines learn from it."""

    def __init__(self, given: Given) -> None:
        self.given = given

    def metrics(self) -> Iterable[str]:
        """Return the names of the metrics that the feature reads, which are computed beside the usual ones."""
        return ()

    def compared_metrics(self) -> Iterable[str]:
        """Return the names of the metrics whose scores the feature compares with their baselines."""
        return ()

    def check(self, evaluators: Evaluators, calibrations: Calibrations) -> None:
        """Step 1: check what was given, and read files."""

    def prepare(self, evaluators: Evaluators) -> Iterable[str]:
        """Step 2: create files; return the modules that the worker would be the first to import."""
        return ()

    def commit(self) -> None:
        """Step 3: put in force what is not part of a runtime. Must not fail."""

    def elsewhere(self, telemetry: Telemetry) -> Elsewhere | None:
        """Return the other processes of a new runtime that score calls, or None if the feature knows none."""
        return None

    def stores(self, evaluators: Evaluators, service: str, release: str) -> Iterable[ScoreStore]:
        """Return what keeps the calls of a new runtime, of the application *service* in its *release*."""
        return ()

    def parts(self, runtime: Runtime) -> Iterable[Part]:
        """Return the parts of *runtime*, in their order."""
        return ()


def load_features(given: Given) -> tuple[Feature, ...]:
    """Make the features that *given* asks for, in the order of the table.

    Raises:
        SettingsError: what was given is wrong.
    """
    try:
        table: Mapping[str, Sequence[str]] = import_module(TABLE).FEATURES
    except ModuleNotFoundError as error:
        if error.name != TABLE:
            raise
        table = {}
    features: list[Feature] = []
    for path, needed_by in table.items():
        if not needed_by or any(map(given.is_set, needed_by)):
            module, name = path.split(":")
            features.append(getattr(import_module(module), name)(given))
    return tuple(features)

"""Seam between the core and the slices: what a feature adds to a configuration, and to the runtimes made of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from ragtrace.core.errors import SettingsError
from ragtrace.core.part import Part
from ragtrace.core.settings import Setting, Settings, resolve_options
from ragtrace.core.slice_table import feature_lines, features_with_settings, load_class
from ragtrace.core.types import Judge
from ragtrace.estimates import Calibrations
from ragtrace.evaluation.metric_selection import check_type
from ragtrace.evaluation.sampling import Sampling
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.pipeline.elsewhere import Elsewhere

if TYPE_CHECKING:
    from ragtrace.runtime.runtime import Runtime
    from ragtrace.telemetry.export.telemetry import ScoreStore, Telemetry


@dataclass(frozen=True, slots=True)
class Given:
    """What `configure` was given, resolved: the settings, and the objects that are no settings."""

    settings: Settings
    judge: Judge | None
    sampling: Sampling
    alerts: Sequence[object]
    """Objects in the list `alerts=`, of whatever type."""
    options: Mapping[str, object]
    """Option objects of features, by the argument of `configure` that took each."""

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
    argument: ClassVar[str] = ""
    """Argument of `configure` that takes an object of `options`; empty: the feature has no options of its own."""
    options: ClassVar[type[Any]]
    """Class of that object, a frozen dataclass whose fields are None where they are not given."""
    settings: ClassVar[tuple[Setting, ...]] = ()
    """The fields of `options`: name, default, parser, meaning, and `keyword`, such as `Tags(baggage=)`."""

    def __init__(self, given: Given) -> None:
        option = given.options.get(self.argument)
        if option is not None:
            check_type(self.argument, option, self.options)
        self.given = given
        self.values = resolve_options(self.settings, option, os.environ)

    def metrics(self) -> Iterable[str]:
        """Return the names of the metrics that the feature reads, which are computed beside the usual ones."""
        return ()

    def compared_metrics(self) -> Iterable[str]:
        """Return the names of the metrics whose scores the feature compares with their baselines."""
        return ()

    def baggage(self) -> Iterable[str]:
        """Return the names of entries of OpenTelemetry baggage that become tags of calls."""
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
    needed = [path for path, needed_by in feature_lines().items() if not needed_by or any(map(given.is_set, needed_by))]
    return tuple(load_class(path)(given) for path in needed)


def option_arguments() -> list[str]:
    """Return the arguments of `configure` that take the option objects of features."""
    return [feature.argument for feature in features_with_settings()]

"""The table of slices: what each adds to a configuration, and the public names that it has.

The core imports no slice. It reads this table, if there is one, and imports what it names when it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypedDict

if TYPE_CHECKING:
    from ragtrace import testing as testing
    from ragtrace.alerts import Alert
    from ragtrace.diagnosis import Diagnosis, doctor
    from ragtrace.guard import Guard, GuardBlocked, GuardNotice
    from ragtrace.offline import Evaluations, ascore, evaluate, score
    from ragtrace.report.calibration import Calibration, calibrate
    from ragtrace.span_reading.instrument import instrument, uninstrument
    from ragtrace.tagging.feature import Tags
    from ragtrace.tagging.routing.route import Route

__all__ = [
    "Alert",
    "Calibration",
    "Diagnosis",
    "Evaluations",
    "Guard",
    "GuardBlocked",
    "GuardNotice",
    "Route",
    "Tags",
    "ascore",
    "calibrate",
    "doctor",
    "evaluate",
    "instrument",
    "score",
    "testing",
    "uninstrument",
]

FEATURES: Final[Mapping[str, tuple[str, ...]]] = {
    "ragtrace.span_reading.feature:SpanReadingFeature": (),
    "ragtrace.tagging.feature:TaggingFeature": (),
    "ragtrace.history.feature:HistoryFeature": ("store",),
    "ragtrace.guard.feature:GuardFeature": (),
    "ragtrace.fleet.feature:FleetFeature": ("fleet", "spool"),
    "ragtrace.labels.feature:LabelsFeature": (),
    "ragtrace.alerts.feature:AlertsFeature": ("alerts", "canaries"),
}
"""Features (subclasses of `ragtrace.runtime.feature.Feature`) in the order in which they are asked, each with the
settings and arguments of `configure` of which one must be given; without any, every configuration has the feature."""


class FeatureOptions(TypedDict, total=False):
    """Option objects of features, by the argument of `configure` that takes each; for type checkers and editors."""

    tags: Tags | None


HOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "ragtrace.alerts": ("Alert",),
    "ragtrace.diagnosis": ("Diagnosis", "doctor"),
    "ragtrace.guard": ("Guard", "GuardBlocked", "GuardNotice"),
    "ragtrace.offline": ("Evaluations", "ascore", "evaluate", "score"),
    "ragtrace.report.calibration": ("Calibration", "calibrate"),
    "ragtrace.tagging.routing.route": ("Route",),
    "ragtrace.span_reading.instrument": ("instrument", "uninstrument"),
    "ragtrace.tagging.feature": ("Tags",),
}
"""Public names of the slices, by the module that each is in."""


def __getattr__(name: str) -> Any:
    if name == "testing":
        return import_module("ragtrace.testing")
    for module, names in HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Types that ragtrace takes and returns beside those of `import ragtrace`: accounts, estimates, baselines, signals."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragtrace.block import CallBlock
    from ragtrace.core.ledger import GuardTally, Stats, Tally
    from ragtrace.core.tags import constant
    from ragtrace.core.types import Signals, Usage
    from ragtrace.estimates import Baseline, Estimate
    from ragtrace.slices import Calibration, Diagnosis, Evaluations, GuardBlocked, GuardNotice, Route, Tags

__all__ = [
    "Baseline",
    "Calibration",
    "CallBlock",
    "Diagnosis",
    "Estimate",
    "Evaluations",
    "GuardBlocked",
    "GuardNotice",
    "GuardTally",
    "Route",
    "Signals",
    "Stats",
    "Tags",
    "Tally",
    "Usage",
    "constant",
]

# Where each name is. Loaded on first use, as most applications need few of them.
_HOME = {
    "Baseline": "ragtrace.estimates",
    "Calibration": "ragtrace.slices",
    "CallBlock": "ragtrace.block",
    "Diagnosis": "ragtrace.slices",
    "Estimate": "ragtrace.estimates",
    "Evaluations": "ragtrace.slices",
    "GuardBlocked": "ragtrace.slices",
    "GuardNotice": "ragtrace.slices",
    "GuardTally": "ragtrace.core.ledger",
    "Route": "ragtrace.slices",
    "Signals": "ragtrace.core.types",
    "Stats": "ragtrace.core.ledger",
    "Tags": "ragtrace.slices",
    "Tally": "ragtrace.core.ledger",
    "Usage": "ragtrace.core.types",
    "constant": "ragtrace.core.tags",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""Types of what ragtrace's functions return, for annotations: accounts, estimates, evaluations, a diagnosis."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragtrace.block import CallBlock
    from ragtrace.core.ledger import Stats, Tally
    from ragtrace.core.types import Usage
    from ragtrace.diagnosis import Diagnosis
    from ragtrace.estimates import Estimate
    from ragtrace.offline import Evaluations

__all__ = ["CallBlock", "Diagnosis", "Estimate", "Evaluations", "Stats", "Tally", "Usage"]

# Where each name is. Loaded on first use, as most applications need few of them.
_HOME = {
    "CallBlock": "ragtrace.block",
    "Diagnosis": "ragtrace.diagnosis",
    "Estimate": "ragtrace.estimates",
    "Evaluations": "ragtrace.offline",
    "Stats": "ragtrace.core.ledger",
    "Tally": "ragtrace.core.ledger",
    "Usage": "ragtrace.core.types",
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

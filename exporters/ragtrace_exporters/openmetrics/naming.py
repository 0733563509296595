"""Names of metrics and labels as Prometheus has them.

Source: OpenTelemetry specification, "Prometheus and OpenMetrics Compatibility". The collector's exporters name alike,
so that one set of rules and dashboards serves with and without a collector.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "By": "bytes"}
_RATIO: Final = "ratio"


def metric_name(name: str, unit: str, kind: Kind) -> str:
    """Return the name of the family, without the `_total` of a counter's samples."""
    annotated = unit.startswith("{")
    suffix = _RATIO if unit == "1" and kind == "gauge" else "" if annotated or unit == "1" else _UNITS.get(unit, unit)
    plain = label_name(name)
    return f"{plain}_{label_name(suffix)}" if suffix and not plain.endswith(f"_{suffix}") else plain


def sample_names(name: str, unit: str, kind: Kind) -> tuple[str, ...]:
    """Return the names of the family's samples, as queries use them."""
    family = metric_name(name, unit, kind)
    if kind == "counter":
        return (f"{family}_total",)
    return (family,) if kind == "gauge" else (f"{family}_bucket", f"{family}_count", f"{family}_sum")


def label_name(name: str) -> str:
    """Return a name of OpenTelemetry as Prometheus has it: all but letters and digits become underscores."""
    plain = re.sub(r"[^0-9A-Za-z_]+", "_", name)
    return f"_{plain}" if plain[:1].isdigit() else plain

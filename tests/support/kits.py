"""The shipped kits, read for checking."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

KITS: Final = Path(__file__).parents[2] / "exporters" / "ragtrace_exporters" / "kits"
DASHBOARD: Final = KITS / "grafana" / "ragtrace-dashboard.json"


def dashboard() -> dict[str, Any]:
    """The Grafana dashboard."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def fleet_dashboard() -> dict[str, Any]:
    """The Grafana dashboard of a fleet."""
    found: dict[str, Any] = json.loads((KITS / "grafana" / "ragtrace-fleet.json").read_text(encoding="utf-8"))
    return found


def panels(of: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Every panel that is no row, of the shipped dashboard or another."""
    for panel in (of or dashboard())["panels"]:
        for one in (panel, *(panel.get("panels") or ())):
            if one["type"] != "row":
                yield one


def queries(of: Mapping[str, Any] | None = None) -> list[tuple[str, str]]:
    """Title of the panel and query, and those that mark something in all panels."""
    shown = [(panel["title"], target["expr"]) for panel in panels(of) for target in panel.get("targets") or ()]
    return shown + [(mark["name"], mark["expr"]) for mark in marks(of)]


def marks(of: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """What is marked in every panel over time."""
    found = (of or dashboard())["annotations"]["list"]
    return [mark for mark in found if mark.get("expr")]


def filled_in(expr: str, variables: Mapping[str, str]) -> str:
    """*expr* with the dashboard's variables replaced."""
    for name, value in sorted(variables.items(), key=lambda each: -len(each[0])):
        expr = expr.replace(f"${{{name}}}", value).replace(f"${name}", value)
    return expr

"""What of the demo has arrived in each backend, asked over the backend's own API."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from threading import Event
from typing import Final

from ragtrace.demo.backends.beside import Beside
from ragtrace.demo.backends.local import fetched
from ragtrace.demo.backends.servers import ALERTMANAGER, PHOENIX, PROMETHEUS
from ragtrace.demo.outcome import Backend
from ragtrace.demo.run import SERVICE, Progress

_PATIENCE: Final = 25.0
"""Seconds for all of it: a few scrapes, and a few evaluations of the rules after them."""
_POLL_S: Final = 0.5
_METRIC: Final = "hallucinated"
_NOTHING: Final = "nothing of the demo has arrived"
_STAGE: Final = "Waiting for the backends"


def arrived(backends: Beside, progress: Progress, *, alarmed: bool) -> list[Backend]:
    """Every backend with what it shows, as soon as it does.

    Args:
        alarmed: whether the demo's alert was raised, of which it tells Alertmanager.
    """
    asked: list[tuple[str, Callable[[str], str]]] = [(PHOENIX.name, _phoenix), (PROMETHEUS.name, _prometheus)]
    if alarmed:
        asked.append((ALERTMANAGER.name, _alertmanager))
    deadline = time.monotonic() + _PATIENCE
    shows: dict[str, str] = {}
    for number, (name, ask) in enumerate(asked):
        progress(_STAGE, number, len(asked))
        if name in backends.running:
            shows[name] = _awaited(ask, backends.running[name].launch.url, deadline)
    progress(_STAGE, len(asked), len(asked))
    if not alarmed:
        shows[ALERTMANAGER.name] = "no alert was raised"
    return [replace(each, shows=shows.get(each.name, "")) for each in backends.listed()]


def _awaited(ask: Callable[[str], str], url: str, deadline: float) -> str:
    pause = Event()
    while not (told := ask(url)):
        if time.monotonic() > deadline:
            return _NOTHING
        pause.wait(_POLL_S)
    return told


def _phoenix(url: str) -> str:
    """The project and a score of it; Phoenix adds annotations to their traces a moment after both have come."""
    project = f"{url}/v1/projects/{SERVICE}"
    spans = fetched(f"{project}/spans", "data", limit="100")
    query = "&".join(f"trace_ids={each['context']['trace_id']}" for each in spans if not each.get("parent_id"))
    scores = fetched(f"{project}/trace_annotations?{query}", "data") if query else []
    named = sorted({str(each["name"]) for each in scores})
    return f"project {SERVICE}, annotations {', '.join(named)}" if named else ""


def _prometheus(url: str) -> str:
    """The mean that the kit's rules record, with its interval."""
    found: list[float] = []
    for end in ("value", "low", "high"):
        asked = f'sum(ragtrace:30m:{end}{{gen_ai_evaluation_name="{_METRIC}"}})'
        rows = fetched(f"{url}/api/v1/query", "data", "result", query=asked)
        found += [float(row["value"][1]) for row in rows]
    if len(found) < 3:
        return ""
    value, low, high = found
    return f"mean {_METRIC} {value:.3f}, 95 % interval {low:.3f} to {high:.3f}"


def _alertmanager(url: str) -> str:
    """The alerts that fire."""
    firing = sorted({str(each["labels"]["alertname"]) for each in fetched(f"{url}/api/v2/alerts")})
    return f"firing: {', '.join(firing)}" if firing else ""

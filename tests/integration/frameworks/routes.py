"""`python -m tests.integration.frameworks.routes`: writes tests/files/routes.json, which compares routes to one call.

The routes are ragtrace's decorators, its listener in a framework, and instrumentations of two kinds; each alone, and
all of them at once. The applications and their environments are those of the recordings (README.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.integration.frameworks.environment import MODES, Recorder, environment_of

FILE: Final = Path(__file__).parents[2] / "files" / "routes.json"
ROUTES: Final[dict[str, tuple[str, ...]]] = {
    "langchain_lcel": ("decorators", "ragtrace", "openinference", "openllmetry"),
    "langgraph_agent": ("decorators", "ragtrace", "openinference", "openllmetry"),
    "llamaindex_query": ("decorators", "ragtrace", "openinference", "openllmetry"),
    "llamaindex_chat": ("decorators", "ragtrace", "openinference", "openllmetry"),
    "haystack_pipeline": ("decorators", "ragtrace", "openinference", "openllmetry-openai"),
    "openai_plain": ("decorators", "openinference", "openllmetry"),
}
"""Routes by application; `openai_plain` has no framework to listen to."""
ALL: Final = "all at once"
RIGHT: Final = "right"
NO_CALL: Final = "no call"
_PROCESSES: Final = (MODES[:2], MODES[2:])
"""Modes in one process: a client of LangChain stays bound to the first event loop."""


def outcomes(recorder: Recorder, application: str, route: str) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield mode, verdict and scores of *application* seen by one route, or by `ALL`."""
    routes = ROUTES[application]
    environment = environment_of(application, "ragtrace" if "ragtrace" in routes else "openinference")
    name = "+".join(routes) if route == ALL else route
    outputs = (recorder.ask(environment, application, name, *modes) for modes in _PROCESSES)
    results = [json.loads(line) for output in outputs for line in output.splitlines() if line.startswith("{")]
    for mode, found in zip(MODES, results, strict=True):
        yield mode, verdict(found), sorted(found["scores"], key=json.dumps)


def verdict(found: dict[str, Any]) -> str:
    """Return whether each request of the application was one call, with the texts that the application logged."""
    judged, logged = (sorted(texts[:3] for texts in found[key]) for key in ("judged", "logged"))
    counts = found["counts"]
    if found["faults"]:
        return f"faults: {found['faults']}"
    if counts["offered"] != len(judged) or counts["others"]:
        return f"counts: {counts} of {len(judged)} calls"
    if not judged:
        return NO_CALL
    if len(judged) != len(logged):
        return f"{len(judged)} calls of {len(logged)} requests"
    return RIGHT if judged == logged else "texts differ"


def compare(recorder: Recorder, application: str) -> dict[str, dict[str, str]]:
    """Return the verdicts by route and mode. A call that a route scores otherwise than the decorators is not right."""
    found: dict[str, dict[str, str]] = {}
    scores: dict[str, list[Any]] = {}
    for route in (*ROUTES[application], ALL):
        found[route] = {}
        for mode, said, scored in outcomes(recorder, application, route):
            usual = scores.setdefault(mode, scored)
            found[route][mode] = "scores differ" if said == RIGHT and scored != usual else said
    return found


if __name__ == "__main__":
    with Recorder("mixed.py") as recorder:
        table = {application: compare(recorder, application) for application in ROUTES}
    FILE.write_text(f"{json.dumps(table, indent=1)}\n", encoding="utf-8")

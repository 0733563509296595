"""`python -m tests.integration.frameworks.routes`: writes tests/files/routes.json, which compares routes to one call.

The routes are ragtrace's decorators, its listener in a framework, and instrumentations of two kinds; each alone, and
all of them at once, with and without the listener. The applications and their environments are those of the recordings
(README.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.integration.frameworks.environment import MODES, Recorder, environment_of, modes_of

FILE: Final = Path(__file__).parents[2] / "files" / "routes.json"
ROUTES: Final[dict[str, tuple[str, ...]]] = {
    "langchain_lcel": ("decorators", "ragtrace", "openinference", "openllmetry"),
    "langgraph_agent": ("decorators", "ragtrace", "openinference", "openllmetry"),
    "llamaindex_query": ("decorators", "ragtrace", "openinference", "openllmetry"),
    "llamaindex_chat": ("decorators", "ragtrace", "openinference", "openllmetry"),
    "haystack_pipeline": ("decorators", "ragtrace", "openinference", "openllmetry-openai"),
    "agents_sdk": ("decorators", "ragtrace", "openinference", "openllmetry+openllmetry-openai"),
    "agents_sdk_responses": ("decorators", "ragtrace", "openinference", "openllmetry+openllmetry-openai"),
    "pydantic_ai": ("decorators", "native", "openinference", "genai-openai"),
    "openai_plain": ("decorators", "openinference", "openllmetry"),
}
"""Routes by application; for `pydantic_ai` and `openai_plain` there is no listener."""
ALL: Final = "all at once"
UNHEARD: Final = "all but ragtrace"
"""Decorators and instrumentations without the listener, which would stand for the spans of its framework."""
RIGHT: Final = "right"
NO_CALL: Final = "no call"


def routes_of(application: str) -> tuple[str, ...]:
    """Return the routes of *application*, each alone, and what several of them are called together."""
    routes = ROUTES[application]
    return (*routes, *([UNHEARD] if "ragtrace" in routes else []), ALL)


def processes(application: str) -> Iterator[tuple[str, ...]]:
    """Yield the modes of each process for *application*: a client of LangChain stays bound to the first event loop."""
    modes = modes_of(application)
    yield from filter(None, (tuple(each for each in half if each in modes) for half in (MODES[:2], MODES[2:])))


def outcomes(recorder: Recorder, application: str, route: str) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield mode, verdict and scores of *application* seen by one route, by `ALL` or by `UNHEARD`."""
    routes = ROUTES[application]
    environment = environment_of(application, "ragtrace" if "ragtrace" in routes else "openinference")
    several = {ALL: routes, UNHEARD: [each for each in routes if each != "ragtrace"]}
    name = "+".join(several.get(route, [route]))
    outputs = (recorder.ask(environment, application, name, *modes) for modes in processes(application))
    results = [json.loads(line) for output in outputs for line in output.splitlines() if line.startswith("{")]
    for mode, found in zip(modes_of(application), results, strict=True):
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
    for route in routes_of(application):
        found[route] = {}
        for mode, said, scored in outcomes(recorder, application, route):
            usual = scores.setdefault(mode, scored)
            found[route][mode] = "scores differ" if said == RIGHT and scored != usual else said
    return found


if __name__ == "__main__":
    with Recorder("mixed.py") as recorder:
        table = {application: compare(recorder, application) for application in ROUTES}
    FILE.write_text(f"{json.dumps(table, indent=1)}\n", encoding="utf-8")

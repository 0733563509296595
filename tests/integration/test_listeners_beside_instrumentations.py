"""A framework that ragtrace listens to and an instrumentation describes: one call a request, scored once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest

from tests.integration.frameworks.environment import MODES, Recorder, environment_of
from tests.integration.frameworks.routes import ALL, FILE, NO_CALL, RIGHT, ROUTES, UNHEARD, outcomes, routes_of

pytestmark = pytest.mark.integration

INSTRUMENTATIONS: Final = (
    "openinference+openinference-openai",
    "openinference",
    "openllmetry+openllmetry-openai",
    "genai+genai-openai",
)

_PROCESSES: Final = (MODES[:2], MODES[2:])
"""Modes in one process: a client of LangChain stays bound to the first event loop."""


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    """A process that has imported the framework."""
    with Recorder("mixed.py") as recorder:
        yield recorder


@pytest.mark.parametrize("instrumentation", INSTRUMENTATIONS)
@pytest.mark.parametrize("application", ["langchain_lcel", "langgraph_agent", "llamaindex_query", "llamaindex_chat"])
def test_each_request_is_one_call(recorder: Recorder, application: str, instrumentation: str) -> None:
    """With the texts that the application logged, streamed or not; only ragtrace's own root spans carry scores."""
    environment = environment_of(application, "ragtrace")
    outputs = (recorder.ask(environment, application, f"ragtrace+{instrumentation}", *modes) for modes in _PROCESSES)
    results = [json.loads(line) for output in outputs for line in output.splitlines() if line.startswith("{")]
    for mode, found in zip(MODES, results, strict=True):
        logged = found["logged"]
        if application.startswith("llamaindex"):  # its memory has no name that the application gave
            logged = [[*texts, None] for *texts, _ in logged]
        assert sorted(found["judged"]) == sorted(logged), mode
        assert found["scored"] == ["ragtrace"] * 3, mode
        assert found["faults"] == {}, mode


@pytest.mark.parametrize("application", ROUTES)
def test_several_routes_at_once_are_as_each_alone(recorder: Recorder, application: str) -> None:
    """The table of the documentation is what happens: one call a request, with the same texts and scores."""
    shown = json.loads(FILE.read_text(encoding="utf-8"))[application]
    alone = {mode: scores for mode, _, scores in outcomes(recorder, application, "decorators")}
    for route in shown.keys() & {ALL, UNHEARD}:
        assert set(shown[route].values()) == {RIGHT}
        for mode, said, scores in outcomes(recorder, application, route):
            assert (said, scores) == (shown[route][mode], alone[mode]), (route, mode)


def test_each_route_alone_is_right_or_has_no_call() -> None:
    """No route makes a call twice or of other texts than the application's, and it says where it cannot see one."""
    table = json.loads(FILE.read_text(encoding="utf-8"))
    assert {application: tuple(routes) for application, routes in table.items()} == {
        application: routes_of(application) for application in ROUTES
    }
    assert {said for routes in table.values() for modes in routes.values() for said in modes.values()} <= {
        RIGHT,
        NO_CALL,
    }

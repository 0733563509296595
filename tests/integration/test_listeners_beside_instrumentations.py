"""A framework that ragtrace listens to and an instrumentation describes: one call a request, scored once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import pytest

from tests.integration.frameworks.environment import Recorder, environment_of

pytestmark = pytest.mark.integration

MODES: Final = ("sync", "astream")
INSTRUMENTATIONS: Final = (
    "openinference+openinference-openai",
    "openllmetry+openllmetry-openai",
    "genai+genai-openai",
)


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    """A process that has imported the framework."""
    with Recorder("mixed.py") as recorder:
        yield recorder


@pytest.mark.parametrize("instrumentation", INSTRUMENTATIONS)
@pytest.mark.parametrize("application", ["langchain_lcel", "langgraph_agent"])
def test_each_request_is_one_call(recorder: Recorder, application: str, instrumentation: str) -> None:
    """With the texts and the session that the application logged; only ragtrace's own root spans carry scores."""
    output = recorder.ask(environment_of(application, "ragtrace"), application, instrumentation, *MODES)
    results = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    for mode, found in zip(MODES, results, strict=True):
        assert sorted(found["judged"]) == sorted(found["logged"]), mode
        assert found["scored"] == ["ragtrace"] * 3, mode
        assert found["faults"] == {}, mode

"""A framework that ragtrace listens to and an instrumentation describes: one call a request, scored once."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Final

import pytest

from tests.integration.frameworks.environment import FOLDER, environment_of, python_of

pytestmark = pytest.mark.integration

TIMEOUT_S: Final = 180
MODES: Final = ("sync", "astream")
INSTRUMENTATIONS: Final = (
    "openinference+openinference-openai",
    "openllmetry+openllmetry-openai",
    "genai+genai-openai",
)


@pytest.mark.parametrize("instrumentation", INSTRUMENTATIONS)
@pytest.mark.parametrize("application", ["langchain_lcel", "langgraph_agent"])
def test_each_request_is_one_call(application: str, instrumentation: str) -> None:
    """With the texts and the session that the application logged; only ragtrace's own root spans carry scores.

    One process runs both modes, as importing the framework takes most of the time.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PYTHON", "OPENAI_"))}
    done = subprocess.run(
        [python_of(environment_of(application, "ragtrace")), FOLDER / "mixed.py", application, instrumentation, *MODES],
        env=environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for mode, found in zip(MODES, results, strict=True):
        assert sorted(found["judged"]) == sorted(found["logged"]), mode
        assert found["scored"] == ["ragtrace"] * 3, mode
        assert found["faults"] == {}, mode

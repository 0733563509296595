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
INSTRUMENTATIONS: Final = (
    "openinference+openinference-openai",
    "openllmetry+openllmetry-openai",
    "genai+genai-openai",
)


@pytest.mark.parametrize("mode", ["sync", "astream"])
@pytest.mark.parametrize("instrumentation", INSTRUMENTATIONS)
@pytest.mark.parametrize("application", ["langchain_lcel", "langgraph_agent"])
def test_each_request_is_one_call(application: str, instrumentation: str, mode: str) -> None:
    """With the texts and the session that the application logged; only ragtrace's own root spans carry scores."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PYTHON", "OPENAI_"))}
    done = subprocess.run(
        [python_of(environment_of(application, "ragtrace")), FOLDER / "mixed.py", application, instrumentation, mode],
        env=environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert sorted(found["judged"]) == sorted(found["logged"])
    assert found["scored"] == ["ragtrace"] * 3
    assert found["faults"] == {}

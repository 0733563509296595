"""Attributes that are read with a default, on the objects of libraries that have an environment of their own.

`tests/contract/test_library_attributes.py` has the list.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from tests.integration.frameworks.environment import FOLDER, python_of

pytestmark = pytest.mark.integration
_TIMEOUT_S = 120.0


def told(environment: str, program: str) -> Any:
    """What *program* prints, as JSON, in that environment, where ragtrace is the source beside the tests."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "OPENAI_", "PYTHON"))}
    done = subprocess.run(
        [str(python_of(environment)), "-c", program],
        env={**environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "0"},
        cwd=FOLDER.parents[2],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


AGENTS = """
import json, os
from agents.tracing import GenerationSpanData, TracingProcessor, get_trace_provider, trace
provider = get_trace_provider()
with trace("a workflow", group_id="visit-7", metadata={"user_id": "u1"}) as made:
    found = [made.name, made.group_id, made.metadata, GenerationSpanData(model="a model").model]
print(json.dumps([*found, len(provider._multi_processor._processors)]), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("environment", ["openai_agents", "openai_agents_0_7", "openai_agents_v2"])
def test_the_agents_sdk_has_them(environment: str) -> None:
    """Name, session, user and model of a run, and the processors among which ragtrace's listener must be."""
    *found, processors = told(environment, AGENTS)
    assert found == ["a workflow", "visit-7", {"user_id": "u1"}, "a model"]
    assert processors >= 1


LITELLM = """
import json
import litellm
from ragtrace.capture.providers import provider_of
asked = {"messages": [{"role": "user", "content": "How tall is it?"}], "mock_response": "330 metres"}
models = ("openai/gpt-4o", "anthropic/claude-sonnet-4-5", "mistral/mistral-small-latest")
print(json.dumps([provider_of(litellm.completion(model=model, **asked)) for model in models]))
"""


def test_the_provider_of_an_answer_of_litellm_is_found() -> None:
    """Which LiteLLM names nowhere else."""
    assert told("captured_clients", LITELLM) == ["openai", "anthropic", "mistral_ai"]

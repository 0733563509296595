"""`ragtrace.instrument("openai_agents")`: agents of the OpenAI Agents SDK, run in its own environment."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from tests.integration.frameworks.corpus import DOCUMENTS, QUESTIONS
from tests.integration.frameworks.environment import FOLDER, python_of

pytestmark = pytest.mark.integration
QUESTION = QUESTIONS[0].text
TEXTS = [document.text for document in DOCUMENTS[:2]]
_TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What ragtrace saw of each scenario."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "OPENAI_", "PYTHON"))}
    command = [str(python_of("openai_agents")), str(FOLDER / "agents_scenarios.py")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("scenario", ["handoff", "guardrails", "agent_as_tool", "failing_tool", "decorated_inside"])
def test_a_run_is_one_call(seen: dict[str, Any], scenario: str) -> None:
    """Whatever other agents take part in it: with the user's query and the answer that the application got."""
    (call,) = seen[scenario]["calls"]
    assert ([call["query"]], [call["answer"]]) == ([QUESTION], seen[scenario]["answers"])
    assert (seen[scenario]["roots"], seen[scenario]["traces"]) == (1, 1)


@pytest.mark.parametrize(
    ("scenario", "source"), [("guardrails", "tool"), ("agent_as_tool", "tool"), ("decorated_inside", "retriever")]
)
def test_what_tools_return_is_evidence(seen: dict[str, Any], scenario: str, source: str) -> None:
    """As documents where that is JSON with documents."""
    (call,) = seen[scenario]["calls"]
    assert call["source"] == source
    if scenario != "agent_as_tool":  # the outer tool's result is the answer of an agent
        assert call["contexts"] == TEXTS


def test_the_session_is_the_group_of_the_trace(seen: dict[str, Any]) -> None:
    """Of each run in it."""
    assert seen["handoff"]["calls"][0]["session"] == "visit-7"
    assert [call["session"] for call in seen["in_one_trace"]["calls"]] == ["visit-8", "visit-8"]


def test_a_handoff_is_no_evidence(seen: dict[str, Any]) -> None:
    """Though the SDK hands it to the model as the result of a tool."""
    assert seen["handoff"]["calls"][0]["contexts"] == []


def test_a_tool_that_fails_is_marked(seen: dict[str, Any]) -> None:
    """The run goes on."""
    assert seen["failing_tool"]["errors"] == ["execute_tool failing"]


def test_an_error_of_the_run_ends_the_call(seen: dict[str, Any]) -> None:
    """It reaches the application as before."""
    assert seen["too_many_turns"]["answers"] == []
    assert seen["too_many_turns"]["errors"] == ["invoke_workflow Agent workflow"]


@pytest.mark.parametrize("scenario", ["at_once", "in_one_trace"])
def test_runs_do_not_mix(seen: dict[str, Any], scenario: str) -> None:
    """Neither at the same time nor in one trace."""
    answers = {call["query"]: call["answer"] for call in seen[scenario]["calls"]}
    asked = [question.text for question in QUESTIONS][: len(seen[scenario]["answers"])]
    assert [answers[question] for question in asked] == seen[scenario]["answers"]
    assert len(seen[scenario]["calls"]) == len(asked)


def test_a_run_inside_a_decorated_function_is_part_of_its_call(seen: dict[str, Any]) -> None:
    """One call, with the decorated function as its root."""
    (call,) = seen["in_decorated_function"]["calls"]
    assert (call["workflow"], call["contexts"]) == ("guided", TEXTS)


def test_disabled_tracing_is_logged(seen: dict[str, Any]) -> None:
    """Nothing reaches ragtrace then."""
    assert seen["disabled"]["calls"] == []
    (message,) = [message for message in seen["messages"] if "disabled" in message]
    assert "set_tracing_disabled(False)" in message


def test_ragtrace_had_no_fault(seen: dict[str, Any]) -> None:
    """In any of the scenarios."""
    assert seen["faults"] == {}

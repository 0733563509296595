"""Choice of the reader: spans that ask a decision model are steps of the application, and read as no step of a call."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.span_reading.readers import read_span
from tests.support.finished_spans import finished_span

_LLM: dict[str, Any] = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "jev-1.13.0",
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "Is this question about a bridge?",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "0.93",
}
_DECISION: dict[str, Any] = {
    "openinference.span.kind": "DECISION",
    "decision.system": "openai",
    "decision.model_name": "gpt-6-luna",
    "decision.token_count.prompt": 812,
    "input.value": "Is this question about a bridge?",
    "output.value": "0.93",
}
_STRANDS: dict[str, Any] = {
    "gen_ai.operation.name": "decision",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-6-luna",
    "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "Is it about a bridge?"}]}],
    "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "0.93"}]}],
}


@pytest.mark.parametrize(
    "attributes",
    [
        _DECISION,
        {**_DECISION, "openinference.span.kind": "decision"},
        _STRANDS,
        {**_LLM, "llm.provider": "typesafe"},
        {**_LLM, "llm.system": "typesafe"},
        {**_LLM, "decision.model_name": "jev-1.13.0"},
    ],
    ids=["openinference", "lower case", "strands", "older, by provider", "older, by system", "both conventions"],
)
def test_a_span_that_asks_a_decision_model_is_no_step(attributes: dict[str, Any]) -> None:
    """Routing and guarding generate no answer and find no documents."""
    assert read_span(finished_span(attributes)) is None


def test_a_model_call_of_another_provider_is_a_generation() -> None:
    """The marks of a decision are looked for alone."""
    reading = read_span(finished_span({**_LLM, "llm.provider": "openai"}))
    assert reading is not None
    assert reading.step.kind == "generate"

"""Judges made from their specification on a command line."""

from __future__ import annotations

import asyncio
from inspect import isawaitable

import pytest

from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Document, RagCall
from ragtrace.offline import judge_spec
from ragtrace.offline.judge_spec import is_local, judge_from_spec
from ragtrace.testing import OpenAIServer, Reply

CALL = RagCall("How high is the tower?", (Document("The tower is 330 metres high."),), "The tower is 330 metres high.")


@pytest.mark.parametrize("spec", ["openai:m", "openai-careful:m", "openai-sentences:m", "decision-logprobs:m"])
def test_a_request_to_this_machine_has_the_time_of_a_call(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of 15 minutes whose requests end after one is cut off and asked again, while the server still computes."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(judge_spec, "LOCAL_TIMEOUT_S", 0.2)

    async def ask() -> None:
        judgement = judge_from_spec(spec, base_url=server.url).judge(CALL)
        assert isawaitable(judgement)
        await judgement

    with OpenAIServer(Reply(hangs=True)) as server, pytest.raises(JudgeError, match=r"no full answer .* within 0\.2 s"):
        asyncio.run(ask())


def test_other_servers_are_not_on_this_machine() -> None:
    """They have the usual time."""
    assert is_local("http://localhost:11434/v1")
    assert is_local("http://[::1]:8080/v1")
    assert not is_local("https://models.example.com/v1")
    assert not is_local(None)

"""Decision server of `ragtrace.testing`: answers by rule in both forms, with error rates that are chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from ragtrace.core.types import Score
from ragtrace.judges import DecisionJudge
from ragtrace.testing import DecisionServer
from tests.support.decisions import SENTENCES, SHORT, evaluated

_INVENTED = [f"Penguin number {n} lives on iceberg {n}." for n in range(200)]


def supported(server: DecisionServer, answer: str) -> list[bool]:
    """Whether each statement of *answer* is likely supported, as a judge reads the server's answers."""
    result = evaluated(
        DecisionJudge("local", base_url=server.url, api_key="any"), replace(SHORT, answer=answer), "faithfulness"
    ).results["faithfulness"]
    assert isinstance(result, Score)
    return [claim.support == "supported" for claim in result.claims]


def test_an_honest_model_knows_what_the_chunks_have() -> None:
    """Words, numbers and names of a statement must be in one chunk."""
    with DecisionServer() as server:
        assert supported(server, f"{SENTENCES[1]} {_INVENTED[0]} It is 2149 metres long and carries eight lanes.") == [
            True,
            False,
            False,
        ]


@pytest.mark.parametrize("misses", [0.0, 0.25, 1.0])
def test_errors_come_at_the_chosen_rate_and_always_the_same(misses: float) -> None:
    """So many of the unsupported statements look supported, and the same ones in every run with the same seed."""
    answer = " ".join(_INVENTED)
    with DecisionServer(misses=misses) as server, DecisionServer(misses=misses) as again:
        found = supported(server, answer)
        assert found == supported(again, answer)
    assert len(found) == len(_INVENTED)
    assert sum(found) / len(found) == pytest.approx(misses, abs=0.08)


def test_a_model_that_declines_every_question() -> None:
    """Each answer is a refusal in OpenAI's form, and missing in the other."""
    body: dict[str, Any] = {"model": "m", "input": "text", "questions": [{"type": "predicate", "instructions": "So?"}]}
    with DecisionServer(refused=1.0) as server:
        assert httpx.post(f"{server.url}/decisions", json=body).json()["answers"][0]["type"] == "refusal"
        other = {"model": "m", "state": "text", "questions": {"a": {"type": "noul", "instructions": "So?"}}}
        assert httpx.post(f"{server.url}/systemone", json=other).json()["answers"] == {}

"""How often a judge that errs by chance fails its control items: `careful`, simulated."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from ragtrace.core.types import Document, RagCall
from ragtrace.judges.llm.label_collector import Mode
from ragtrace.judges.llm.llm_judge import LLMJudge
from tests.support.chats import Data, ScriptedChat, honest

NOISE = 0.03
"""Share of labels that a good model gets wrong."""


def withheld(mode: Mode, calls: int) -> float:
    """Return the share of calls with a suspect judgement, by a model that is honest but for `NOISE`."""
    chance = random.Random(11)
    answer = " ".join(f"Item number {n} is in the catalogue." for n in range(12))
    asked = RagCall("How high is the tower?", (Document("The tower is 330 metres high."),), answer)

    def noisy(ask: Any, data: Data) -> Data:
        reply = honest(ask, data)
        for one in reply.get("statements", []):
            if "support" in one and chance.random() < NOISE:
                other = "not_found" if one["support"] == "supported" else "supported"
                quote = data["chunks"][0]["text"][:20]
                one |= {"support": other, "evidence_chunk_ids": ["c1"], "quote": quote}
        return reply

    async def share() -> float:
        judge = LLMJudge(ScriptedChat(noisy), mode=mode, chance=chance)  # type: ignore[arg-type]
        found = [await judge.judge(asked) for _ in range(calls)]
        return sum(one.reasons.get("") == "control_failed" for one in found) / calls

    return asyncio.run(share())


def test_few_calls_are_withheld() -> None:
    """Four gold checks a call at 3 % of noise: 1 - 0.97 ** 4 is 11 %."""
    assert 0.05 < withheld("careful", 300) < 0.2

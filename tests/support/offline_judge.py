"""Judges for the command line, which finds them by name: `tests.support.offline_judge:served`."""

from __future__ import annotations

import asyncio
import os
import signal

from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Claim, Support
from ragtrace.core.options import JudgeLimits
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall
from tests.support.http_judge import HttpJudge


class ServedJudge(HttpJudge):
    """Asks the server whose address is in JUDGE_URL, over connections that it keeps and closes at the end."""

    async def aclose(self) -> None:
        await self.close()


def served() -> ServedJudge:
    """As `--judge module:object` makes it."""
    return ServedJudge(os.environ["JUDGE_URL"], keep_alive=True, timeout=30.0)


class WordyJudge:
    """Says in the answer's own words what to do: its first word is a label, a reason of failure, or `answer`."""

    id, version = "wordy", "1"
    type: EvaluatorType = "llm_judge"
    asked = 0

    def offers(self, metric: Metric) -> bool:
        return metric.name in ("faithfulness", "hallucination")

    async def judge(self, call: RagCall) -> Judgement:
        WordyJudge.asked += 1
        answer = call.answer or ""
        word = answer.partition(" ")[0]
        if word in ("refused", "unparsable"):
            raise JudgeError(word)
        if word == "away":
            raise JudgeError("unavailable", "it is away", retryable=False)
        support: Support = "not_found" if word == "invented" else "supported"
        claim = Claim(answer, 0, len(answer), support)
        return Judgement((claim,), "answered", n_calls=1, input_tokens=100, output_tokens=10, cost_usd=0.5)


class MortalJudge(WordyJudge):
    """As `WordyJudge`, but the process is killed when the call of that number is asked, if KILLED_AT names one."""

    async def judge(self, call: RagCall) -> Judgement:
        if WordyJudge.asked + 1 == int(os.environ.get("KILLED_AT", "0")):
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().judge(call)


NOT_A_JUDGE = object()


class PatientJudge(WordyJudge):
    """Judge that never answers, and gives itself a tenth of a second for a call."""

    id, limits = "patient", JudgeLimits(timeout=0.1)

    async def judge(self, call: RagCall) -> Judgement:
        await asyncio.Event().wait()
        raise AssertionError


def patient() -> PatientJudge:
    """As `--judge module:object` makes it."""
    return PatientJudge()

"""Processes that ask a judge within a shared budget, as fast as they may, and write every request as a line of JSON.

`python -m tests.support.budget_worker STORE SECONDS LIMITS WORKERS RETRY_AFTER`: LIMITS are the fields of
`BudgetLimits` as JSON; with RETRY_AFTER, the judge answers the tenth request of the first worker with so many seconds.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Judgement, Metric, RagCall
from ragtrace.evaluation.judge_client import JudgeClient
from ragtrace.fleet.budget import BudgetLimits, JudgeBudget

CONCURRENCY: Final = 8
MEAN_USD: Final = 0.002
MEAN_TOKENS: Final = 1_000
JUDGE_SECONDS: Final = 0.1
REFUSED_REQUEST: Final = 10


@dataclass(frozen=True)
class JudgeRequest:
    """One request to the judge of a worker process."""

    worker: int
    at: float
    """Seconds of the machine's monotonic clock."""
    usd: float
    tokens: int
    retry_after: float
    """Seconds of the Retry-After with which it was refused; 0: it was answered."""


class WritingJudge:
    """A judge that takes 100 ms, costs a random amount, and writes each request to standard output."""

    id, version, type = "writing", "1", "llm"

    def __init__(self, number: int, retry_after: float) -> None:
        self._number, self._random = number, random.Random(number)
        self._retry_after, self._count = retry_after, 0

    def offers(self, metric: Metric) -> bool:
        """No metric is computed."""
        return False

    async def judge(self, call: RagCall) -> Judgement:
        """An empty judgement with a cost between half and three halves of the mean."""
        self._count += 1
        factor = self._random.uniform(0.5, 1.5)
        refused = self._retry_after if self._count == REFUSED_REQUEST else 0.0
        usd, tokens = (0.0, 0) if refused else (MEAN_USD * factor, int(MEAN_TOKENS * factor))
        os.write(
            1, json.dumps([self._number, time.monotonic(), usd, tokens, refused]).encode() + b"\n"
        )  # one write: the processes share the pipe
        if refused:
            raise JudgeError("unavailable", "HTTP 429", retry_after=refused)
        await asyncio.sleep(JUDGE_SECONDS)
        return Judgement(n_calls=1, input_tokens=tokens, cost_usd=usd)


async def _work(store: str, seconds: float, limits: BudgetLimits, number: int, retry_after: float) -> None:
    client = JudgeClient(WritingJudge(number, retry_after), timeout=seconds, concurrency=CONCURRENCY)
    budget = client.shared_limits = JudgeBudget(limits, store, judge=WritingJudge.id)
    ends = time.monotonic() + seconds

    async def ask(task: int) -> None:
        asked = 0
        while time.monotonic() < ends:
            asked += 1
            try:
                await client.ask(RagCall(query=f"{task} {asked}", contexts=None, answer="x"))
            except JudgeError:
                await asyncio.sleep(0.05)

    await asyncio.wait([asyncio.ensure_future(ask(task)) for task in range(CONCURRENCY)], timeout=seconds)
    await budget.aclose()


def requests_of_workers(
    store: str, workers: int, seconds: float, limits: Mapping[str, Any], retry_after: float = 0.0
) -> list[JudgeRequest]:
    """Run worker processes and return all requests; the first worker sees the Retry-After, if there is one."""
    arguments = [store, str(seconds), json.dumps(limits), str(workers), str(retry_after)]
    output = subprocess.run([sys.executable, "-m", __name__, *arguments], stdout=subprocess.PIPE, check=True).stdout
    return [JudgeRequest(*json.loads(line)) for line in output.splitlines()]


def most_in_window(amounts: Sequence[tuple[float, float]], seconds: float) -> float:
    """Largest sum of the amounts within any *seconds*; each amount comes with its time."""
    ordered = sorted(amounts)
    most = total = 0.0
    first = 0
    for at, amount in ordered:
        total += amount
        while ordered[first][0] <= at - seconds:
            total -= ordered[first][1]
            first += 1
        most = max(most, total)
    return most


def _work_in_process(number: int, store: str, seconds: float, limits: BudgetLimits, retry_after: float) -> None:
    _started.wait()
    asyncio.run(_work(store, seconds, limits, number, 0.0 if number else retry_after))


if __name__ == "__main__":
    _store, _seconds, _limits, _workers, _retry_after = sys.argv[1:]
    _arguments = _store, float(_seconds), BudgetLimits(**json.loads(_limits)), float(_retry_after)
    _forking = multiprocessing.get_context("fork")  # one import for all workers
    _started = _forking.Barrier(int(_workers))
    _processes = [_forking.Process(target=_work_in_process, args=(n, *_arguments)) for n in range(int(_workers))]
    for _process in _processes:
        _process.start()
    for _process in _processes:
        _process.join()
    sys.exit(max(abs(_process.exitcode or 0) for _process in _processes))

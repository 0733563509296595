"""`Panel`: who looks at a call offline: the judge for its labels, the stopwatch for what needs none."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

from ragtrace.core.types import Askable, Closable, Evaluation, Judge, Metric, RagCall
from ragtrace.evaluation.scoring import Evaluator, evaluate
from ragtrace.judges.llm.stopwatch import Stopwatch
from ragtrace.system.fair_semaphore import run_within
from ragtrace.system.faults import guarded

TIMEOUT_S = 120.0
"""For one call, waiting and retries included: offline nobody is held up, but nothing may hang for ever."""
CONCURRENCY = 16
PASSING = frozenset({"unavailable", "timeout"})
"""Reasons that say nothing of the call: at another time it may be judged."""
_CLOSE_S = 5.0
_SHORTEST_PAUSE_S = 0.05


class Panel:
    """Evaluates calls by *metrics*; for one event loop.

    Args:
        timeout: seconds the judge has for a call; None: no limit.
        concurrency: calls the judge sees at a time.
    """

    def __init__(
        self,
        judge: Judge,
        metrics: Sequence[Metric],
        *,
        timeout: float | None = TIMEOUT_S,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self.metrics, self._timeout = tuple(metrics), timeout
        self.given_up = False
        """The judge kept failing for longer than a call may take."""
        labelled = tuple(metric for metric in metrics if metric.needs)
        measured = tuple(metric for metric in metrics if not metric.needs)
        self._judge = judge.asking(labelled) if isinstance(judge, Askable) and labelled else judge
        self._evaluators = [
            Evaluator(by, part, timeout, concurrency=concurrency)
            for by, part in ((self._judge, labelled), (Stopwatch(), measured))
            if part
        ]

    async def look(self, call: RagCall) -> Evaluation:
        """What became of *call*, its results in the order of the metrics. Raises nothing of judge or metric."""
        first, *more = [await evaluate(evaluator, call) for evaluator in self._evaluators]
        results = dict(first.results)
        for evaluation in more:
            results.update(evaluation.results)
        return replace(first, results={metric.name: results[metric.name] for metric in self.metrics})

    async def patiently(self, call: RagCall) -> Evaluation:
        """As `look`; but a call that meets a judge that keeps failing waits for it, for as long as calls have time.

        Online a judge that is away is left alone and calls go unscored at once; a file would be through in a second,
        with nothing scored. When the first call has waited in vain, no other does: see `given_up`.
        """
        deadline = math.inf if self._timeout is None else monotonic() + self._timeout
        while True:
            evaluation = await self.look(call)
            pause = self._refused_s
            if evaluation.error not in PASSING or not pause or self.given_up:
                return evaluation
            if monotonic() + pause >= deadline:
                self.given_up = True
                return evaluation
            await asyncio.sleep(pause)

    @property
    def _refused_s(self) -> float:
        """Seconds until the judge, which kept failing, may be asked again; 0 if it may be now."""
        judge_client = self._evaluators[0].judge_client
        return 0.0 if judge_client.state == "closed" else max(judge_client.status.waits_s, _SHORTEST_PAUSE_S)

    async def close(self) -> None:
        """Let the judge let go of its connections; a judge that hangs over it is left to itself."""
        if isinstance(self._judge, Closable):
            with guarded(f"closing judge {self._judge.id}"):
                await run_within(_CLOSE_S, self._judge.aclose())

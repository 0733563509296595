"""Evaluator of calls outside a running application, which waits and retries while the judge is unavailable."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Final, Literal, TypeAlias, TypeVar

from ragtrace.core.settings import limits_of, resolve_judge_limits
from ragtrace.core.types import Askable, Closable, Evaluation, Judge, Metric, RagCall
from ragtrace.evaluation.scoring import Evaluator, LabelFreeJudge, evaluate
from ragtrace.system.fair_semaphore import run_within
from ragtrace.system.faults import guarded

T = TypeVar("T")
Timeout: TypeAlias = float | Literal["judge"] | None
"""Seconds for one call, None for no limit, or "judge" for the limit that the judge itself has."""
_TIMEOUT_S: Final = 120.0
"""Limit in seconds for one call of a judge that has none of its own, so that no run hangs for ever."""
RETRYABLE = frozenset({"unavailable", "timeout"})
"""Unscored reasons that may pass: at another time the judge may score the call."""
_CLOSE_S = 5.0
_SHORTEST_PAUSE_S = 0.05


class OfflineEvaluator:
    """Evaluator of calls outside a running application, with one judge, one set of metrics and one event loop.

    Args:
        timeout: seconds the judge has for a call; None: no limit; "judge": those of the judge's own `JudgeLimits`, or
            120.
        concurrency: calls the judge sees at a time; None: those of the judge's own `JudgeLimits`, or 16.

    Raises:
        SettingsError: the judge's limits are wrong.
    """

    def __init__(
        self,
        judge: Judge,
        metrics: Sequence[Metric],
        *,
        timeout: Timeout = "judge",
        concurrency: int | None = None,
    ) -> None:
        # The variables of the environment are those of `configure`, so they do not limit an offline run.
        own = limits_of(judge)
        limits = resolve_judge_limits(own, {})
        of_judge: float = _TIMEOUT_S if own.timeout is None else limits["judge_timeout"]
        self._timeout: float | None = of_judge if timeout == "judge" else timeout
        self._concurrency: int = concurrency or limits["judge_concurrency"]
        self._metrics, turns = tuple(metrics), limits["judge_turns"]
        self.given_up = False
        """Whether one call was unscored after all its retries: from then on, calls are not retried."""
        labelled = tuple(metric for metric in metrics if metric.needs)
        measured = tuple(metric for metric in metrics if not metric.needs)
        self._judge = judge.asking(labelled) if isinstance(judge, Askable) and labelled else judge
        self._evaluators = [
            Evaluator(by, part, self._timeout, concurrency=self._concurrency, judge_turns=turns)
            for by, part in ((self._judge, labelled), (LabelFreeJudge(), measured))
            if part
        ]

    async def aclose(self) -> None:
        """Close the judge's connections, waiting at most five seconds."""
        if isinstance(self._judge, Closable):
            with guarded(f"closing judge {self._judge.id}"):
                await run_within(_CLOSE_S, self._judge.aclose())

    async def evaluate(self, call: RagCall) -> Evaluation:
        """Evaluate *call* with every metric. A failing judge or metric leads to results without a score."""
        first, *more = [await evaluate(evaluator, call) for evaluator in self._evaluators]
        results = dict(first.results)
        for evaluation in more:
            results.update(evaluation.results)
        return replace(first, results={metric.name: results[metric.name] for metric in self._metrics})

    async def evaluate_with_retries(self, call: RagCall) -> Evaluation:
        """Evaluate *call*, retrying until the timeout while the judge is unavailable.

        Online, a judge that is away is not asked and calls go unscored at once; a file would be through in a second
        with nothing scored. Once a call has waited in vain, no other call waits: see `given_up`.
        """
        deadline = math.inf if self._timeout is None else monotonic() + self._timeout
        while True:
            evaluation = await self.evaluate(call)
            judge_client = self._evaluators[0].judge_client
            if evaluation.error not in RETRYABLE or judge_client.state == "closed" or self.given_up:
                return evaluation
            pause = max(judge_client.status.waits_s, _SHORTEST_PAUSE_S)
            if monotonic() + pause >= deadline:
                self.given_up = True
                return evaluation
            await asyncio.sleep(pause)

    async def for_each(self, items: Iterable[T], handle: Callable[[T], Awaitable[None]]) -> None:
        """Await `handle(item)` for each of *items*, with several items in progress at a time.

        An item is taken from the iterable only when a worker is free for it.

        The first exception of *handle* or of the iterable cancels the other workers and is raised.
        """
        source = iter(items)

        async def work() -> None:
            for item in source:
                await handle(item)
                await asyncio.sleep(0)  # a judge that never waits must not delay a cancellation

        # Twice as many workers as the judge takes calls: workers that pause before a retry leave no place unused.
        tasks = [asyncio.ensure_future(work()) for _ in range(2 * self._concurrency)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

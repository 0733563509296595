"""A judge is told once what will be asked of it, and lets go of what it holds when nothing more will be."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from time import monotonic

import ragtrace
from ragtrace.core.types import EvaluatorType, Judge, Judgement, Metric, RagCall
from tests.support.watched import GOOD, WAIT_S, ask, watch


class Connected:
    """A judge with a connection, which it opens when it is first asked."""

    id, version = "connected", "1"
    type: EvaluatorType = "llm_judge"

    def __init__(self) -> None:
        self.told: list[list[str]] = []
        self.asked_on: asyncio.AbstractEventLoop | None = None
        self.closed_on: list[asyncio.AbstractEventLoop] = []
        self.hangs = False

    def offers(self, metric: Metric) -> bool:
        return metric.name in ("faithfulness", "answered")

    def asking(self, metrics: Sequence[Metric]) -> Judge:
        self.told.append(sorted(metric.name for metric in metrics))
        return self

    async def judge(self, call: RagCall) -> Judgement:
        self.asked_on = asyncio.get_running_loop()
        return GOOD

    async def aclose(self) -> None:
        self.closed_on.append(asyncio.get_running_loop())
        if self.hangs:
            await asyncio.Event().wait()


def test_a_judge_is_told_what_will_be_asked() -> None:
    """Once, with the metrics that were chosen."""
    judge = Connected()
    watch(screen=None, judge=judge, metrics=["answered"], sampling=ragtrace.Sampling(rate=1.0))
    ask("where?")
    ask("and when?")
    assert ragtrace.flush(WAIT_S)
    assert judge.told == [["answered"]]


def test_a_judge_is_closed_at_shutdown() -> None:
    """Once, on the event loop on which it was asked."""
    judge = Connected()
    watch(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0))
    ask("where?")
    assert ragtrace.shutdown(WAIT_S)
    assert judge.closed_on == [judge.asked_on]


def test_a_judge_is_closed_before_another_configuration() -> None:
    """Its connections belong to the loop that ends."""
    judge = Connected()
    watch(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0))
    ask("where?")
    watch()
    assert judge.closed_on == [judge.asked_on]


def test_a_judge_that_hangs_over_its_end_is_left_to_itself() -> None:
    """The shutdown does not wait for it, and no thread stays behind."""
    judge = Connected()
    judge.hangs = True
    watch(screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0))
    ask("where?")
    began = monotonic()
    assert ragtrace.shutdown(WAIT_S)
    assert monotonic() - began < WAIT_S / 2
    for thread in threading.enumerate():
        if thread.name == "ragtrace":
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_a_judge_that_was_never_asked_has_nothing_to_close() -> None:
    """There was no event loop."""
    judge = Connected()
    watch(screen=None, judge=judge)
    assert ragtrace.shutdown(WAIT_S)
    assert judge.closed_on == []

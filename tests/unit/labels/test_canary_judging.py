"""Judging canaries in a running process: when, at whose cost, and what is said when the judge drifts."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest

import ragtrace
from ragtrace.alerts import Alerting, Notice
from ragtrace.core import semconv
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.settings import resolve_settings
from ragtrace.core.types import Judgement, RagCall
from ragtrace.estimates import MetricAssignment
from ragtrace.evaluation.sampling import Sampler, Sampling
from ragtrace.evaluation.scoring import Evaluator
from ragtrace.history.history import HistoryRecorder
from ragtrace.history.source import CallOrigin
from ragtrace.labels.canary_judging import CanaryJudging
from ragtrace.labels.canary_set import read_canaries
from ragtrace.labels.canary_store import CanaryStore
from ragtrace.labels.served_models import ServedModels
from ragtrace.metrics import registry
from ragtrace.runtime.current_runtime import current
from ragtrace.system.faults import faults
from ragtrace.testing import FakeClock, FakeJudge
from tests.support.canaries import METRIC, LabelFollowingJudge, rows, write
from tests.support.watched import GOOD, WAIT_S, ask, watch


class Watch:
    """Canary judging with a clock of its own, whose ticks a test makes."""

    def __init__(
        self,
        folder: Path,
        judge: FakeJudge,
        *,
        sampling: Sampling | None = None,
        store: Path | None = None,
        places: int = 16,
        lines: list[dict[str, Any]] | None = None,
    ) -> None:
        self.clock, self.notices = FakeClock(1_000.0), list[Notice]()
        [canaries] = read_canaries(str(write(folder / "canaries.jsonl", lines or rows())), [METRIC], "canaries=")
        evaluator = Evaluator(judge, registry.resolve([METRIC]), concurrency=places)
        alert = ragtrace.Alert(METRIC, above=0.5, notify=self.notices.append)
        plan = MetricAssignment.from_evaluators(None, evaluator)
        self.alerting = Alerting([alert], plan, resolve_settings({}, {}))
        self.served = ServedModels(None)
        self.judging = CanaryJudging(
            [canaries],
            evaluator,
            Sampler(sampling or Sampling(), self.clock),
            lambda: self.alerting,
            self.served,
            interval=10.0,
            places=places,
            store=None if store is None else CanaryStore(str(store)),
            clock=self.clock,
            chance=random.Random(1),
        )
        self.client = evaluator.judge_client

    async def judge(self, count: int, *, seconds: float = 100.0) -> None:
        """Make *count* ticks, *seconds* apart, and wait for each canary that one begins to judge."""
        for _ in range(count):
            self.clock.advance(seconds)
            self.judging.tick()
            while asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})

    def told(self) -> list[tuple[str, str]]:
        """Problems and their status that the notifier of the alert got."""
        assert self.alerting.close(WAIT_S)
        return [(notice.problem, notice.status) for notice in self.notices]

    def values(self, metric: str) -> dict[tuple[str, ...], float]:
        """Values of a metric, by those of the attributes that tell them apart."""
        keys = (semconv.CANARY_LABEL, semconv.OUTCOME, semconv.REASON)
        (observed,) = (each for each in self.judging.observations() if each.name == metric)
        return {tuple(of[key] for key in keys if key in of): value for value, of in observed.read()}


def test_canaries_are_drawn_from_both_labels_and_judged_again(tmp_path: Path) -> None:
    """Identical calls too: the cache of judgements is not used."""
    judge = LabelFollowingJudge()
    watch_ = Watch(tmp_path, judge)
    asyncio.run(watch_.judge(100))
    assert len(judge.calls) == 100
    bad = sum((call.answer or "").startswith("bad") for call in judge.calls)
    assert 30 < bad < 70
    assert watch_.values(semconv.METRIC_CANARY_JUDGEMENTS) == {("bad", "agree"): bad, ("good", "agree"): 100 - bad}
    assert watch_.values(semconv.METRIC_CANARY_AGREEMENT) == {("bad",): 1.0, ("good",): 1.0}


def test_the_times_are_random_with_the_interval_as_mean(tmp_path: Path) -> None:
    """A tick begins at most one judgement, and only when one is due."""
    judge = LabelFollowingJudge()
    asyncio.run(Watch(tmp_path, judge).judge(2_000, seconds=1.0))
    assert 150 < len(judge.calls) < 250


def test_a_drift_is_told_once_and_so_is_its_end(tmp_path: Path) -> None:
    """To the log, the events and the notifiers of alerts; the gauge follows."""
    judge = LabelFollowingJudge()
    watch_ = Watch(tmp_path, judge)

    async def run() -> None:
        await watch_.judge(200)
        judge.blind = True
        await watch_.judge(100)
        assert watch_.values(semconv.METRIC_CANARY_DRIFT) == {(): 1.0}
        judge.blind = False
        await watch_.judge(400)

    asyncio.run(run())
    assert watch_.values(semconv.METRIC_CANARY_DRIFT) == {(): 0.0}
    assert watch_.told() == [("judge_drift", "firing"), ("judge_drift", "resolved")]
    firing = watch_.notices[0]
    assert (firing.canary_label, firing.evaluator, firing.before) == ("bad", "fake", 1.0)
    assert firing.title == "hallucinated is judged in agreement with human labels less often than before"
    assert "agreement on calls that people have labelled bad: 1.000 before, now 0." in firing.text
    assert "at most one in 10,000 canary judgements" in firing.text


def test_what_was_seen_is_kept_in_the_history(tmp_path: Path) -> None:
    """A later process goes on with it; with other canaries it begins anew."""
    store = tmp_path / "history.db"
    HistoryRecorder(str(store), CallOrigin()).prepare("store=")
    judge = LabelFollowingJudge()
    first = Watch(tmp_path, judge, store=store)

    async def run() -> None:
        await first.judge(61)
        judge.blind = True
        await first.judge(30)

    asyncio.run(run())
    assert first.told() == [("judge_drift", "firing")]
    second = Watch(tmp_path, judge, store=store)
    asyncio.run(second.judge(1))
    [found] = second.judging.agreements()
    assert found == first.judging.agreements()[0]
    assert found.fallen == "bad"
    other = Watch(tmp_path, judge, store=store, lines=rows(bad=20))
    asyncio.run(other.judge(1))
    assert other.judging.agreements()[0].fallen is None
    assert second.told() == other.told() == []


def test_processes_with_one_history_share_what_they_see(tmp_path: Path) -> None:
    """The judgements of all of them are one record."""
    store = tmp_path / "history.db"
    HistoryRecorder(str(store), CallOrigin()).prepare("store=")
    judge = LabelFollowingJudge()
    both = [Watch(tmp_path, judge, store=store) for _ in range(2)]

    async def run() -> None:
        for _ in range(10):
            for each in both:
                await each.judge(1)

    asyncio.run(run())
    [found] = both[1].judging.agreements()
    assert sum(found.judgements.values()) == len(judge.calls) == 18  # each process has begun with reading the history


def test_a_judgement_that_the_shutdown_cancels_is_counted(tmp_path: Path) -> None:
    """As failed."""

    async def run() -> Watch:
        judge = HoldingJudge()
        watch_ = Watch(tmp_path, judge, lines=rows(workflow="traffic"))
        watch_.clock.advance(100.0)
        watch_.judging.tick()
        for _ in range(10):
            await asyncio.sleep(0)
        await watch_.judging.aclose()
        return watch_

    counts = asyncio.run(run()).values(semconv.METRIC_CANARY_JUDGEMENTS)
    assert [(of[1:], count) for of, count in counts.items()] == [(("failed", "shutdown"), 1)]


def test_a_history_that_cannot_be_written_is_a_fault_and_no_judgement(tmp_path: Path) -> None:
    """Counted as such."""
    watch_ = Watch(tmp_path, LabelFollowingJudge(), store=tmp_path / "missing.db")
    asyncio.run(watch_.judge(3))
    counts = watch_.values(semconv.METRIC_CANARY_JUDGEMENTS)
    assert sum(count for of, count in counts.items() if of[-1] == "not_stored") == 2
    assert watch_.values(semconv.METRIC_CANARY_AGREEMENT) == {}
    assert "canaries: history" in faults.counts_here()
    faults.clear()


def test_canaries_take_a_fiftieth_of_the_budget(tmp_path: Path) -> None:
    """And are charged to it: the probabilities of calls fall accordingly."""
    judge = LabelFollowingJudge()
    watch_ = Watch(tmp_path, judge, sampling=Sampling(per_minute=60))
    asyncio.run(watch_.judge(5_000, seconds=1.0))
    assert 90 <= len(judge.calls) <= 101
    assert watch_.judging.postponed["budget"] > 0


class HoldingJudge(FakeJudge):
    """A judge that holds the calls of the traffic until the end of the test."""

    def __init__(self) -> None:
        super().__init__(GOOD)
        self.release = asyncio.Event()

    async def judge(self, call: RagCall) -> Judgement:
        if call.workflow == "traffic":
            await self.release.wait()
        return await super().judge(call)


def test_calls_go_first(tmp_path: Path) -> None:
    """No canary is judged while half of the judge's places are taken; it is put off and counted once."""

    async def run() -> Watch:
        judge = HoldingJudge()
        watch_ = Watch(tmp_path, judge, places=2)
        call = RagCall("where?", None, "Here.", workflow="traffic")
        traffic = asyncio.ensure_future(watch_.client.ask(call))
        for _ in range(10):
            await asyncio.sleep(0)
        watch_.clock.advance(100.0)
        for _ in range(3):
            watch_.judging.tick()
        await asyncio.sleep(0)
        assert judge.calls == []
        judge.release.set()
        await traffic
        await watch_.judge(1)
        assert len(judge.calls) == 2
        return watch_

    watch_ = asyncio.run(run())
    assert watch_.judging.postponed == {"busy": 1}


def test_a_failing_judge_says_nothing_about_its_agreement(tmp_path: Path) -> None:
    """Failures are counted by reason."""
    watch_ = Watch(tmp_path, FakeJudge(JudgeError("refused", retryable=False)))
    asyncio.run(watch_.judge(10))
    counts = watch_.values(semconv.METRIC_CANARY_JUDGEMENTS)
    assert {(of[1], of[2]) for of in counts} == {("failed", "refused")}
    assert watch_.values(semconv.METRIC_CANARY_AGREEMENT) == {}


# --- in a configured process -----------------------------------------------------------------------------------------


class Noting(LabelFollowingJudge):
    """A judge that says when it was asked about a canary."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_canary = threading.Event()

    async def judge(self, call: RagCall) -> Judgement:
        if (call.query or "").startswith("where? "):
            self.asked_canary.set()
        return await super().judge(call)


def test_canaries_are_no_part_of_the_traffic(tmp_path: Path) -> None:
    """Not of its calls, scores, moments or costs; `doctor` shows them apart."""
    path, judge = write(tmp_path / "canaries.jsonl", rows()), Noting()
    captured = watch(
        judge=judge,
        sampling=Sampling(rate=0.0),
        metrics=[METRIC],
        store=tmp_path / "history.db",
        alerts=[ragtrace.Canaries(path, interval=0.001)],
    )
    ask("who?")
    assert judge.asked_canary.wait(WAIT_S)
    assert ragtrace.flush(WAIT_S)
    runtime = current()
    assert runtime is not None
    assert runtime.parts.find(CanaryJudging) is not None
    metrics = captured.metrics()
    assert semconv.METRIC_CANARY_COST in metrics
    assert ragtrace.stats().evaluators["fake"].offered == 1
    assert ragtrace.stats().evaluators["fake"].scored == 0
    assert semconv.METRIC_SCORE not in metrics
    assert "Canaries" in str(ragtrace.doctor(probe=False))
    assert "15 labelled bad" in str(ragtrace.doctor(probe=False))
    assert ragtrace.shutdown(WAIT_S)


def test_a_ragtrace_that_is_switched_off_reads_no_canaries(tmp_path: Path) -> None:
    """As it reads no other file: the one that is named may not be there where it is off."""
    canaries = ragtrace.Canaries(tmp_path / "missing.jsonl")
    options: dict[str, Any] = {"judge": FakeJudge(GOOD), "alerts": [canaries], "exporter": "none"}
    ragtrace.configure(enabled=False, **options)
    with pytest.raises(SettingsError, match="missing"):
        ragtrace.configure(**options)


def test_canaries_need_a_judge(tmp_path: Path) -> None:
    """A clear error at the start."""
    path = write(tmp_path / "canaries.jsonl", rows())
    with pytest.raises(SettingsError, match="configure judge="):
        ragtrace.configure(exporter="none", alerts=[ragtrace.Canaries(path)])

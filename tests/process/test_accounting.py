"""The accounts balance at every moment, whatever calls, judges, flushes, forks and shutdowns do.

`offered = sampled_out + scored + partial + failed + dropped + pending`, in `ragtrace.stats()` and in the exported
counter; nothing is pending after a shutdown, and no call is scored twice. What happens is drawn at random.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import ragtrace
from ragtrace.core.errors import JudgeError
from ragtrace.core.ledger import Stats
from ragtrace.core.types import EvaluatorType, Judgement, Metric, RagCall, Signals
from ragtrace.system.faults import faults
from ragtrace.testing import Captured
from tests.support.monitoring import wait_until
from tests.support.watched import CLAIMS, GOOD, WAIT_S, limited

ROOT: Final = Path(__file__).parents[2]
Behaviour: TypeAlias = Literal[
    "fast", "slow", "hanging", "busy", "refusing", "down", "garbage", "lying", "raising", "exiting", "application fails"
]
Act: TypeAlias = Literal["observe", "flush", "hasty flush", "pause"]
Step: TypeAlias = "Behaviour | Act"
BEHAVIOURS: Final = cast("tuple[Behaviour, ...]", get_args(Behaviour))
ACTS: Final = cast("tuple[Act, ...]", get_args(Act))

_ERRORS: Final[Mapping[str, BaseException]] = {
    "busy": JudgeError("unavailable", "429", retry_after=0.01),
    "refusing": JudgeError("refused"),
    "down": ConnectionRefusedError("nobody listens"),
    "raising": LookupError("a bug of the judge"),
    "exiting": SystemExit(3),
}
_LIES: Final = Judgement(claims=CLAIMS[:1], answer_label="answered", consistency=7.5)
"""A consistency above one: some of the metrics are computed from it, some not."""


class ScriptedJudge:
    """Behaves as the question says: `fast 7` is the seventh call, to be judged at once."""

    version = "1"
    type: EvaluatorType = "llm_judge"

    def __init__(self, name: str) -> None:
        self.id = name

    def offers(self, metric: Metric) -> bool:
        return True

    async def judge(self, call: RagCall) -> Judgement:
        behaviour = (call.query or "").rpartition(" ")[0]
        if behaviour in _ERRORS:
            raise _ERRORS[behaviour]
        if behaviour in ("slow", "hanging"):
            await asyncio.sleep(0.01 if behaviour == "slow" else 60.0)
        if behaviour == "garbage":
            return cast("Judgement", {"claims": "none"})
        return _LIES if behaviour == "lying" else GOOD


@ragtrace.trace(name="guide")
def ask(question: str) -> str:
    """One call; it fails if the question says so."""
    search(question)
    if question.startswith("application fails"):
        raise ValueError(question)
    return answer(question)


@ragtrace.retrieve
def search(query: str) -> list[str]:
    return ["Paris is big."]


@ragtrace.generate
def answer(question: str) -> str:
    return "Paris is big."


def act(step: Step, number: int) -> None:
    """Do one thing that an application does."""
    match step:
        case "observe":
            assert_balanced(ragtrace.stats())
        case "flush":
            ragtrace.flush(0.2)
        case "hasty flush":
            ragtrace.flush(0.0)
        case "pause":
            threading.Event().wait(0.005)
        case _:
            with suppress(ValueError):
                ask(f"{step} {number}")


def assert_balanced(stats: Stats) -> None:
    for name, tally in stats.evaluators.items():
        assert tally.offered == tally.settled + tally.pending, (name, tally)
        assert tally.pending >= 0
    settled = (
        stats.scored
        + stats.partial
        + sum(sum(reasons.values()) for reasons in (stats.sampled_out, stats.failed, stats.dropped))
    )
    assert stats.offered == settled + stats.pending


def exported(captured: Captured) -> dict[str, Counter[str]]:
    """The exported counter: calls by outcome, for each evaluator."""
    books: defaultdict[str, Counter[str]] = defaultdict(Counter)
    data: Any = captured.metrics().get("ragtrace.calls")
    for point in data.data_points if data is not None else ():
        attributes = point.attributes
        books[attributes["ragtrace.evaluator.id"]][attributes["ragtrace.outcome"]] += point.value
    return dict(books)


def outcomes(stats: Stats) -> dict[str, Counter[str]]:
    """The same from the accounts."""
    return {
        name: +Counter(
            offered=tally.offered,
            sampled_out=sum(tally.sampled_out.values()),
            scored=tally.scored,
            partial=tally.partial,
            failed=sum(tally.failed.values()),
            dropped=sum(tally.dropped.values()),
        )
        for name, tally in stats.evaluators.items()
    }


@contextmanager
def watching(captured: Captured) -> Iterator[None]:
    """Look at the accounts from another thread all the time, both ways."""
    over, wrong = threading.Event(), list[AssertionError]()

    def look() -> None:
        assert_balanced(ragtrace.stats())
        for counts in exported(captured).values():
            pending = 2 * counts["offered"] - counts.total()
            assert 0 <= pending <= counts["offered"], counts

    def watch() -> None:
        try:
            while not over.wait(0.001):
                look()
        except AssertionError as error:
            wrong.append(error)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(WAIT_S)
    if wrong:
        raise wrong[0]


def assert_scored_once(records: Sequence[Any], *, complete: bool) -> None:
    """One event at most for a span, metric and evaluator; events of the calls that were judged, and of no others.

    Not *complete*: what a shutdown without patience interrupted may have been judged without having been told of.
    """
    events = [dict(event.log_record.attributes or {}) | {"span": event.log_record.span_id} for event in records]
    seen = Counter((event["span"], event["ragtrace.evaluator.id"], event["gen_ai.evaluation.name"]) for event in events)
    assert set(seen.values()) <= {1}
    for name, tally in ragtrace.stats().evaluators.items():
        judged = {span for span, evaluator, _ in seen if evaluator == name}
        told = tally.scored + tally.partial + sum(tally.failed.values())
        assert len(judged) == told if complete else len(judged) <= told, (name, tally)


def assert_closed(calls: int, evaluators: int) -> None:
    """After a shutdown: every call was offered to every evaluator, and none is pending.

    Where the machine stands still for a second, a shutdown returns before its thread has counted the last calls.
    """
    wait_until(lambda: ragtrace.stats().pending == 0, WAIT_S, "no call is pending")
    stats = ragtrace.stats()
    assert_balanced(stats)
    assert (stats.offered, stats.pending) == (calls * evaluators, 0)


@given(
    steps=st.lists(st.sampled_from((*BEHAVIOURS, *ACTS)), min_size=5, max_size=40),
    rate=st.sampled_from([0.0, 0.5, 1.0]),
    screen=st.sampled_from(["embedded", "scripted", None]),
    capacity=st.sampled_from([1, 3, 1000]),
    patience=st.sampled_from([0.0, 0.05, 0.5]),
)
# A thread that an example left behind may use the generator while hypothesis draws, which blames its strategy for it.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)
def test_the_accounts_balance_at_every_moment(
    steps: Sequence[Step], rate: float, screen: str | None, capacity: int, patience: float
) -> None:
    """Seen by the application between its calls, by another thread at any time, and by the backend."""
    faults.clear()
    captured = Captured()
    more: dict[str, Any] = {} if screen == "embedded" else {"screen": screen and ScriptedJudge("screen")}
    ragtrace.configure(
        exporter=captured.signals,
        judge=limited(ScriptedJudge("judge"), timeout=0.1, concurrency=2),
        sampling=ragtrace.Sampling(rate=rate),
        limits=ragtrace.Limits(capacity=capacity, hold_seconds=0.2),
        **more,
    )
    with watching(captured):
        for number, step in enumerate(steps):
            act(step, number)
        complete = ragtrace.shutdown(patience)
    calls = sum(step in BEHAVIOURS for step in steps)
    assert_closed(calls, 1 if screen is None else 2)
    assert_scored_once(captured.events, complete=complete)
    assert len({span.context.span_id for span in captured.spans if span.context}) == len(captured.spans)


def test_the_exported_counter_says_what_the_accounts_say() -> None:
    """Outcome by outcome and evaluator by evaluator, when all is quiet."""
    captured = Captured()
    ragtrace.configure(
        exporter=captured.signals,
        judge=limited(ScriptedJudge("judge"), timeout=0.05),
        sampling=ragtrace.Sampling(rate=0.5),
    )
    for number, behaviour in enumerate(BEHAVIOURS * 3):
        act(behaviour, number)
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().pending == 0
    assert exported(captured) == outcomes(ragtrace.stats())
    assert ragtrace.stats().offered == 2 * 3 * len(BEHAVIOURS)


def test_many_threads_lose_no_call() -> None:
    """The accounts are exact under contention, with a queue that is often full."""
    captured = Captured()
    ragtrace.configure(
        exporter=captured.signals,
        judge=limited(ScriptedJudge("judge"), timeout=0.05),
        sampling=ragtrace.Sampling(rate=1.0),
        limits=ragtrace.Limits(capacity=5),
    )

    def work(thread: int) -> None:
        draw = random.Random(thread)
        for number in range(50):
            act(draw.choice(("fast", "fast", "slow", "raising")), 1000 * thread + number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    with watching(captured):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert ragtrace.flush(WAIT_S)
        ragtrace.shutdown()
    assert_closed(200, 2)
    assert_scored_once(captured.events, complete=True)


# --- forks -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("seed", range(3))
def test_every_process_of_a_tree_keeps_its_own_accounts(seed: int) -> None:
    """A child begins with none of its parent's calls, and both balance; what each made is offered in it alone."""
    done = subprocess.run(
        [sys.executable, "-c", f"from tests.process.test_accounting import grow; grow({seed})"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(reports) > 1
    for report in reports:
        assert report["offered"] == 2 * report["calls"], report
        assert report["pending"] == 0, report


class Kept:
    """An exporter of spans or events without a lock, which a fork could copy in a locked state."""

    def __init__(self, success: object) -> None:
        self.items: list[Any] = []
        self._success = success

    def export(self, batch: Sequence[Any]) -> Any:
        self.items += batch
        return self._success

    def shutdown(self) -> None:
        pass


def grow(seed: int) -> None:
    """Random steps in this process and in children forked between them; each process prints its closed accounts."""
    draw, spans, events = random.Random(seed), Kept(SpanExportResult.SUCCESS), Kept(LogRecordExportResult.SUCCESS)
    ragtrace.configure(
        exporter=Signals(spans=cast("SpanExporter", spans), logs=events, immediate=True),
        judge=limited(ScriptedJudge("judge"), timeout=0.05),
        sampling=ragtrace.Sampling(rate=0.7),
    )
    logging.disable()  # the judges' failures are meant to happen
    calls = depth = 0
    for number in range(50):
        step: Step | Literal["fork"] = draw.choice((*BEHAVIOURS, *ACTS, "fork"))
        if step != "fork":
            act(step, number)
            calls += step in BEHAVIOURS
        elif depth < 2 and os.fork() == 0:
            calls, depth, draw = 0, depth + 1, random.Random(number)
            events.items.clear()
    complete = ragtrace.shutdown(draw.choice((0.0, 0.1, 1.0)))
    assert_scored_once(events.items, complete=complete)
    stats = ragtrace.stats()
    assert_balanced(stats)
    os.write(1, (json.dumps({"calls": calls, "offered": stats.offered, "pending": stats.pending}) + "\n").encode())
    with suppress(ChildProcessError):
        while True:
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 0

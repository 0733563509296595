"""Calls that were not scored before the end are scored by the next process, at least once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.errors import JudgeError
from ragtrace.core.unscored_call import decode
from ragtrace.fleet.elsewhere import OtherProcesses
from ragtrace.fleet.spool import Spool
from ragtrace.runtime import current
from ragtrace.system.faults import faults
from ragtrace.telemetry.spans.hold import without_releasing_held
from ragtrace.testing import Captured, FakeJudge
from tests.support.otlp import HttpReceiver
from tests.support.scored import EVERY
from tests.support.watched import GOOD, HALF, WAIT_S, WaitingJudge, ask, eventually, watch

ROOT = Path(__file__).parents[2]
SCORE_ID = "ragtrace.eval.score_id"
SHUTDOWN_S = 4.0
"""Seconds of a shutdown while a judge does not answer: a part of them is for storing calls, also on a busy machine."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    faults.clear()
    return str(tmp_path / "calls.db")


def screen() -> FakeJudge:
    return FakeJudge(HALF, name="screen")


def left_by_a_process(path: str, calls: int = 1, **settings: Any) -> Captured:
    """What a process sent whose judge did not answer before the end."""
    judge = WaitingJudge(name="judge")
    captured = watch(
        screen=screen(),
        judge=judge,
        sampling=EVERY,
        limits=ragtrace.Limits(spool=path),
        metrics=["faithfulness"],
        **settings,
    )
    for number in range(calls):
        ask(f"question {number}?")
    assert eventually(lambda: judge.asked == calls)
    assert not ragtrace.shutdown(timeout=SHUTDOWN_S)
    return captured


def judged(captured: Captured, judge: str = "judge") -> list[dict[str, Any]]:
    events = [(event.log_record, dict(event.log_record.attributes or {})) for event in captured.events]
    return [
        {"span": record.span_id, "trace": record.trace_id, **attributes}
        for record, attributes in events
        if attributes["ragtrace.evaluator.id"] == judge
    ]


def roots(captured: Captured) -> list[int]:
    return [span.context.span_id for span in captured.spans if span.name == "invoke_workflow guide" and span.context]


def contents(path: str) -> int:
    return Spool(path).contents().calls


# --- into the file ---------------------------------------------------------------------------------------------------


def test_what_the_judge_had_in_hand_is_kept(path: str) -> None:
    """It is settled as spooled, the screen's scores have gone out, and the span says that more will follow."""
    captured = left_by_a_process(path, 3)
    tallies = ragtrace.stats().evaluators
    assert (tallies["judge"].dropped, tallies["judge"].pending, tallies["judge"].offered) == ({"spooled": 3}, 0, 3)
    assert (tallies["screen"].scored, tallies["screen"].dropped) == (3, {})
    assert [dict(span.attributes or {})["ragtrace.eval.status"] for span in captured.roots()] == ["deferred"] * 3
    assert len(judged(captured, "screen")) == 3
    assert contents(path) == 3


def test_what_nobody_had_begun_is_kept_too(path: str) -> None:
    """A screen that blocks the background leaves a queue behind; all of it is kept, redacted."""
    blocking = WaitingJudge(name="screen", blocking=True)
    captured = watch(screen=blocking, limits=ragtrace.Limits(spool=path), redact=ragtrace.Redact(patterns=["secret"]))
    ask("secret 0?")
    assert blocking.begun.wait(WAIT_S)
    for number in range(1, 5):
        ask(f"secret {number}?")
    ragtrace.shutdown(timeout=SHUTDOWN_S)
    blocking.open()
    assert ragtrace.stats().dropped == {"spooled": 5}
    with sqlite3.connect(path) as database:
        bodies = [decode(body) for (body,) in database.execute("SELECT body FROM calls")]
    database.close()
    assert sorted(str(kept.call.query)[-3:] for kept in bodies) == [f" {number}?" for number in range(5)]
    assert not any("secret" in str(kept.call) for kept in bodies)
    assert all(kept.pending_evaluators == ("screen",) and len(kept.call.contexts or ()) == 2 for kept in bodies)
    spans = [dict(span.attributes or {}) for span in captured.roots()]
    assert [span["ragtrace.eval.status"] for span in spans] == ["deferred"] * 5
    assert all("gen_ai.output.messages" in span for span in spans)
    assert "dropped: spooled" not in faults.counts()


def test_without_a_spool_they_are_lost_as_before(tmp_path: Path) -> None:
    """Nothing is written anywhere."""
    judge = WaitingJudge(name="judge")
    watch(screen=None, judge=judge, sampling=EVERY)
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    ragtrace.shutdown(timeout=SHUTDOWN_S)
    assert ragtrace.stats().dropped == {"shutdown": 1}
    assert os.listdir(tmp_path) == []


def _refuse_mars(text: str) -> str:
    if "Mars" in text and "where" not in text:
        raise ValueError("not this text")
    return text


def test_what_nobody_would_score_is_not_kept(path: str) -> None:
    """A call that failed before it had an answer is sampled out, not spooled, as its span says."""
    blocking = WaitingJudge(name="screen", blocking=True)
    captured = watch(screen=blocking, limits=ragtrace.Limits(spool=path))
    ask("where?")
    assert blocking.begun.wait(WAIT_S)

    @ragtrace.trace
    def broken(question: str) -> str:
        raise LookupError(question)

    with pytest.raises(LookupError):
        broken("where?")
    ragtrace.shutdown(timeout=SHUTDOWN_S)
    blocking.open()
    stats = ragtrace.stats()
    assert (stats.dropped, stats.sampled_out, contents(path)) == ({"spooled": 1}, {"call_failed": 1}, 1)
    assert _statuses(captured) == {"guide": ("deferred", None), "broken": ("call_failed", None)}


def test_what_could_not_be_redacted_is_not_kept(path: str) -> None:
    """It has failed, as its span says."""
    blocking = WaitingJudge(name="screen", blocking=True)
    redact = ragtrace.Redact(function=_refuse_mars)
    captured = watch(screen=blocking, limits=ragtrace.Limits(spool=path), redact=redact)

    @ragtrace.trace
    def plain(question: str) -> str:
        return "In France."

    @ragtrace.trace
    def secret(question: str) -> str:
        return "On Mars."

    plain("where?")
    assert blocking.begun.wait(WAIT_S)
    secret("where?")
    ragtrace.shutdown(timeout=SHUTDOWN_S)
    blocking.open()
    stats = ragtrace.stats()
    assert (stats.dropped, stats.failed, contents(path)) == ({"spooled": 1}, {"redaction": 1}, 1)
    assert _statuses(captured)["secret"] == ("error", "redaction")


def _statuses(captured: Captured) -> dict[str, tuple[object, object]]:
    """Return status and reason of each call, by the name of its span."""
    roots = {span.name.split()[-1]: span.attributes or {} for span in captured.roots()}
    return {name: (found.get(semconv.EVAL_STATUS), found.get(semconv.REASON)) for name, found in roots.items()}


def test_a_file_that_fails_later_costs_the_calls_and_nothing_else(path: str) -> None:
    """They are counted, the failure is too, and nothing raises."""
    judge = WaitingJudge(name="judge")
    watch(screen=None, judge=judge, sampling=EVERY, limits=ragtrace.Limits(spool=path))
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    other = Path(f"{path}.other")
    other.write_bytes(b"no database any more" * 100)
    os.replace(other, path)  # at once: a file that is missing for a moment would be made anew
    for name in (f"{path}-wal", f"{path}-shm"):
        if os.path.exists(name):
            os.remove(name)
    ragtrace.shutdown(timeout=SHUTDOWN_S)
    assert ragtrace.stats().dropped == {"not_spooled": 1}
    assert faults.counts()["spool"] >= 1


def test_a_path_that_cannot_be_used_stops_configure(tmp_path: Path) -> None:
    """Before anything is started."""
    with pytest.raises(ragtrace.SettingsError, match=r"Limits\(spool=\)"):
        ragtrace.configure(limits=ragtrace.Limits(spool=tmp_path / "no" / "such" / "directory.db"))
    assert current() is None


# --- out of the file -------------------------------------------------------------------------------------------------


def test_the_next_process_scores_what_is_left(path: str) -> None:
    """By those who had not looked, on the span of the process before, with the same score ids as it would have had."""
    before = left_by_a_process(path, 3)
    judge = FakeJudge(GOOD, name="judge")
    captured = watch(
        screen=screen(), judge=judge, sampling=EVERY, limits=ragtrace.Limits(spool=path), metrics=["faithfulness"]
    )
    assert ragtrace.flush()
    events = judged(captured)
    assert sorted(event["span"] for event in events) == sorted(roots(before))
    assert {event["gen_ai.evaluation.score.value"] for event in events} == {1.0}
    assert len({event[SCORE_ID] for event in events}) == 3
    assert judged(captured, "screen") == []
    carriers = [span for span in captured.spans if span.name == "evaluate guide"]
    assert sorted(link.context.span_id for span in carriers for link in span.links) == sorted(roots(before))
    assert contents(path) == 0
    tally = ragtrace.stats().evaluators["judge"]
    assert (tally.offered, tally.scored, tally.pending) == (3, 3, 0)
    assert "screen" not in ragtrace.stats().evaluators


def test_a_process_that_is_watched_again_scores_it_without_a_flush(path: str) -> None:
    """Its own first call is enough to start the background."""
    left_by_a_process(path)
    judge = FakeJudge(GOOD, name="judge")
    captured = watch(
        screen=None, judge=judge, sampling=EVERY, limits=ragtrace.Limits(spool=path), metrics=["faithfulness"]
    )
    ask("mine")
    assert eventually(lambda: contents(path) == 0)
    assert len(judged(captured)) == 2


def test_the_probability_of_before_holds(path: str) -> None:
    """The call was drawn at 100 %; that the next process samples at 1 % changes nothing."""
    left_by_a_process(path)
    captured = watch(
        screen=None,
        judge=FakeJudge(GOOD, name="judge"),
        sampling=ragtrace.Sampling(rate=0.01),
        limits=ragtrace.Limits(spool=path),
        metrics=["faithfulness"],
    )
    assert ragtrace.flush()
    assert [event["ragtrace.eval.probability"] for event in judged(captured)] == [1.0]


def test_an_evaluator_that_is_gone_is_counted(path: str) -> None:
    """Nobody will ever score the call for it; it does not stay in the file."""
    left_by_a_process(path)
    watch(screen=screen(), limits=ragtrace.Limits(spool=path))
    assert ragtrace.flush()
    assert ragtrace.stats().evaluators["judge"].dropped == {"not_configured": 1}
    assert contents(path) == 0


def test_a_judge_that_fails_again_has_had_its_chance(path: str) -> None:
    """Failed is an outcome: the call does not come back for ever."""
    left_by_a_process(path)
    watch(
        screen=None, judge=FakeJudge(JudgeError("refused", "policy"), name="judge"), limits=ragtrace.Limits(spool=path)
    )
    assert ragtrace.flush()
    assert ragtrace.stats().evaluators["judge"].failed == {"refused": 1}
    assert contents(path) == 0


@pytest.mark.timing
def test_what_is_broken_off_again_is_kept_again(path: str) -> None:
    """Through as many processes as it takes; then it is scored once."""
    before = left_by_a_process(path, 2)
    for _ in range(3):
        judge = WaitingJudge(name="judge")
        watch(screen=screen(), judge=judge, limits=ragtrace.Limits(spool=path), metrics=["faithfulness"])
        assert not ragtrace.flush(timeout=0.3)
        assert judge.begun.wait(WAIT_S)
        ragtrace.shutdown(timeout=SHUTDOWN_S)
        assert ragtrace.stats().dropped == {"spooled": 2}
    captured = watch(
        screen=screen(),
        judge=FakeJudge(GOOD, name="judge"),
        limits=ragtrace.Limits(spool=path),
        metrics=["faithfulness"],
    )
    assert ragtrace.flush()
    assert sorted(event["span"] for event in judged(captured)) == sorted(roots(before))


class Lossy(Captured):
    """Events in memory, and spans that an exporter fails to deliver."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = True

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return not self.failing


def test_what_is_scored_but_not_delivered_stays_in_the_file(path: str) -> None:
    """Until a flush goes well; only then is the call forgotten."""
    left_by_a_process(path)
    lossy = Lossy()
    ragtrace.configure(
        exporter=lossy.signals,
        screen=None,
        judge=FakeJudge(GOOD, name="judge"),
        limits=ragtrace.Limits(spool=path),
        metrics=["faithfulness"],
    )
    runtime = current()
    assert runtime is not None
    runtime.telemetry.flushes.append(lossy.force_flush)
    assert not ragtrace.flush()
    assert (len(judged(lossy)), contents(path)) == (1, 1)
    lossy.failing = False
    assert ragtrace.flush()
    assert (len(judged(lossy)), contents(path)) == (1, 0)


def test_delivering_old_scores_does_not_let_go_of_spans_that_wait_for_theirs() -> None:
    """An ordinary flush does: the application asked for it."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    hold = ragtrace.HoldProcessor(SimpleSpanProcessor(exporter))
    provider.add_span_processor(hold)
    span = provider.get_tracer("test").start_span("root")
    hold.hold_on_end(span.get_span_context().span_id)
    span.end()
    with without_releasing_held():
        assert provider.force_flush()
    assert (hold.held_count, len(exporter.get_finished_spans())) == (1, 0)
    provider.force_flush()
    assert (hold.held_count, len(exporter.get_finished_spans())) == (0, 1)
    provider.shutdown()


# --- real processes --------------------------------------------------------------------------------------------------

LEAVE = """
import sys
import ragtrace
from tests.support.watched import WAIT_S, WaitingJudge, ask
judge = WaitingJudge(name="judge")
ragtrace.configure(
    service="s", screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0), metrics=["faithfulness"]
)
for number in range(int(sys.argv[1])):
    ask(f"question {number}?")
assert judge.begun.wait(WAIT_S)
ragtrace.shutdown(timeout=2.0)
sys.exit(3)
"""
SCORE = """
import sys, time
import ragtrace
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD, ask

class Judge(FakeJudge):
    asked = 0

    async def judge(self, call):
        import asyncio
        Judge.asked += 1
        if Judge.asked > int(sys.argv[1]):
            print("stuck", flush=True)
            await asyncio.sleep(60)
        return await super().judge(call)

ragtrace.configure(
    service="s",
    screen=None,
    judge=Judge(GOOD, name="judge", limits=ragtrace.JudgeLimits(concurrency=1)),
    sampling=ragtrace.Sampling(rate=1.0),
    metrics=["faithfulness"],
)
print("ready", flush=True)
sys.stdin.readline()
done = ragtrace.flush(timeout=30)
print("done" if done else "undone", flush=True)
"""


def start(program: str, *args: str, environ: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *args],
        cwd=ROOT,
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def environ(path: str, http_receiver: HttpReceiver) -> dict[str, str]:
    return {**http_receiver.environ, "RAGTRACE_SPOOL": path, "OTEL_BLRP_SCHEDULE_DELAY": "100"}


def leave(calls: int, environ: dict[str, str]) -> None:
    """A process whose judge hangs; its exit code is its own."""
    process = start(LEAVE, str(calls), environ=environ)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 3, errors


def scores(receiver: HttpReceiver) -> Counter[str]:
    return Counter(str(log.attributes[SCORE_ID]) for log in receiver.logs)


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_process_leaves_and_the_next_scores(http_receiver: HttpReceiver, environ: dict[str, str], path: str) -> None:
    """Over a real backend: every span has its score, once."""
    leave(5, environ)
    assert scores(http_receiver) == {}
    process = start(SCORE, "99", environ=environ)
    output, errors = process.communicate("\n", timeout=240)
    assert (output.split(), errors) == (["ready", "done"], "")
    assert list(scores(http_receiver).values()) == [1] * 5
    spans = {span.span_id for span in http_receiver.spans if span.name == "invoke_workflow guide"}
    assert {log.span_id for log in http_receiver.logs} == spans
    assert contents(path) == 0


def test_two_processes_at_once_score_each_call_once(
    http_receiver: HttpReceiver, environ: dict[str, str], path: str
) -> None:
    """They share the file; nobody waits for the other."""
    leave(40, environ)
    processes = [start(SCORE, "99", environ=environ) for _ in range(2)]
    assert [line(process) for process in processes] == ["ready", "ready"]
    for process in processes:
        go(process)
    assert [line(process) for process in processes] == ["done", "done"]
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert errors == ""
    assert list(scores(http_receiver).values()) == [1] * 40
    assert contents(path) == 0


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_a_kill_in_the_middle_loses_nothing(http_receiver: HttpReceiver, environ: dict[str, str], path: str) -> None:
    """What it had delivered stays scored; what it had claimed and not scored is taken up by the next."""
    leave(6, environ)
    victim = start(SCORE, "2", environ=environ)
    assert line(victim) == "ready"
    go(victim)
    assert line(victim) == "stuck"  # at the third; two are scored
    http_receiver.wait_for(lambda got: len(got.logs) == 2)
    assert eventually(lambda: contents(path) == 4)  # what was delivered is taken out of the file a moment later
    victim.send_signal(signal.SIGKILL)
    victim.communicate(timeout=10)
    assert contents(path) == 4
    heir = start(SCORE, "99", environ=environ)
    output, errors = heir.communicate("\n", timeout=240)
    assert (output.split(), errors) == (["ready", "done"], "")
    assert list(scores(http_receiver).values()) == [1] * 6
    assert contents(path) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 on: a fork beside other threads
def test_a_forked_child_takes_up_none_of_its_parents_claims(path: str) -> None:
    """Each of them scores what it has claimed itself."""
    left_by_a_process(path, 2)
    judge = WaitingJudge(name="judge")
    watch(screen=None, judge=judge, limits=ragtrace.Limits(spool=path), metrics=["faithfulness"])
    assert not ragtrace.flush(timeout=0.3)
    assert eventually(lambda: judge.asked == 2)  # both are claimed
    runtime = current()
    assert runtime is not None
    child = os.fork()
    if child == 0:
        try:
            elsewhere = getattr(current(), "elsewhere", None)
            assert isinstance(elsewhere, OtherProcesses)
            assert elsewhere.spooling is not None
            with elsewhere.spooling.claim(9) as claimed:
                os._exit(len(claimed))
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    judge.open()
    assert ragtrace.flush()
    assert contents(path) == 0

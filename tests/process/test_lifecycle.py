"""How ragtrace starts again, forks and ends: what was asked for is drained, what is lost is said, nothing hangs."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import ragtrace
from ragtrace.core.types import Signals
from ragtrace.runtime import current
from ragtrace.system.faults import faults
from ragtrace.testing import Captured, FakeJudge
from tests.support.otlp import HttpReceiver
from tests.support.watched import ANSWER, GOOD, WAIT_S, WaitingJudge, ask, eventually, limited, watch

ROOT = Path(__file__).parents[2]
STATUS = "ragtrace.eval.status"
EVERY = ragtrace.Sampling(rate=1.0)


@pytest.fixture(autouse=True)
def _no_faults_before() -> None:
    faults.clear()


def run(program: str, *args: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run *program* in a fresh interpreter, with the warnings that matter as errors."""
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env={**os.environ, **(environ or {})},
    )


def statuses(receiver: HttpReceiver) -> list[str]:
    return [span.attributes[STATUS] for span in receiver.spans if STATUS in span.attributes]


# --- at exit ---------------------------------------------------------------------------------------------------------

EXITS = {
    "the end of the program": ("", 0, ""),
    "sys.exit": ("sys.exit(3)", 3, ""),
    "an uncaught exception": ("raise LookupError('mine')", 1, "LookupError: mine"),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT)", -2, "KeyboardInterrupt"),
}


@pytest.mark.parametrize(("ending", "code", "said"), EXITS.values(), ids=EXITS.keys())
def test_at_exit_everything_is_drained_and_the_exit_is_the_programs(
    http_receiver: HttpReceiver, ending: str, code: int, said: str
) -> None:
    """No flush is needed; code and output are those of the program."""
    program = f"""
import os, signal, sys
import ragtrace
from tests.support.watched import ask
ragtrace.configure(service="s", metrics=["consistency"])
for _ in range(3):
    ask("where?")
{ending}
"""
    done = run(program, environ=http_receiver.environ)
    assert done.returncode == code
    assert done.stdout == ""
    assert (said in done.stderr) if said else done.stderr == ""
    assert statuses(http_receiver) == ["ok"] * 3
    assert len(http_receiver.spans) == 9
    assert len(http_receiver.logs) == 3
    assert "ragtrace.eval.score" in http_receiver.latest_metrics()


def test_a_backend_that_is_down_does_not_hold_up_the_exit() -> None:
    """It takes seconds at most, and the exit code is kept; what the imports take is not counted."""
    program = """
import atexit, sys, time
began = []
atexit.register(lambda: print(time.perf_counter() - began[0], flush=True))  # the first to be registered runs last
import ragtrace
from tests.support.watched import ask
ragtrace.configure(service="s")
ask("where?")
began.append(time.perf_counter())
sys.exit(7)
"""
    done = run(program, environ={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert done.returncode == 7
    assert float(done.stdout) < 25


def test_a_call_made_while_the_interpreter_exits_still_works(http_receiver: HttpReceiver) -> None:
    """Its answer is the application's; its span is not lost, and says that nobody scored it."""
    program = """
import atexit, sys
import ragtrace
from tests.support.watched import ask
atexit.register(lambda: sys.stdout.write(ask("late")))
ragtrace.configure(service="s")
ask("where?")
"""
    done = run(program, environ=http_receiver.environ)
    assert (done.returncode, done.stdout) == (0, ANSWER)
    assert statuses(http_receiver)[0] == "ok"


# --- fork ------------------------------------------------------------------------------------------------------------

FORK = """
import multiprocessing, os, sys, warnings
import ragtrace
from tests.support.watched import GOOD, WAIT_S, WaitingJudge, ask

judge = WaitingJudge(GOOD)
ragtrace.configure(service="s", screen=judge)
ask("parent, pending at the fork")
assert judge.begun.wait(WAIT_S)

def child(number):
    judge.open()
    ask("child")

if sys.argv[1] == "os.fork":
    for number in range(2):
        if os.fork() == 0:
            child(number)
            sys.exit(5)
    codes = sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2))
else:
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=child, args=(number,)) for number in range(2)]
    for process in children:
        process.start()
    for process in children:
        process.join()
    codes = [process.exitcode for process in children]
judge.open()
ask("parent, after the fork")
print(codes)
"""


@pytest.mark.parametrize(("how", "codes"), [("os.fork", "[5, 5]"), ("multiprocessing", "[0, 0]")])
def test_a_forked_child_scores_its_own_calls_and_none_of_its_parents(
    http_receiver: HttpReceiver, how: str, codes: str
) -> None:
    """Each call is exported once, by the process that made it, and scored."""
    done = run(FORK, how, environ=http_receiver.environ)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, codes, "")
    questions = [
        span.attributes["gen_ai.input.messages"].split('"content":"')[1].split('"')[0]
        for span in http_receiver.spans
        if span.name.startswith("invoke_workflow")
    ]
    assert sorted(questions) == ["child", "child", "parent, after the fork", "parent, pending at the fork"]
    assert statuses(http_receiver) == ["ok"] * 4
    assert len({(span.trace_id, span.span_id) for span in http_receiver.spans}) == len(http_receiver.spans) == 12


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_a_child_of_multiprocessing_that_configures_itself_is_drained_too(
    http_receiver: HttpReceiver, how: str, tmp_path: Path
) -> None:
    """In every way of starting one: most of them end past `atexit`."""
    program = tmp_path / "program.py"
    program.write_text(f"""
import multiprocessing
import ragtrace

def child():
    ragtrace.configure(service="s")
    with ragtrace.call("where?") as call:
        call.answered("there")

if __name__ == "__main__":
    process = multiprocessing.get_context({how!r}).Process(target=child)
    process.start()
    process.join()
    raise SystemExit(process.exitcode)
""")
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, **http_receiver.environ},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(statuses(http_receiver)) == 1


POOL = """
import multiprocessing
import sys
import ragtrace
from tests.support.watched import ask

def work(number):
    ask(f"of the pool {number}")
    if sys.argv[1] == "flush":
        ragtrace.flush()

ragtrace.configure(service="s")
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map(work, range(6))
    if sys.argv[1] == "join":
        pool.close()
        pool.join()
"""


@pytest.mark.parametrize("how", ["join", "flush"])
def test_a_pool_that_is_closed_and_joined_or_flushed_loses_no_call(http_receiver: HttpReceiver, how: str) -> None:
    """At the end of its `with` block it kills its children: what they have not sent by then is lost."""
    done = run(POOL, how, environ=http_receiver.environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert statuses(http_receiver) == ["ok"] * 6


def test_a_server_that_configures_before_it_forks_needs_no_thread_before() -> None:
    """Pre-forking servers work: the parent has none of our background threads when it forks."""
    program = """
import threading
import ragtrace
ragtrace.configure(service="s", exporter="none")
print([thread.name for thread in threading.enumerate()])
"""
    assert run(program).stdout.strip() == "['MainThread']"


# --- flush and shutdown ----------------------------------------------------------------------------------------------


def test_flush_keeps_to_its_time_when_the_judge_hangs() -> None:
    """And says that it is not done; the screen's scores have gone out."""
    judge = WaitingJudge()
    captured = watch(judge=judge, sampling=EVERY)
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    began = perf_counter()
    assert not ragtrace.flush(0.2)
    assert perf_counter() - began < WAIT_S / 2
    assert eventually(lambda: bool(captured.roots()))
    assert (captured.root().attributes or {})[STATUS] == "late"
    assert "ragtrace.eval.consistency.score" in (captured.root().attributes or {})
    judge.open()
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().pending == 0


def test_flush_without_configure_is_done_at_once() -> None:
    """There is nothing to flush."""
    assert current() is None
    assert ragtrace.flush(0.0)


def test_shutdown_drains_what_it_can() -> None:
    """And then has nothing to report."""
    captured = watch()
    for _ in range(20):
        ask("where?")
    assert ragtrace.shutdown(WAIT_S)
    assert len(captured.roots()) == 20
    stats = ragtrace.stats()
    assert (stats.offered, stats.scored, stats.pending, stats.dropped) == (20, 20, 0, {})


def test_shutdown_says_what_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    """By reason, in the log and in the accounts, which close with nothing pending; the spans are not lost."""
    judge = WaitingJudge()
    captured = watch(judge=limited(judge, concurrency=1), sampling=EVERY)
    for _ in range(3):
        ask("where?")
    assert judge.begun.wait(WAIT_S)
    assert eventually(lambda: ragtrace.stats().evaluators["embedded"].scored == 3)
    began = perf_counter()
    assert not ragtrace.shutdown(0.2)
    assert perf_counter() - began < WAIT_S / 2
    tally = ragtrace.stats().evaluators["waiting"]
    assert (tally.offered, tally.dropped, tally.pending) == (3, {"shutdown": 3}, 0)
    assert ragtrace.stats().evaluators["embedded"].scored == 3
    # The call being scored may miss the deadline of a busy machine: its span is exported without its scores, which
    # follow on a span of their own, linked to it.
    own = [root for root in captured.roots() if not root.links]
    statuses = [(root.attributes or {})[STATUS] for root in own]
    assert len(statuses) == 3
    assert statuses.count("dropped") >= 2
    assert set(statuses) <= {"dropped", "timeout"}
    assert "calls that went unscored since ragtrace was configured: 3 shutdown" in caplog.messages


def test_a_shutdown_that_leaves_a_call_pending_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """As where a thread has offered a call, and has been stopped before it could queue it: nobody counts it in time."""
    watch()
    runtime = current()
    assert runtime is not None
    assert runtime.ledger.count_offered(["embedded"], "stopped")
    assert not ragtrace.shutdown(WAIT_S)
    assert ragtrace.stats().pending == 1
    assert "calls that were still pending when ragtrace was shut down: 1" in caplog.messages


def test_calls_beyond_the_capacity_are_counted_and_keep_their_spans(caplog: pytest.LogCaptureFixture) -> None:
    """A judge slower than the traffic costs scores, never answers or memory."""
    judge = WaitingJudge()
    captured = watch(screen=judge, limits=ragtrace.Limits(capacity=2))
    assert [ask("where?") for _ in range(5)] == [ANSWER] * 5
    assert ragtrace.stats().dropped == {"queue_full": 3}
    judge.open()
    assert ragtrace.flush(WAIT_S)
    roots = [str((root.attributes or {})[STATUS]) for root in captured.roots()]
    assert sorted(roots) == ["dropped"] * 3 + ["ok"] * 2
    assert len(captured.spans) == 15
    assert len([message for message in caplog.messages if "queue_full" in message]) == 1


def test_shutting_down_twice_is_the_same_as_once() -> None:
    """The second finds nothing to do."""
    watch()
    ask("where?")
    assert ragtrace.shutdown()
    assert ragtrace.shutdown()
    assert ragtrace.stats().scored == 1


def test_calls_after_shutdown_run_undecorated_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """As before `configure`."""
    captured = watch()
    ragtrace.shutdown()
    assert [ask("where?"), ask("where?")] == [ANSWER, ANSWER]
    assert captured.spans == ()
    assert len([message for message in caplog.messages if "not configured" in message]) == 1


def test_a_stream_that_is_open_at_shutdown_goes_on() -> None:
    """The reader gets every piece; the span is kept or counted, and nothing raises."""

    @ragtrace.generate
    def stream(question: str) -> Iterator[str]:
        yield from ("a", "b", "c")

    watch(screen=FakeJudge(GOOD))
    pieces = stream("where?")
    assert next(pieces) == "a"
    ragtrace.shutdown()
    assert list(pieces) == ["b", "c"]


def test_configuring_again_finishes_what_was_under_way() -> None:
    """The first backend gets its calls with their scores, the second only its own."""
    first = watch()
    ask("where?")
    second = watch()
    ask("where?")
    assert ragtrace.flush()
    assert [(c.root().attributes or {})[STATUS] for c in (first, second)] == ["ok", "ok"]
    assert ragtrace.stats().offered == 1


SLOW_BACKEND = """
import os, sys, threading
import ragtrace
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from tests.support.watched import ask

class Slow(SpanExporter):
    def export(self, spans):
        threading.Event().wait(1.0)
        os.write(1, b"exported\\n" * len(spans))
        return SpanExportResult.SUCCESS

ragtrace.configure(exporter=Slow())
ask("where?")
ragtrace.configure(exporter="none")
"""


@pytest.mark.parametrize("ending", ["", "assert ragtrace.flush(60)", "assert ragtrace.shutdown(60)"])
def test_what_a_replaced_configuration_still_had_is_exported_before_the_exit(ending: str) -> None:
    """In the background, for which the exit waits, as `flush` and `shutdown` do."""
    done = run(SLOW_BACKEND + ending)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["exported"] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_leaves_the_end_of_a_replaced_configuration_to_its_parent() -> None:
    """It neither waits for it nor exports anything of it."""
    program = """
child = os.fork()
if not child:
    ask("in the child")
    assert ragtrace.flush(0.5) and ragtrace.shutdown(0.5)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    done = run(SLOW_BACKEND + program)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["exported"] * 3), done.stderr


def test_what_a_replaced_configuration_loses_is_counted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """Its backend never answers: after the time of a `configure`, in the background, and `flush` knows of it."""
    unanswered = threading.Event()

    class Silent(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            unanswered.wait(WAIT_S)
            return SpanExportResult.SUCCESS

    ragtrace.configure(exporter=Silent())
    ask("where?")
    ragtrace.configure(exporter="none")
    assert not ragtrace.flush(WAIT_S)
    unanswered.set()
    assert ragtrace.stats().faults["lost spans: not exported before the end"] == 3
    assert "spans and events that were lost on their way to the backend: 3" in caplog.messages


def test_configuring_again_leaves_one_background() -> None:
    """Threads do not pile up."""
    for _ in range(5):
        watch()
        ask("where?")
        assert ragtrace.flush()
    assert [thread.name for thread in threading.enumerate()].count("ragtrace") == 1


def test_configure_and_calls_may_race() -> None:
    """A reload under traffic loses no answer, raises nothing, and every call is accounted for."""
    errors: list[BaseException] = []
    captured = [watch(screen=FakeJudge(GOOD))]

    def traffic() -> None:
        try:
            assert {ask("where?") for _ in range(100)} == {ANSWER}
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=traffic) for _ in range(3)]
    for thread in threads:
        thread.start()
    captured += [watch(screen=FakeJudge(GOOD)) for _ in range(3)]
    for thread in threads:
        thread.join()
    assert errors == []
    is_complete = ragtrace.shutdown(WAIT_S)
    stats = ragtrace.stats()
    assert (stats.pending, stats.offered) == (0, sum(tally.settled for tally in stats.evaluators.values()))
    # A call that ends while its runtime is replaced may be dropped: the shutdown of that runtime, which may still be
    # under way, says so.
    assert stats.faults.keys() <= {"dropped: shutdown"}
    assert is_complete or "dropped: shutdown" in stats.faults
    assert sum(len(each.roots()) for each in captured) <= 300


# --- garbage collection ----------------------------------------------------------------------------------------------


class Collecting(SpanExporter):
    """Collects garbage, as may happen at any allocation, in the middle of an export."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        gc.collect()
        self.spans += spans
        return SpanExportResult.SUCCESS


@ragtrace.generate
def endless(question: str) -> Iterator[str]:
    while True:
        yield "piece"


def abandon() -> None:
    """Leave a begun stream in a cycle, for the collector to find."""
    stream = endless("where?")
    next(stream)
    cycle: list[object] = [stream]
    cycle.append(cycle)


def in_time(act: threading.Thread) -> bool:
    act.start()
    act.join(WAIT_S)
    return not act.is_alive()


@pytest.mark.parametrize("immediate", [True, False])
def test_a_stream_collected_during_an_export_does_not_deadlock(immediate: bool) -> None:
    """Whoever holds which lock: the collector ends the abandoned call on that very thread."""
    exporter = Collecting()
    ragtrace.configure(exporter=Signals(spans=exporter, immediate=immediate))
    gc.disable()
    try:
        for _ in range(5):
            abandon()
            ask("where?")
            assert in_time(threading.Thread(target=lambda: ragtrace.flush(WAIT_S), daemon=True))
    finally:
        gc.enable()
    gc.collect()
    assert ragtrace.flush(WAIT_S)
    assert [(span.attributes or {}).get("ragtrace.abandoned") for span in exporter.spans].count(True) == 5
    assert ragtrace.stats().pending == 0


def test_a_stream_collected_while_the_accounts_are_read_does_not_deadlock() -> None:
    """Reading and writing of every shared structure of ours can be interrupted by the end of a call."""
    captured = Captured()

    class Reading(FakeJudge):
        async def judge(self, call: ragtrace.RagCall) -> ragtrace.Judgement:
            gc.collect()
            ragtrace.stats()
            return await super().judge(call)

    ragtrace.configure(exporter=captured.signals, screen=Reading(GOOD))
    before = gc.get_threshold()
    gc.set_threshold(1)  # a collection at nearly every allocation
    try:
        for _ in range(10):
            abandon()
            ragtrace.stats()
            captured.metrics()
            ask("where?")
        assert in_time(threading.Thread(target=lambda: ragtrace.flush(WAIT_S), daemon=True))
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert ragtrace.flush(WAIT_S)
    assert ragtrace.stats().scored == 20

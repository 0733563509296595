"""A process that ends while its threads go on making calls: the collector still gets books that balance."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import ragtrace
from tests.process.test_exported_accounts import ROOT, exported
from tests.support.otlp import HttpReceiver
from tests.support.scored import EVERY
from tests.support.watched import WAIT_S, WaitingJudge, ask, watch

BUSY: Final = """
import sys, threading
import ragtrace
from tests.support.watched import WaitingJudge, ask

ragtrace.configure(service="busy", judge=WaitingJudge(), sampling=ragtrace.Sampling(rate=1.0))
begun = threading.Event()

def go_on():
    while True:
        ask("where?")
        begun.set()

for _ in range(20):
    ask("where?")
threading.Thread(target=go_on, daemon=True).start()
begun.wait()
sys.exit(5)
"""


@pytest.mark.timing
@pytest.mark.parametrize("time", range(3))
def test_the_last_books_arrive_though_spans_keep_coming(http_receiver: HttpReceiver, time: int) -> None:
    """The SDK's flush of spans goes on as long as there are new ones: the books do not wait for it.

    A thread that is in the middle of a call has counted it before they are read, or does not count it any more.
    """
    done = subprocess.run(
        [sys.executable, "-c", BUSY],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env={**os.environ, **http_receiver.environ},
    )
    assert done.returncode == 5
    books = dict(exported(http_receiver))
    assert books.keys() == {"embedded", "waiting"}
    for counts in books.values():
        assert counts["offered"] >= 20
        assert 2 * counts["offered"] == sum(counts.values())


LATE: Final = """
import atexit, json, threading
import ragtrace
from tests.support.watched import ask

begun, over = threading.Event(), threading.Event()

@ragtrace.trace
def call_slowly(question):
    begun.set()
    over.wait()
    return "late"

def tell():
    over.set()
    late.join()
    stats = ragtrace.stats()
    tally = stats.evaluators["embedded"]
    print(json.dumps([stats.after_shutdown, tally.offered, tally.scored, tally.pending, dict(tally.dropped)]))

atexit.register(tell)  # before ragtrace registers its own exit handler, so run after it
ragtrace.configure(service="late")
for _ in range(20):
    ask("where?")
late = threading.Thread(target=call_slowly, args=("when?",), daemon=True)
late.start()
begun.wait()
ragtrace.flush(30.0)
"""


@pytest.mark.parametrize("end", ["", "ragtrace.shutdown(30.0)"], ids=["exit", "shutdown"])
def test_a_call_that_ends_after_the_shutdown_is_in_no_books(http_receiver: HttpReceiver, end: str) -> None:
    """The collector has had the last ones: such a call is counted apart, and those of the process stay the same."""
    done = subprocess.run(
        [sys.executable, "-c", LATE + end],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=ROOT,
        env={**os.environ, **http_receiver.environ},
    )
    assert (done.returncode, json.loads(done.stdout)) == (0, [1, 20, 20, 0, {}]), done.stderr
    assert exported(http_receiver) == [("embedded", {"offered": 20, "scored": 20})]


def test_a_shutdown_that_leaves_something_in_hand_says_so() -> None:
    """Settled or not: its scores may not have been sent."""
    judge = WaitingJudge(blocking=True)
    watch(screen=judge)
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    assert not ragtrace.shutdown(0.0)
    judge.open()


@pytest.mark.parametrize(("spooled", "status"), [(False, "dropped"), (True, "deferred")])
def test_a_span_says_what_became_of_a_call_that_cannot_be_broken_off(
    spooled: bool, status: str, tmp_path: Path
) -> None:
    """Its judge did not take too long for the hold: there was no time left for it, or the next process scores it."""
    judge = WaitingJudge(blocking=True)
    limits = ragtrace.Limits(spool=tmp_path / "calls.db" if spooled else None)
    captured = watch(judge=judge, sampling=EVERY, limits=limits)
    ask("where?")
    assert judge.begun.wait(WAIT_S)
    ragtrace.shutdown(0.5)
    assert [(root.attributes or {})["ragtrace.eval.status"] for root in captured.roots()] == [status]
    judge.open()

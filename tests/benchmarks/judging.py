"""What is achieved of what a judge's server allows: with latency alone, and when it refuses a fifth of the load.

    python -m tests.benchmarks.judging [--seconds 10]

A real HTTP server on this machine (in a process of its own) takes 200 ms for a judgement; a user-like judge asks it
through httpx. Ideal rate: concurrency / latency. Rows:

- *direct*: the judge asked without ragtrace, for comparison: what its client and this machine can do.
- *latency*: the server answers everything. Bound: 0.9 of the ideal rate.
- *whole*: the same through a configured ragtrace, whose background also writes the spans: a burst of decorated calls.
  The rate is that of the middle 80 %: a burst of thousands begins with half a second of the application's own work.
  Bound: 0.9.
- *quota*: the server allows four fifths of the ideal rate (a token bucket that holds a second's worth) and refuses the
  rest with 429 and Retry-After 1 s. Bound: 0.7 of what it allows, nothing lost.
- *chance*: every fifth request, by chance, is refused with 429 and Retry-After 1 s. A client that keeps to the rule
  that nobody asks before the moment named waits a second after nearly every round of requests; what it can reach is
  about `concurrency * 0.8` judgements in each `latency + 1 s`. Bound: 0.7 of that, nothing lost.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

import ragtrace
from ragtrace.core.errors import JudgeError
from ragtrace.core.types import Document, RagCall
from ragtrace.evaluation.judge_client import JudgeClient
from ragtrace.testing import Captured
from tests.support.http_judge import HttpJudge
from tests.support.judge_server import JudgeServer, Limiter, Reply, Request, Rule, labels, too_many
from tests.support.watched import ask, limited

LATENCY_S: Final = 0.2
RETRY_AFTER_S: Final = 1.0
REFUSED: Final = 0.2
MOST_CALLS_AT_A_TIME: Final = 256  # as many as the background has in hand
CALL: Final = RagCall(query="q", contexts=(Document("Paris is a big city. " * 40),) * 5, answer="Paris is big. " * 30)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    kind: str
    concurrency: int
    allowed: float
    """Judgements a second that the server lets an obedient client have."""
    bound: float | None


@dataclass(frozen=True)
class Outcome:
    """What came of a row."""

    judged: int
    lost: Counter[str]
    seconds: float
    asked: int


def rows() -> list[Row]:
    made: list[Row] = []
    for concurrency in (16, 64):
        ideal = concurrency / LATENCY_S
        kept = 1 - REFUSED
        made += [
            Row("direct", concurrency, ideal, None),
            Row("latency", concurrency, ideal, 0.9),
            Row("whole", concurrency, ideal, 0.9),
            Row("quota", concurrency, kept * ideal, 0.7),
            Row("chance", concurrency, concurrency * kept / (LATENCY_S + RETRY_AFTER_S), 0.7),
        ]
    return made


def rule(kind: str, allowed: float) -> Rule:
    """How the server of such a row replies."""
    if kind == "quota":
        return Limiter(allowed, burst=allowed, retry_after=RETRY_AFTER_S, latency=LATENCY_S)
    chance = random.Random(7)

    def reply(request: Request) -> Reply:
        refused = kind == "chance" and chance.random() < REFUSED
        return too_many(RETRY_AFTER_S, after=LATENCY_S) if refused else labels(after=LATENCY_S)

    return reply


def serve(kind: str, allowed: float) -> None:
    """Serve until standard input is closed; prints the address."""
    with JudgeServer(rule(kind, allowed)) as server:
        print(server.url, flush=True)
        sys.stdin.read()


async def measure(url: str, row: Row, seconds: float) -> Outcome:
    """Judge different calls for about *seconds*, as many at a time as the background would, then finish."""
    judge = HttpJudge(url, keep_alive=True)
    judge_client = JudgeClient(judge, timeout=30.0, concurrency=row.concurrency)
    lost: Counter[str] = Counter()
    judged = 0
    if row.kind in ("direct", "latency"):  # opening connections is no part of what is measured
        await asyncio.gather(*(judge_client.ask(replace(CALL, query=f"warm {n}")) for n in range(row.concurrency)))
    began = monotonic()
    numbers = iter(range(10**9))

    line = asyncio.Semaphore(row.concurrency) if row.kind == "direct" else judge_client.admission_queue

    async def ask_on() -> None:
        nonlocal judged
        while True:
            async with line:
                if monotonic() - began >= seconds:
                    return
                try:
                    call = replace(CALL, query=f"question {next(numbers)}")
                    await (judge.judge(call) if row.kind == "direct" else judge_client.ask(call))
                    judged += 1
                except JudgeError as error:
                    lost[error.reason] += 1

    await asyncio.gather(*(ask_on() for _ in range(MOST_CALLS_AT_A_TIME)))
    took = monotonic() - began
    await judge.close()
    return Outcome(judged, lost, took, max(judged, judge_client.status.asked))


def measure_whole(url: str, row: Row, seconds: float) -> Outcome:
    """Make as many decorated calls as the server can judge in *seconds*, and wait until all are settled."""
    judge, calls = limited(HttpJudge(url, keep_alive=True), concurrency=row.concurrency), int(row.allowed * seconds)
    every = ragtrace.Sampling(rate=1.0)
    signals = Captured().signals
    ragtrace.configure(
        exporter=signals,
        screen=None,
        judge=judge,
        sampling=every,
        limits=ragtrace.Limits(capacity=calls),
    )
    for number in range(calls):
        ask(f"question {number}")
    began, first = until_settled(0.1 * calls)
    ended, last = until_settled(0.9 * calls)
    ragtrace.flush(timeout=10 * seconds)
    stats = ragtrace.stats()
    ragtrace.shutdown()
    lost = Counter({**stats.failed, **stats.dropped})
    return Outcome(last - first, lost, ended - began, last - first)


def until_settled(calls: float) -> tuple[float, int]:
    """When at least so many calls were settled, and how many it were."""
    pause = threading.Event()
    while (settled := sum(tally.settled for tally in ragtrace.stats().evaluators.values())) < calls:
        pause.wait(0.01)
    return monotonic(), settled


def run(row: Row, seconds: float) -> Outcome:
    """Measure *row* against a server in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.judging", "--serve", row.kind, "--allowed", str(row.allowed)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        url = server.stdout.readline().strip()
        return measure_whole(url, row, seconds) if row.kind == "whole" else asyncio.run(measure(url, row, seconds))
    finally:
        server.stdin.close()
        server.wait(timeout=10)
        server.stdout.close()


def show(row: Row, outcome: Outcome) -> bool:
    """Print a line; whether the bound is kept and nothing lost."""
    rate = outcome.judged / outcome.seconds
    ratio = rate / row.allowed
    kept = row.bound is None or (ratio >= row.bound and not outcome.lost)
    verdict = "" if row.bound is None else f"  >= {row.bound:g} {'kept' if kept else 'MISSED'}"
    refused = 1 - outcome.judged / max(1, outcome.asked)
    lost = sum(outcome.lost.values())
    print(
        f"{row.kind:<8} {row.concurrency:>11} {row.allowed:>10.1f} {rate:>10.1f} {ratio:>6.2f} {refused:>8.0%} "
        f"{outcome.judged:>7} {lost:>5}{verdict}"
    )
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each row asks")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--allowed", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.allowed)
        return 0
    print("server   concurrency  allowed/s   judged/s  ratio  refused  judged  lost  bound")
    kept = [show(row, run(row, options.seconds)) for row in rows()]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())

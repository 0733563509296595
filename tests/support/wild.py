"""An application that does everything that may happen to it at random: a program for tests, run as a process.

    python -m tests.support.wild SEED SPOOL

prints one JSON object for each process of the tree that it becomes: what its accounts say at its end. `JUDGE_URL` is
where its judge is; the telemetry goes where `OTEL_EXPORTER_OTLP_ENDPOINT` says.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import ragtrace
from ragtrace.core.ledger import Tally
from ragtrace.core.types import Document, RagCall
from tests.support.http_judge import HttpJudge
from tests.support.watched import limited

ACTS: Final = 60
MOST_DEPTH: Final = 2
MANNERS: Final = ("good", "slow", "busy", "broken", "hangs", "drops", "garbage", "nonsense", "huge")
"""What the judge's server does, as the question's first word says."""
TEXT: Final = "Paris is big."


@ragtrace.retrieve
def search(query: str) -> list[str]:
    return [TEXT]


@ragtrace.generate
def answer(question: str) -> str:
    return TEXT


@ragtrace.generate
def stream(question: str) -> Iterator[str]:
    yield from TEXT.split()


@ragtrace.generate
async def async_stream(question: str) -> AsyncIterator[str]:
    for word in TEXT.split():
        await asyncio.sleep(0)
        yield word


@ragtrace.trace(name="plain")
def plain(question: str) -> str:
    search(question)
    return answer(question)


@ragtrace.trace(name="failing")
def failing(question: str) -> str:
    raise ValueError(question)


@ragtrace.trace(name="async")
async def asynchronous(question: str) -> str:
    search(question)
    await asyncio.sleep(0)
    return answer(question)


def fails(question: str) -> None:
    with suppress(ValueError):
        failing(question)


def leaves(question: str) -> None:
    reader = stream(question)
    next(reader)
    reader.close()  # type: ignore[attr-defined]


async def leaves_async(question: str) -> None:
    reader: Any = async_stream(question)
    async for _ in reader:
        break
    await reader.aclose()


async def cancels(question: str) -> None:
    task = asyncio.ensure_future(asynchronous(question))
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def block(question: str) -> None:
    with ragtrace.call(question) as call:
        call.retrieved([TEXT])
        call.answered(TEXT)


CALLS: Final[tuple[Callable[[str], object], ...]] = (
    plain,
    fails,
    lambda question: asyncio.run(asynchronous(question)),
    lambda question: asyncio.run(cancels(question)),
    leaves,
    lambda question: asyncio.run(leaves_async(question)),
    lambda question: list(stream(question)),
    block,
)


class Wild:
    """One process of the tree."""

    def __init__(self, seed: int, depth: int = 0) -> None:
        self._draw, self._depth, self._calls = random.Random(seed), depth, 0
        self._children: list[int] = []

    def configure(self, spool: str) -> None:
        draw = self._draw
        if draw.random() < 0.6:
            os.environ["OTEL_TRACES_SAMPLER"] = "parentbased_traceidratio"
            os.environ["OTEL_TRACES_SAMPLER_ARG"] = draw.choice(("0.5", "0.1"))
        os.environ["OTEL_METRIC_EXPORT_INTERVAL"] = draw.choice(("50", "1000000"))
        ragtrace.configure(
            service="wild",
            judge=limited(
                HttpJudge(os.environ["JUDGE_URL"], name="judge"), timeout=0.3, concurrency=draw.choice((1, 4))
            ),
            screen=draw.choice((None, ragtrace.EmbeddedJudge())),
            sampling=ragtrace.Sampling(rate=draw.choice((0.3, 1.0)), score_head_dropped=draw.random() < 0.5),
            limits=ragtrace.Limits(
                capacity=draw.choice((2, 20, 1000)),
                queue_bytes=draw.choice((1 << 20, 64 << 20)),
                hold_seconds=draw.choice((0.1, 5.0)),
                spool=spool if draw.random() < 0.5 else None,
            ),
        )

    def live(self, timeout: float) -> int:
        """Do what comes to mind, end, and say what the accounts say; returns the exit code."""
        for number in range(ACTS):
            self._act(number)
        complete = ragtrace.shutdown(timeout)
        report = {"calls": self._calls, "complete": complete, "evaluators": books()}
        os.write(1, (json.dumps(report) + "\n").encode())
        return max((os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in self._children), default=0)

    def _act(self, number: int) -> None:
        match self._draw.choice(("call",) * 12 + ("flush", "hasty flush", "pause", "threads", "fork")):
            case "flush":
                ragtrace.flush(0.3)
            case "hasty flush":
                ragtrace.flush(0.0)
            case "pause":
                threading.Event().wait(0.01)
            case "threads":
                self._threads(number)
            case "fork":
                self._fork(number)
            case _:
                self._call(f"{number}")

    def _call(self, number: str) -> None:
        self._calls += 1
        self._draw.choice(CALLS)(f"{self._draw.choice(MANNERS)} {os.getpid()} {number}")

    def _threads(self, number: int) -> None:
        """Several calls at a time, and perhaps a fork in the middle of them, whatever locks they hold."""
        threads = [threading.Thread(target=self._call, args=(f"{number} {place}",)) for place in range(5)]
        for thread in threads:
            thread.start()
        if self._draw.random() < 0.5 and self._fork(number):
            return  # the child has none of the threads
        for thread in threads:
            thread.join()

    def _fork(self, seed: int) -> bool:
        """Whether this is the child now."""
        if self._depth == MOST_DEPTH:
            return False
        child = os.fork()
        if child:
            self._children.append(child)
            return False
        Wild.__init__(self, seed, self._depth + 1)
        return True


def books() -> Mapping[str, Mapping[str, int]]:
    """Calls by outcome, for each evaluator."""
    return {
        name: {k: v for k, v in by_outcome(tally).items() if v} for name, tally in ragtrace.stats().evaluators.items()
    }


def by_outcome(tally: Tally) -> dict[str, int]:
    return {
        "offered": tally.offered,
        "sampled_out": sum(tally.sampled_out.values()),
        "scored": tally.scored,
        "partial": tally.partial,
        "failed": sum(tally.failed.values()),
        "dropped": sum(tally.dropped.values()),
        "pending": tally.pending,
    }


def warm_up() -> None:
    """Have everything imported: a fork copies the lock of a module that another thread is importing, held for ever."""
    call = RagCall(query="good", contexts=(Document(TEXT),), answer=TEXT)
    for judge in (HttpJudge(os.environ["JUDGE_URL"]), ragtrace.EmbeddedJudge()):
        asyncio.run(judge.judge(call))


def main(seed: int, spool: str, timeout: float) -> int:
    logging.disable()  # what fails here is meant to
    warm_up()
    wild = Wild(seed)
    wild.configure(spool)
    return wild.live(timeout)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))

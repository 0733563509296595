"""What a guard adds to a call, with judges of all tempers, and to the first piece of a stream.

    python tests/benchmarks/guard.py [--calls 10000] [--streams 20] [--only added,streams]

- added: time from the moment at which the function has its answer, after 5 ms, until the caller has it, with 50 calls
  at a time, by 50 threads and by 50 tasks, and `budget_ms=400`. The judge answers at once, after 0.6 s, never, with
  garbage, refuses the connection, or dies after 50 ms. "waited" counts the calls to which more than 5 ms were added:
  with an open circuit, no judge is asked.
- streams: time until the first piece and until the end of a stream of three sentences of ten pieces, 20 ms each, with a
  judge that takes 100 ms for an answer, of any length.

Every count of verdicts and actions must add up to the number of calls, or the script fails.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that it also runs by its path alone

import ragtrace
from ragtrace.core.types import Judgement, RagCall
from ragtrace.testing import FakeJudge
from tests.support.watched import GOOD, search

AT_A_TIME: Final = 50
BUDGET_MS: Final = 400
TEMPERS: Final = ("quick", "slow", "hangs", "garbage", "refuses", "dies")
OWN_SECONDS: Final = 0.005
PIECES: Final = [word for _ in range(3) for word in ("The ", *["very "] * 7, "big ", "city. ")]
PIECE_SECONDS: Final = 0.02
CHECK_SECONDS: Final = 0.1


class Temper(FakeJudge):
    """Judge of one temper.

    Args:
        temper: one of `TEMPERS`, or "steady", which takes `CHECK_SECONDS`.
    """

    def __init__(self, temper: str) -> None:
        super().__init__(GOOD)
        self.temper, self.requests = temper, 0

    async def judge(self, call: RagCall) -> Judgement:
        self.requests += 1
        if self.temper == "hangs":
            await asyncio.Event().wait()
        if self.temper in ("slow", "steady"):
            await asyncio.sleep(0.6 if self.temper == "slow" else CHECK_SECONDS)
        if self.temper == "refuses":
            raise ConnectionRefusedError
        if self.temper == "garbage":
            return "garbage"  # type: ignore[return-value]
        if self.temper == "dies":
            await asyncio.sleep(0.05)
            raise ConnectionResetError
        return GOOD


def start(judge: FakeJudge) -> None:
    ragtrace.configure(exporter="none", screen=None, judge=judge)


def percentile(times: list[float], share: float) -> str:
    return f"{sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1000:7.1f}" if times else "      -"


def added(calls: int) -> None:
    print(f"{'judge':<9}{'by':<9}{'p50 ms':>8}{'p99 ms':>8}{'most ms':>9}{'waited':>8}{'p99 ms':>8}   verdicts")
    for temper in TEMPERS:
        for by in ("threads", "tasks"):
            start(Temper(temper))
            times = by_threads(calls) if by == "threads" else by_tasks(calls)
            tally = ragtrace.stats().guards["guarded"]
            assert tally.calls == sum(tally.verdicts.values()) == sum(tally.actions.values()) == calls, tally
            waited = [each for each in times if each > 0.005]
            verdicts = ", ".join(f"{name} {count}" for name, count in tally.verdicts.items())
            print(
                f"{temper:<9}{by:<9} {percentile(times, 0.5)} {percentile(times, 0.99)}  {percentile(times, 1.0)}"
                f"{len(waited):>8} {percentile(waited, 0.99)}   {verdicts}",
                flush=True,
            )
            ragtrace.shutdown(timeout=1.0)
            gc.collect()


def guarded(action: str = "annotate", **options: Any) -> Any:
    guard = ragtrace.Guard("faithfulness", below=0.5, budget_ms=BUDGET_MS, action=action, **options)  # type: ignore[arg-type]
    return ragtrace.trace(name="guarded", guard=guard)


def by_threads(calls: int) -> list[float]:
    answered: dict[str, float] = {}

    @guarded()
    def ask(question: str) -> str:
        search(question)
        sleep(OWN_SECONDS)
        answered[question] = perf_counter()
        return "Paris is big."

    def timed(number: int) -> float:
        question = f"Where is Paris, {number}?"
        ask(question)
        return perf_counter() - answered.pop(question)

    ready = threading.Barrier(AT_A_TIME)
    with ThreadPoolExecutor(AT_A_TIME, initializer=ready.wait) as pool:
        list(pool.map(lambda _: sleep(0.01), range(AT_A_TIME)))  # all threads run before the first call
        return list(pool.map(timed, range(calls)))


def by_tasks(calls: int) -> list[float]:
    answered: dict[str, float] = {}

    @guarded()
    async def ask(question: str) -> str:
        search(question)
        await asyncio.sleep(OWN_SECONDS)
        answered[question] = perf_counter()
        return "Paris is big."

    async def main() -> list[float]:
        numbers, times = iter(range(calls)), list[float]()

        async def work() -> None:
            for number in numbers:
                question = f"Where is Rome, {number}?"
                await ask(question)
                times.append(perf_counter() - answered.pop(question))

        await asyncio.gather(*(work() for _ in range(AT_A_TIME)))
        return times

    return asyncio.run(main())


def streams(number: int) -> None:
    print(f"{'stream':<10}{'first piece ms':>16}{'end ms':>9}{'judge requests':>16}")
    for mode in ("none", "shadow", "after", "sentence", "all"):
        judge = Temper("steady")
        start(judge)
        first, end = [], []
        read = stream_of(mode)
        for round_number in range(number):
            began = perf_counter()
            pieces = read(f"Where is Paris, {round_number}?")
            next(pieces)
            first.append(perf_counter() - began)
            for _ in pieces:
                pass
            end.append(perf_counter() - began)
        ragtrace.flush()
        print(
            f"{mode:<10}{median(first) * 1000:>16.0f}{median(end) * 1000:>9.0f}{judge.requests / number:>16.1f}",
            flush=True,
        )
        ragtrace.shutdown(timeout=1.0)


def stream_of(mode: str) -> Callable[[str], Iterator[str]]:
    decorate: Any = ragtrace.trace(name="guarded")
    if mode != "none":
        decorate = guarded("shadow") if mode == "shadow" else guarded(stream=mode)

    @decorate
    async def ask(question: str) -> AsyncIterator[str]:
        search(question)
        for place, piece in enumerate(PIECES):
            await asyncio.sleep(PIECE_SECONDS)
            yield piece if place % 10 else f"In {question[-3:-1]}{place} {piece}"

    def read(question: str) -> Iterator[str]:
        loop = asyncio.new_event_loop()
        pieces: Any = ask(question)
        try:
            while (piece := loop.run_until_complete(anext(pieces, None))) is not None:
                yield piece
        finally:
            loop.close()

    return read


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--only", default="added,streams")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if "added" in options.only:
        added(options.calls)
    if "streams" in options.only:
        streams(options.streams)


if __name__ == "__main__":
    main()

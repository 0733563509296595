"""What a guard adds to a call, with judges of all tempers, and to the first piece of a stream.

    python tests/benchmarks/guard.py [--calls 10000] [--tempers garbage,...] [--streams 20] [--rounds 9]
                                     [--only added,streams,request,loop]

- added: time from the moment at which the function has its answer, after 5 ms, until the caller has it, with 50 calls
  at a time, by 50 threads and by 50 tasks, and `budget_ms=400`. The judge answers at once, after 0.6 s, never, with
  garbage, refuses the connection, or dies after 50 ms. "waited" counts the calls to which more than 5 ms were added:
  with an open circuit, no judge is asked. Streams are checked by the sentence, of which each has three; their time is
  that from the first piece asked for to the end, less the time in the function itself.
- streams: time until the first piece and until the end of a stream of three sentences of ten pieces, 20 ms each, with a
  judge that takes 100 ms for an answer, of any length. The pieces are made when the reader asks for them, or sent by a
  server, which goes on while a sentence is checked.
- request: CPU time of the thread that serves the request: without a guard, while another function has one, and with one
  in the shadow; each in a process of its own, in interleaved rounds (`support.py`). Then the same functions in turns in
  one process: with everything, and without what follows the hand-over, where the background's work disturbs nothing.
- loop: what 50 tasks at a time, which wait 200 ms for a judge, do to the event loop of the application: how late a
  task that is due every millisecond runs, how long the loop's thread works between two turns of it, and how long a
  single step of a call takes. Beside that the same without a guard, where the caller waits 200 ms instead, in
  interleaved rounds of one process.

Every count of verdicts and actions must add up to the number of calls, or the script fails.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import logging
import sys
import threading
import types
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter, sleep, thread_time
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that it also runs by its path alone

import ragtrace
from ragtrace.core.types import Judgement, RagCall
from ragtrace.runtime.runtime import Runtime
from ragtrace.testing import FakeJudge
from tests.benchmarks.subjects import ours
from tests.benchmarks.subjects.application import QUERIES, WORKFLOW
from tests.benchmarks.support import Row, interleaved, lines, show, started
from tests.support.watched import GOOD, search

PLAIN, PLAIN_ASYNC = "no guard", "no guard, async"
AT_A_TIME: Final = 50
BUDGET_MS: Final = 400
TEMPERS: Final = ("quick", "slow", "hangs", "garbage", "refuses", "dies")
OWN_SECONDS: Final = 0.005
PIECES: Final = [word for _ in range(3) for word in ("The ", *["very "] * 7, "big ", "city. ")]
THREE_SENTENCES: Final = ["Paris is ", "big. ", "Rome is ", "old. ", "Oslo is ", "cold."]
PIECE_SECONDS: Final = 0.02
CHECK_SECONDS: Final = 0.1
PENSIVE_SECONDS: Final = 0.2
REQUEST: Final = (
    Row(PLAIN, "ours:light"),
    Row("the same again (noise)", "ours:light", PLAIN),
    Row("another function has a guard", "ours:light_beside_guard", PLAIN),
    Row("shadow", "ours:light_shadow", PLAIN),
    Row(PLAIN_ASYNC, "ours:light_async"),
    Row("the same again, async (noise)", "ours:light_async", PLAIN_ASYNC),
    Row("another function has a guard, async", "ours:light_async_beside_guard", PLAIN_ASYNC),
    Row("shadow, async", "ours:light_async_shadow", PLAIN_ASYNC),
)


class Temper(FakeJudge):
    """Judge of one temper.

    Args:
        temper: one of `TEMPERS`, "steady", which takes `CHECK_SECONDS`, or "pensive", which takes `PENSIVE_SECONDS`.
    """

    def __init__(self, temper: str) -> None:
        super().__init__(GOOD)
        self.temper, self.requests = temper, 0

    async def judge(self, call: RagCall) -> Judgement:
        self.requests += 1
        if self.temper == "hangs":
            await asyncio.Event().wait()
        if seconds := {"slow": 0.6, "steady": CHECK_SECONDS, "pensive": PENSIVE_SECONDS}.get(self.temper):
            await asyncio.sleep(seconds)
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
    return f"{sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1000:7.2f}" if times else "      -"


def added(calls: int, tempers: Sequence[str]) -> None:
    print(f"{'judge':<9}{'by':<17}{'p50 ms':>8}{'p99 ms':>8}{'most ms':>9}{'waited':>8}{'p99 ms':>8}   verdicts")
    for temper in tempers:
        for by, measure in BY.items():
            start(Temper(temper))
            times = measure(calls)
            tally = ragtrace.stats().guards["guarded"]
            assert tally.calls == sum(tally.verdicts.values()) == sum(tally.actions.values()) == calls, tally
            waited = [each for each in times if each > 0.005]
            verdicts = ", ".join(f"{name} {count}" for name, count in tally.verdicts.items())
            print(
                f"{temper:<9}{by:<17} {percentile(times, 0.5)} {percentile(times, 0.99)}  {percentile(times, 1.0)}"
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

    return in_threads(timed, calls)


def in_threads(timed: Callable[[int], float], calls: int) -> list[float]:
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

    async def timed(number: int) -> float:
        question = f"Where is Rome, {number}?"
        await ask(question)
        return perf_counter() - answered.pop(question)

    return asyncio.run(in_tasks(timed, calls))


async def in_tasks(timed: Callable[[int], Awaitable[float]], calls: int) -> list[float]:
    numbers, times = iter(range(calls)), list[float]()

    async def work() -> None:
        for number in numbers:
            times.append(await timed(number))

    await asyncio.gather(*(work() for _ in range(AT_A_TIME)))
    return times


def streams_by_threads(calls: int) -> list[float]:
    own: dict[str, float] = defaultdict(float)

    @guarded(stream="sentence")
    def ask(question: str) -> Iterator[str]:
        search(question)
        for piece in THREE_SENTENCES:
            began = perf_counter()
            sleep(OWN_SECONDS / len(THREE_SENTENCES))
            own[question] += perf_counter() - began
            yield piece

    def timed(number: int) -> float:
        question, began = f"Where is Paris, {number}?", perf_counter()
        assert list(ask(question)) == THREE_SENTENCES
        return perf_counter() - began - own.pop(question)

    return in_threads(timed, calls)


def streams_by_tasks(calls: int) -> list[float]:
    own: dict[str, float] = defaultdict(float)

    @guarded(stream="sentence")
    async def ask(question: str) -> AsyncIterator[str]:
        search(question)
        for piece in THREE_SENTENCES:
            began = perf_counter()
            await asyncio.sleep(OWN_SECONDS / len(THREE_SENTENCES))
            own[question] += perf_counter() - began
            yield piece

    async def timed(number: int) -> float:
        question, began = f"Where is Rome, {number}?", perf_counter()
        assert [piece async for piece in ask(question)] == THREE_SENTENCES
        return perf_counter() - began - own.pop(question)

    return asyncio.run(in_tasks(timed, calls))


BY: Final[Mapping[str, Callable[[int], list[float]]]] = {
    "threads": by_threads,
    "tasks": by_tasks,
    "streams, threads": streams_by_threads,
    "streams, tasks": streams_by_tasks,
}


def streams(number: int) -> None:
    print(f"{'stream':<10}{'source':<8}{'first piece ms':>16}{'end ms':>9}{'judge requests':>16}")
    for mode, source in itertools.product(("none", "shadow", "after", "sentence", "all"), ("asked", "sent")):
        judge = Temper("steady")
        start(judge)
        first, end = [], []
        read = stream_of(mode, sent=source == "sent")
        for round_number in range(number):
            began = perf_counter()
            pieces = read(f"Where is Paris, {round_number}?")
            next(pieces)
            first.append(perf_counter() - began)
            for _ in pieces:
                pass
            end.append(perf_counter() - began)
        ragtrace.flush()
        times = f"{median(first) * 1000:>16.0f}{median(end) * 1000:>9.0f}"
        print(f"{mode:<10}{source:<8}{times}{judge.requests / number:>16.1f}", flush=True)
        ragtrace.shutdown(timeout=1.0)


async def made_pieces(question: str) -> AsyncIterator[str]:
    """Pieces that are made when their reader asks for them."""
    for place, piece in enumerate(PIECES):
        await asyncio.sleep(PIECE_SECONDS)
        yield piece if place % 10 else f"In {question[-3:-1]}{place} {piece}"


@contextmanager
def piece_server() -> Iterator[int]:
    """Port of a server that sends the pieces for a question, one a line, whether or not they are read."""

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = (await reader.readline()).decode().strip()
        async for piece in made_pieces(question):
            writer.write(f"{piece}\n".encode())
        await writer.drain()
        writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(send, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield server.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


async def sent_pieces(port: int, question: str) -> AsyncIterator[str]:
    """Pieces that a server sends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{question}\n".encode())
    while line := await reader.readline():
        yield line.decode()[:-1]
    writer.close()


def stream_of(mode: str, *, sent: bool) -> Callable[[str], Iterator[str]]:
    decorate: Any = ragtrace.trace(name="guarded")
    if mode != "none":
        decorate = guarded("shadow") if mode == "shadow" else guarded(stream=mode)

    @decorate
    async def ask(question: str, port: int) -> AsyncIterator[str]:
        search(question)
        async for piece in sent_pieces(port, question) if sent else made_pieces(question):
            yield piece

    def read(question: str) -> Iterator[str]:
        loop = asyncio.new_event_loop()
        with piece_server() as port:
            pieces: Any = ask(question, port)
            try:
                while (piece := loop.run_until_complete(anext(pieces, None))) is not None:
                    yield piece
            finally:
                loop.close()

    return read


def request(rounds: int, calls: int) -> None:
    rows = [replace(row, spans=None) for row in REQUEST]
    with started(rows) as processes:
        results = interleaved(processes, rounds, measure="thread", calls=calls)
    show("request: CPU time of the thread that serves the request", "us/call", lines(rows, results))
    for row in rows:
        if row.reference:
            pairs = zip(results[row.label], results[row.reference], strict=True)
            print(f"{row.label}: {median(mine - base for mine, base in pairs):+.2f} us a call")


@types.coroutine
def timed_steps(call: Coroutine[Any, Any, object], taken: list[float]) -> Generator[Any, Any, object]:
    """Run *call*, and add the CPU time of each of its steps, for which it blocks the event loop, to *taken*."""
    while True:
        began = thread_time()
        try:
            pending = call.send(None)
        except StopIteration as stop:
            taken.append(thread_time() - began)
            return stop.value
        taken.append(thread_time() - began)
        yield pending


@contextmanager
def nothing_handed_over() -> Iterator[None]:
    """Leave out what follows a call's hand-over to the runtime, so that no other thread works beside the request's."""
    real = Runtime.call_ended
    Runtime.call_ended = lambda *_: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Runtime.call_ended = real  # type: ignore[method-assign]


def shadow_in_one_process(rounds: int, calls: int) -> None:
    """Print what a guard in the shadow adds, of functions that are called in turns: nearer than by two processes."""
    ours.light()
    compare_in_turns("in one process", rounds, calls)
    with nothing_handed_over():
        compare_in_turns("in one process, up to the hand-over", rounds, calls)
    ragtrace.shutdown(timeout=1.0)


def compare_in_turns(what: str, rounds: int, calls: int) -> None:
    """Print the CPU time on the request's thread that a guard in the shadow adds, the median of *rounds*."""
    loop = asyncio.new_event_loop()
    queries = list(itertools.islice(itertools.cycle(QUERIES), calls))

    async def burst(ask: Any) -> float:
        began = thread_time()
        for query in queries:
            await ask(query)
        return (thread_time() - began) / calls * 1e6

    def plain_burst(ask: Any) -> float:
        began = thread_time()
        for query in queries:
            ask(query)
        return (thread_time() - began) / calls * 1e6

    for label, ask in (("sync", ours.ask), ("async", ours.aask)):
        again: Any = ragtrace.trace(name=WORKFLOW)(ask.__wrapped__)  # type: ignore[attr-defined]
        functions = {"no guard": ask, "the same again": again, "shadow": ours.shadowed(ask)}
        taken: dict[str, list[float]] = {name: [] for name in functions}
        for number in range(rounds + 1):
            gc.collect()
            gc.disable()
            first = number % len(functions)
            for name in (*list(functions)[first:], *list(functions)[:first]):
                function = functions[name]
                found = loop.run_until_complete(burst(function)) if label == "async" else plain_burst(function)
                ragtrace.flush(30.0)
                taken[name] += [found] if number else []
            gc.enable()
        base = taken["no guard"]
        for name in ("the same again", "shadow"):
            added = median(mine - plain for mine, plain in zip(taken[name], base, strict=True))
            print(f"{what}, {label}: {name} {added:+.2f} us a call (no guard {median(base):.2f})", flush=True)
    loop.close()


async def beats(ends: asyncio.Event) -> tuple[list[float], list[float]]:
    """How late a task ran that was due every millisecond, and how long the loop's thread worked between its turns."""
    loop, late, worked = asyncio.get_running_loop(), list[float](), list[float]()
    while not ends.is_set():
        due, before = loop.time() + 0.001, thread_time()
        await asyncio.sleep(0.001)
        late.append(max(0.0, loop.time() - due))
        worked.append(thread_time() - before)
    return late, worked


def loop_lag(rounds: int) -> None:
    judge = Temper("pensive")
    judge.limits = ragtrace.JudgeLimits(concurrency=2 * AT_A_TIME)
    ragtrace.configure(exporter="none", screen=None, judge=judge, sampling=ragtrace.Sampling(rate=1.0))

    async def ask(question: str) -> str:
        search(question)
        await asyncio.sleep(OWN_SECONDS)
        return "Paris is big."

    functions = {
        "undecorated": ask,
        "no guard": ragtrace.trace(name="traced")(ask),
        "shadow": ragtrace.trace(name="shadowed", guard=ragtrace.Guard("faithfulness", below=0.5))(ask),
        "annotate": guarded()(ask),
    }
    late: dict[str, list[float]] = {name: [] for name in functions}
    worked: dict[str, list[float]] = {name: [] for name in functions}
    steps: dict[str, list[float]] = {name: [] for name in functions}

    async def measure(name: str) -> None:
        over = asyncio.Event()
        beating = asyncio.ensure_future(beats(over))

        async def work(number: int) -> None:
            await asyncio.sleep(number * 0.004)  # calls of an application do not all begin at the same moment
            for turn in range(5):
                await timed_steps(functions[name](f"Where is Rome, {number}, {turn}?"), steps[name])
                if name != "annotate":
                    await asyncio.sleep(PENSIVE_SECONDS)

        await asyncio.gather(*(work(number) for number in range(AT_A_TIME)))
        over.set()
        found = await beating
        late[name] += found[0]
        worked[name] += found[1]

    for number in range(rounds + 1):
        for name in functions:
            if number == 1:  # the first round is a warm-up
                late[name], worked[name], steps[name] = [], [], []
            gc.collect()
            gc.disable()
            asyncio.run(measure(name))
            gc.enable()
            ragtrace.flush(30.0)
    print(
        f"{'':<12}{'late p50 ms':>13}{'p99':>9}{'most':>9}{'works p99 ms':>14}{'most':>9}{'step p99 ms':>13}{'most':>9}"
    )
    for name in functions:
        shown = [percentile(late[name], share) for share in (0.5, 0.99, 1.0)]
        shown += [percentile(each[name], share) for each in (worked, steps) for share in (0.99, 1.0)]
        widths = (13, 9, 9, 14, 9, 13, 9)
        print(f"{name:<12}{''.join(f'{each:>{width}}' for each, width in zip(shown, widths, strict=True))}")
    for name in ("shadowed", "guarded"):
        tally = ragtrace.stats().guards[name]
        print(f"{name}: {', '.join(f'{verdict} {count}' for verdict, count in tally.verdicts.items())}")
    ragtrace.shutdown(timeout=1.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tempers", default=",".join(TEMPERS))
    parser.add_argument("--only", default="added,streams,request,loop")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if "added" in options.only:
        added(options.calls, options.tempers.split(","))
    if "streams" in options.only:
        streams(options.streams)
    if "request" in options.only:
        request(options.rounds, 500)
        shadow_in_one_process(4 * options.rounds, 300)
    if "loop" in options.only:
        loop_lag(options.rounds)


if __name__ == "__main__":
    main()
